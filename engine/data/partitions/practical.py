"""P2: Dirichlet shares, and a little of every class everywhere."""

from typing import Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, listing
from engine.data.partitions.dirichlet import dirichlet_counts
from engine.data.partitions.rule import PartitionContext, PartitionRule


class Practical(PartitionRule):
    """P2: Dirichlet(γ) per class over clients, every client holding every class where that is possible."""

    name: Literal["practical"]
    gamma: float = Field(
        0.5, gt=0, le=1000, description="Concentration γ; smaller is more skewed", json_schema_extra={"symbol": "γ"}
    )

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """At least 10 samples each, then every class everywhere where possible."""
        counts = dirichlet_counts(context, self.gamma, "partition.gamma", least=10.0, everywhere=True)
        scarce = np.flatnonzero(context.sizes(context.pools[0]) < context.clients)
        if scarce.size:
            context.notes.append(f"not every client holds {listing('class', scarce)}: fewer samples than clients")
        return context.allocate(counts)
