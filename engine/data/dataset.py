"""All samples of a data set, in memory or in a mapped file."""

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

Shares = tuple[tuple[Tensor, Tensor], ...]
"""Per client the indices of its training and of its test samples."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """All samples of a set; clients hold indices into it."""

    name: str
    images: Tensor  # (n, H, W, C) uint8, channels last; float32 (already normalised) only for imported float sets
    labels: Tensor  # (n,) int64, 0..classes-1
    classes: int
    official_test: Tensor  # (n,) bool: the publisher's own test part, all False where there is none
    domains: Tensor | None = None  # (n,) int64
    domain_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    imported_shares: Shares = ()  # the clients of an imported folder

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        _, height, width, channels = self.images.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)


def tensor(array: NDArray[Any]) -> Tensor:
    assert array.flags.writeable  # torch would let a read-only array be written all the same
    return torch.from_numpy(array)
