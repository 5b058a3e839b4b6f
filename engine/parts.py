"""Small modules that methods add to a client."""

import torch
from torch import nn


class Vector(nn.Module):
    """One trainable vector, such as pFedAFM's α or FedARC's residuals."""

    def __init__(self, width: int, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.full((width,), value))


class Together(nn.Module):
    """Modules that are trained, clipped or sent as one; the parts stay where they are."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
