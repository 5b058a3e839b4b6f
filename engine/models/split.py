"""The shape every network here has: a body that makes features and a head that makes logits."""

from torch import Tensor, nn

Shape = tuple[int, int, int]
"""(channels, height, width) of one image."""


class SplitModel(nn.Module):
    """head(body(x)): body maps (B, C, H, W) to features (B, feature_dim), head maps those to logits (B, classes)."""

    def __init__(self, architecture: str, feature_dim: int, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.architecture = architecture
        self.feature_dim = feature_dim
        self.body = body
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def count(module: nn.Module) -> tuple[int, int]:
    """How many scalars a module has: (parameters, float buffers). Integer buffers are never shipped as scalars."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    buffers = sum(buffer.numel() for buffer in module.buffers() if buffer.is_floating_point())
    return parameters, buffers
