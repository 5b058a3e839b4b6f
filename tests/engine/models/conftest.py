"""Networks without memory, shared by the tests that only look at shapes."""

from collections.abc import Callable
from functools import cache

import pytest
import torch

from engine.models import Shape, SplitModel, build


@pytest.fixture(scope="session")
def weightless() -> Callable[..., SplitModel]:
    """Build on the meta device, in evaluation mode, once per network."""

    @cache
    def on_meta(
        architecture: str, shape: Shape = (3, 32, 32), classes: int = 10, feature_dim: int | None = None
    ) -> SplitModel:
        with torch.device("meta"):
            return build(architecture, shape, classes, feature_dim).eval()

    return on_meta
