"""Dropout that draws from a generator of its own, because Python threads share torch's global one."""

import torch
from torch import Tensor, nn


class SeededDropout(nn.Module):
    """nn.Dropout, but the masks come from `generator`, which is set from outside before training."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout rate must be in [0, 1), but got {p}")
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError(
                f"dropout (rate {self.p}) in training mode needs its own generator, but none is set; "
                "call seed_dropout(model, generator) before training"
            )
        # drawn where the generator lives, so that a run on another device sees the same masks
        kept = torch.rand(x.shape, generator=self.generator, device=self.generator.device) >= self.p
        return x * kept.to(device=x.device, dtype=x.dtype) / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def seed_dropout(module: nn.Module, generator: torch.Generator | None) -> None:
    """Let every dropout inside `module` draw from `generator`, in the order of the forward pass."""
    for part in module.modules():
        if isinstance(part, SeededDropout):
            part.generator = generator
