"""One client's samples as a view on the data set, handed out in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.data.augment import prepare
from engine.data.datasets import Dataset
from engine.data.spec import Transform

EVALUATION_BATCH = 512


@dataclass(frozen=True)
class Samples:
    """Rows of the data set with the labels as this client knows them."""

    dataset: Dataset
    index: Tensor  # (n,) rows of the data set
    labels: Tensor  # (n,) local class ids
    transform: Transform
    augment: bool
    device: torch.device

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        index: Tensor,
        label_map: Tensor | None,
        *,
        transform: Transform,
        augment: bool,
        device: torch.device,
    ) -> "Samples":
        labels = dataset.labels[index]
        if label_map is not None:
            labels = label_map[labels]
        return cls(dataset, index, labels, transform, augment, device)

    def __len__(self) -> int:
        return len(self.index)

    def subset(self, positions: Tensor) -> "Samples":
        return Samples(
            self.dataset, self.index[positions], self.labels[positions], self.transform, self.augment, self.device
        )

    def classes(self) -> list[int]:
        """The class ids that occur, ascending."""
        return [int(label) for label in torch.unique(self.labels)]

    def class_counts(self, classes: int) -> Tensor:
        """(L,): how many samples each class has."""
        return torch.bincount(self.labels, minlength=classes).to(self.device)

    def batch(self, positions: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W), float and channels last, and labels (B,); augmented only when a generator is given."""
        training = self.augment and generator is not None
        rows = self.index[positions].to(self.dataset.images.device)
        images = prepare(
            self.dataset.images[rows],
            self.transform,
            self.dataset.name,
            training=training,
            generator=generator if training else None,
        )
        return images.to(self.device), self.labels[positions].to(self.device)

    def in_order(self, batch_size: int = EVALUATION_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order and unaugmented."""
        for positions in torch.split(torch.arange(len(self)), batch_size):
            yield self.batch(positions)

    def shuffled(
        self, batch_size: int, order: torch.Generator, augmentation: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch. A last batch of a single sample joins the one before it: batch norm cannot work on one."""
        for positions in split_batches(torch.randperm(len(self), generator=order), batch_size):
            yield self.batch(positions, augmentation)


def split_batches(order: Tensor, batch_size: int) -> list[Tensor]:
    batches = list(torch.split(order, batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
