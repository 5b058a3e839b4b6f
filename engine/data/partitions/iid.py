"""P6: no skew at all."""

from typing import Literal

import numpy as np

from engine.data.allocation import Allocation
from engine.data.partitions.rule import PartitionContext, PartitionRule


class Iid(PartitionRule):
    """P6: an equal random share of everything."""

    name: Literal["iid"]

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Where the number does not divide, the first clients hold one more."""
        return [
            Allocation(np.arange(pool.size) % context.clients, context.rng.permutation(pool)) for pool in context.pools
        ]
