"""SGD with torch's own arithmetic, without torch's optimiser classes.

The first use of torch.optim.Optimizer imports torch's compiler, about two seconds of every job that never compiles. The
function behind torch.optim.SGD, `torch.optim.sgd.sgd`, does not; the numbers are the same to the bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim.sgd import sgd


@dataclass
class Group:
    """Parameters that share their settings, with their momentum."""

    parameters: Sequence[Tensor]
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    buffers: dict[int, Tensor | None] = field(default_factory=dict)  # position to momentum


class SGD:
    """Steps down the gradients that backward() left at the parameters."""

    def __init__(self, groups: Sequence[Group], *, fused: bool | None = None) -> None:
        """`fused` None: the implementation that torch takes by default."""
        self.groups = groups
        self.fused = fused

    def zero_grad(self) -> None:
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.groups:
            reached = [position for position, p in enumerate(group.parameters) if p.grad is not None]
            gradients = [group.parameters[position].grad for position in reached]
            momenta = [group.buffers.get(position) for position in reached]
            sgd(
                [group.parameters[position] for position in reached],
                [gradient for gradient in gradients if gradient is not None],
                momenta,
                fused=self.fused,
                weight_decay=group.weight_decay,
                momentum=group.momentum,
                lr=group.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            group.buffers.update(zip(reached, momenta, strict=True))
