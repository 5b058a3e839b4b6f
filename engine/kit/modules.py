"""Small modules that methods add to a client."""

import torch
from torch import Tensor, nn


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


class Shadow(nn.Module):
    """A tensor beside every parameter of a module, zero at first and never trained, such as SCAFFOLD's c_i."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        for name, parameter in module.named_parameters():
            self.register_buffer(name.replace(".", "/"), torch.zeros_like(parameter, requires_grad=False))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors themselves under the names of the parameters."""
        return {name.replace("/", "."): tensor for name, tensor in self.named_buffers()}
