"""Truncated SVD of what travels: of every weight the leading singular directions that carry its energy."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from engine.kit.tensors import Tensors, join_groups, split_groups

Slices = Literal["matrix", "kernels"]
"""A convolution as one matrix, out × in·height·width, or as a stack of height × width kernels with a common rank."""


def kept_rank(singular: Tensor, energy: float) -> int:
    """The smallest r ≥ 1 with Σ_{i≤r} σ_i² ≥ energy·Σ σ_i², or all; σ (…, k) descending, summed over a stack."""
    squares = singular.double().square().reshape(-1, singular.shape[-1]).sum(0)
    carried = squares.cpu().cumsum(0)  # a GPU adds up in any order, and a bit may decide the rank
    reached = (carried >= energy * carried[-1]).nonzero()
    return int(reached[0]) + 1 if len(reached) else len(squares)


def compress(tensors: Mapping[str, Tensor], energy: float, slices: Slices = "matrix") -> Tensors:
    """A message with u, σ and v of every weight, or the weight itself where these are not shorter.

    Vectors and integers are sent as they are, and so is everything at an energy of 1.
    """
    return join_groups({name: _factors(tensor, energy, slices) for name, tensor in tensors.items()})


def decompress(message: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Tensors:
    """The tensors that a message stands for, in the shapes of `like`."""
    groups = split_groups(message)
    return {name: _product(parts).reshape(like[name].shape) for name, parts in groups.items()}


def svd_flops(tensors: Mapping[str, Tensor], energy: float, slices: Slices = "matrix") -> int:
    """About 4·m·n·min(m, n) for every matrix that compress decomposes."""
    shapes = [_stack(tensor, slices).shape for tensor in tensors.values() if _is_decomposed(tensor, energy)]
    return sum(4 * b * m * n * min(m, n) for b, m, n in shapes)


def _is_decomposed(tensor: Tensor, energy: float) -> bool:
    """A weight that is no longer finite is sent as it is: the next loss will say so."""
    return energy < 1 and tensor.dim() > 1 and tensor.is_floating_point() and bool(tensor.isfinite().all())


def _stack(tensor: Tensor, slices: Slices) -> Tensor:
    """(b, m, n): the matrices a weight is seen as."""
    if slices == "kernels" and tensor.dim() == 4:
        return tensor.flatten(0, 1)
    return tensor.flatten(1).unsqueeze(0)


def _factors(tensor: Tensor, energy: float, slices: Slices) -> Tensors:
    if _is_decomposed(tensor, energy):
        stack = _stack(tensor, slices)
        u, s, v = torch.linalg.svd(stack, full_matrices=False)
        r, (_, m, n) = kept_rank(s, energy), stack.shape
        if r * (m + n + 1) < m * n:
            return {"u": u[..., :r].clone(), "s": s[..., :r].clone(), "v": v[..., :r, :].clone()}
    return {"dense": tensor.clone()}


def _product(parts: Mapping[str, Tensor]) -> Tensor:
    if "dense" in parts:
        return parts["dense"].clone()
    return parts["u"] * parts["s"].unsqueeze(-2) @ parts["v"]
