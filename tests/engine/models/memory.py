"""Where a network's numbers lie in memory."""

import torch
from torch import nn


def lay_out(module: nn.Module, memory_format: torch.memory_format) -> None:
    """What `module.to(memory_format=…)` does: only tensors of four dimensions can lie in another order."""
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=memory_format)
