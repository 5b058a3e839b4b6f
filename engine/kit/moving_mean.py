"""Moving means of features over the batches of one round, as FedDBE and FedARC use them."""

from typing import Literal

import torch
from torch import Tensor


class MovingMeans:
    """m ← (1-κ)·sg(m) + κ·mean of the batch; the gradient flows through the current batch only."""

    def __init__(self, κ: float, start: Literal["batch", "zero"]) -> None:
        self.κ = κ
        self.start = start
        self.values: list[Tensor] = []

    def update(self, *anchored: Tensor) -> list[Tensor]:
        means = [features.mean(0) for features in anchored]
        if not self.values:
            self.values = [torch.zeros_like(m) if self.start == "zero" else m.detach() for m in means]
        current = [(1 - self.κ) * old + self.κ * new for old, new in zip(self.values, means, strict=True)]
        self.values = [m.detach() for m in current]
        return current
