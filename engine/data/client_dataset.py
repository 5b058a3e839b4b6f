"""One client's samples as a view on the data set, handed out in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.data.augment import decide, prepare
from engine.data.datasets import Dataset
from engine.data.spec import Transform

EVALUATION_BATCH = 512


@dataclass(frozen=True)
class ClientDataset:
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
    ) -> "ClientDataset":
        labels = dataset.labels[index]
        if label_map is not None:
            labels = label_map[labels]
        return cls(dataset, index, labels, transform, augment, device)

    def __len__(self) -> int:
        return len(self.index)

    def subset(self, positions: Tensor) -> "ClientDataset":
        return ClientDataset(
            self.dataset, self.index[positions], self.labels[positions], self.transform, self.augment, self.device
        )

    def classes(self) -> list[int]:
        """The class ids that occur, ascending."""
        return [int(label) for label in torch.unique(self.labels)]

    def class_counts(self, classes: int) -> Tensor:
        """(L,): how many samples each class has."""
        return torch.bincount(self.labels, minlength=classes).to(self.device)

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W), float and channels last, and labels (B,); unaugmented."""
        return next(self._batches([positions]))

    def in_order(self, batch_size: int = EVALUATION_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order and unaugmented."""
        return self._batches(torch.split(torch.arange(len(self)), batch_size))

    def shuffled(
        self, batch_size: int, order: torch.Generator, augmentation: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch. A last batch of a single sample joins the one before it: batch norm cannot work on one."""
        return self._batches(split_batches(torch.randperm(len(self), generator=order), batch_size), augmentation)

    def _batches(
        self, batches: Sequence[Tensor], augmentation: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of these positions, augmented if there is a generator.

        Rows, labels and the random decisions of all of them travel to the images' device at once: a GPU would wait
        for every copy.
        """
        images, transform, name = self.dataset.images, self.transform, self.dataset.name
        positions = torch.cat(list(batches))
        columns = [torch.stack([self.index[positions], self.labels[positions]])]
        if self.augment and augmentation is not None:
            drawn = [decide(images, len(batch), transform, name, augmentation) for batch in batches]
            if decisions := [part for part in drawn if part is not None]:
                columns.append(torch.cat(decisions, dim=1))
        table = torch.cat(columns).to(images.device)
        for part in torch.split(table, [len(batch) for batch in batches], dim=1):
            rows, labels, decisions_of = part[0], part[1], part[2:] if len(part) > 2 else None
            batch = prepare(images[rows], transform, name, decisions_of)
            yield batch.to(self.device), labels.to(self.device)


def split_batches(order: Tensor, batch_size: int) -> list[Tensor]:
    batches = list(torch.split(order, batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
