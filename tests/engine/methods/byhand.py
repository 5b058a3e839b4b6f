"""Local work written out from the papers' formulas: apart from a client's batches, nothing of the engine is used."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from engine.kit.contract import Client
from engine.kit.training import shuffled_batches

TRAINING: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "lr": 0.05,
    "momentum": 0.9,
    "weight_decay": 0.01,
    "clip": 0.5,  # often reached, so that it matters which tensors are clipped together
}


@dataclass
class Unit:
    """Tensors that are clipped together and updated by v ← m·v + (g + d·w), w ← w - lr·v."""

    weights: Sequence[Tensor]
    lr: float = 0.05
    momentum: float = 0.9
    decay: float = 0.01
    clip: float = 0.5
    velocity: list[Tensor] = field(default_factory=list)


def unit(*modules: nn.Module, **settings: Any) -> Unit:
    return Unit([weight for module in modules for weight in module.parameters()], **settings)


def descend(loss: Tensor, *units: Unit) -> None:
    """One step of all units with the gradients of one loss."""
    weights = [weight for each in units for weight in each.weights]
    gradients: list[Tensor | None] = list(torch.autograd.grad(loss, weights, allow_unused=True))
    for each in units:
        own = [gradients.pop(0) for _ in each.weights]
        length = torch.stack([g.square().sum() for g in own if g is not None]).sum().sqrt().item()
        scale = min(1.0, each.clip / (length + 1e-6))
        each.velocity = each.velocity or [torch.zeros_like(weight) for weight in each.weights]
        for weight, gradient, v in zip(each.weights, own, each.velocity, strict=True):
            if gradient is not None:
                v.mul_(each.momentum).add_(scale * gradient + each.decay * weight.detach())
                weight.data.sub_(each.lr * v)


def trainable(module: nn.Module) -> Any:
    """A copy in training mode; of type Any, as its parts have names of their own."""
    return copy.deepcopy(module).train().requires_grad_(True)


def batches(client: Client, epochs: int = 2) -> Iterator[tuple[Tensor, Tensor]]:
    return shuffled_batches(client, client.train, range(epochs))


def everything(client: Client) -> tuple[Tensor, Tensor]:
    return client.train.batch(torch.arange(len(client.train)))


def alike(module: nn.Module, expected: nn.Module) -> bool:
    """Whether all tensors agree up to the rounding of a few steps."""
    pairs = zip(module.state_dict().values(), expected.state_dict().values(), strict=True)
    return all(torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-6) for a, b in pairs)
