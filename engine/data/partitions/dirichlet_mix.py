"""P5: a mix of its own for every client, in equal amounts."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, apportion
from engine.data.partitions.rule import PartitionContext, PartitionRule
from engine.data.partitions.sized import allocate_sized


class DirichletMix(PartitionRule):
    """P5: every client draws its own class mix from Dirichlet(α) and has the same number of samples."""

    is_sized: ClassVar[bool] = True
    takes_any_class: ClassVar[bool] = True

    name: Literal["dirichlet-mix"]
    alpha: float = Field(
        0.5, gt=0, le=1000, description="Concentration α; smaller is more skewed", json_schema_extra={"symbol": "α"}
    )
    local_size: int = Field(500, ge=1, le=1_000_000, description="Training samples of each client")

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Every client draws its class mix ~ Dir(α) and takes local_size training samples."""
        mixes = context.rng.dirichlet(np.full(context.classes, self.alpha), size=context.clients)
        return allocate_sized(context, apportion(mixes, self.local_size), self.local_size)
