"""The partition that came with the data."""

from typing import ClassVar, Literal

import numpy as np

from engine.data.allocation import Allocation, PartitionError
from engine.data.partitions.rule import PartitionContext, PartitionRule


class ImportedPartition(PartitionRule):
    """The clients and their training and test samples exactly as the imported folder holds them."""

    has_own_split: ClassVar[bool] = True

    name: Literal["imported"]

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Training and test samples as they were given, after a look at whether they can be meant."""
        shares, clients = context.imported_shares, context.clients
        if not shares:
            raise PartitionError(
                "partition.name",
                f"imported needs a data set that was imported together with its clients, but {context.name} has none; "
                "choose such a set or another partition",
            )
        if len(shares) != clients:
            raise PartitionError(
                "clients",
                f"the imported folder of {context.name} holds {len(shares):,} clients, so clients must be "
                f"{len(shares):,}, but got {clients:,}",
            )
        _check(context)
        return [
            Allocation(
                np.repeat(np.arange(clients), [len(share[part]) for share in shares]),
                np.concatenate([share[part].numpy() for share in shares]),
            )
            for part in range(2)
        ]


def _check(context: PartitionContext) -> None:
    """Every index names a sample of the set, and no client has one twice; a note where clients share some."""
    uses = np.zeros(context.labels.size, dtype=np.int64)
    for client, parts in enumerate(context.imported_shares):
        own = np.concatenate([part.numpy() for part in parts])
        if own.size and not 0 <= own.min() <= own.max() < uses.size:
            raise PartitionError(
                "partition.name",
                f"imported client {client} names samples {own.min()} to {own.max()}, but {context.name} has samples "
                f"0 to {uses.size - 1}; import the folder again",
            )
        if np.unique(own).size != own.size:
            raise PartitionError(
                "partition.name",
                f"imported client {client} has {own.size - np.unique(own).size:,} of its {own.size:,} samples twice, "
                "in one of its sets or in both; import a folder without repetitions",
            )
        uses[own] += 1
    if (uses > 1).any():
        context.notes.append(f"{int((uses > 1).sum()):,} samples belong to more than one client, as imported")
