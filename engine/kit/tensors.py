"""Dictionaries of tensors: copy them, load them, average them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Tensors = dict[str, Tensor]

M = TypeVar("M", bound=nn.Module)


def live_tensors(module: nn.Module) -> Tensors:
    """Parameters and buffers of the module themselves, not copies."""
    return {name: tensor.detach() for name, tensor in module.state_dict(keep_vars=True).items()}


def copy_tensors(source: nn.Module | Mapping[str, Tensor]) -> Tensors:
    """Copies that share no memory with their source."""
    tensors = live_tensors(source) if isinstance(source, nn.Module) else source
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def load_tensors(target: nn.Module | Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy values in place; both sides must have the same names."""
    tensors = live_tensors(target) if isinstance(target, nn.Module) else target
    if tensors.keys() != source.keys():
        raise KeyError(f"names differ: {sorted(tensors.keys() ^ source.keys())}")
    if tensors:
        with torch.no_grad():
            torch._foreach_copy_(list(tensors.values()), [source[name] for name in tensors])


def revive(make: Callable[[], M], tensors: Mapping[str, Tensor], device: torch.device) -> M:
    """The module that make() builds, with these values; nothing is drawn for its initial ones."""
    with torch.device("meta"):
        module = make()
    module.to_empty(device=device)
    load_tensors(module, tensors)
    return module


def plus(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor + second[name] for name, tensor in first.items()}


def minus(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor - second[name] for name, tensor in first.items()}


def count_scalars(tensors: Mapping[str, Tensor]) -> int:
    """Elements of all float tensors: what a message costs. Integers (class ids, counters) are side information."""
    return sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no float among them is NaN or infinite. Each device is asked once."""
    flags: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.is_floating_point():
            flags.setdefault(tensor.device, []).append(tensor.isfinite().all())
    return all(bool(torch.stack(own).all()) for own in flags.values())


def join_groups(groups: Mapping[str, Mapping[str, Tensor]]) -> Tensors:
    """Several sets of tensors as one message; see split_groups."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def split_groups(message: Mapping[str, Tensor]) -> dict[str, Tensors]:
    """The sets of tensors that join_groups put together, in their order."""
    groups: dict[str, Tensors] = {}
    for key, tensor in message.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = tensor
    return groups


def shares(samples: Sequence[int]) -> list[float]:
    """w_k = n_k / Σ n_j, formed first and in double precision, so that one client alone weighs exactly 1."""
    total = sum(samples)
    return [count / total for count in samples]


def weighted_mean(members: Sequence[Mapping[str, Tensor]], weights: Iterable[float]) -> Tensors:
    """Σ w_k θ_k, accumulated in float64 in the order given and cast once; integer counters take the largest."""
    pairs = list(zip(members, weights, strict=True))
    mean: Tensors = {}
    for name, first in members[0].items():
        if not first.is_floating_point():
            mean[name] = torch.stack([member[name] for member in members]).amax(0)
            continue
        total = torch.zeros_like(first, dtype=torch.float64)
        for member, weight in pairs:
            total.add_(member[name].double(), alpha=weight)
        mean[name] = total.to(first.dtype)
    return mean
