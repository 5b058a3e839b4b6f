"""P4: a few classes in equal amounts."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, PartitionError
from engine.data.partitions.rule import PartitionContext, PartitionRule
from engine.data.partitions.sized import allocate_sized


class Balanced(PartitionRule):
    """P4: every client has the same number of samples, split evenly over its classes."""

    is_sized: ClassVar[bool] = True

    name: Literal["balanced"]
    classes_per_client: int = Field(5, ge=1, le=1000, description="Classes each client owns")
    local_size: int = Field(500, ge=1, le=1_000_000, description="Training samples of each client")

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Every client draws k classes and takes local_size training samples, the remainder from the last class."""
        k = self.classes_per_client
        context.require_classes(k)
        if self.local_size < k:
            raise PartitionError(
                "partition.local_size",
                f"{self.local_size} samples cannot be spread over {k} classes; use at least {k}",
            )
        picks = np.argsort(context.rng.random((context.clients, context.classes)), axis=1, kind="stable")[:, :k]
        amounts = np.full(k, self.local_size // k, dtype=np.int64)
        amounts[-1] += self.local_size % k
        counts = np.zeros((context.clients, context.classes), dtype=np.int64)
        np.put_along_axis(counts, picks, np.broadcast_to(amounts, picks.shape), axis=1)
        return allocate_sized(context, counts, self.local_size)
