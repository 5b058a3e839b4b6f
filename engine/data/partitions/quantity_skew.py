"""The same mix, other amounts."""

from typing import Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, Ints, PartitionError, apportion
from engine.data.partitions.rule import PartitionContext, PartitionRule


class QuantitySkew(PartitionRule):
    """The same class mix everywhere, client sizes from Dirichlet(β)."""

    name: Literal["quantity-skew"]
    beta: float = Field(
        0.5, gt=0, le=1000, description="Concentration β of the client sizes", json_schema_extra={"symbol": "β"}
    )

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Ten samples for everybody, the rest by sizes ~ Dir(β), and the class mix of the whole at each client."""
        least, total = 10, context.pools[0].size
        if least * context.clients > total:
            raise PartitionError(
                "clients",
                f"{context.clients:,} clients of at least {least} samples need {least * context.clients:,}, but "
                f"{context.name} has {total:,} to deal; use at most {total // least:,} clients",
            )
        mix = context.rng.dirichlet(np.full(context.clients, self.beta))
        sizes = least + apportion(mix[None, :], total - least * context.clients)[0]
        allocations = []
        for pool in context.pools:
            share = apportion(sizes[None, :].astype(np.float64), pool.size)[0]
            allocations.append(Allocation(np.repeat(np.arange(context.clients), share), _mixed_order(context, pool)))
        return allocations


def _mixed_order(context: PartitionContext, pool: Ints) -> Ints:
    """A random order in which every stretch has about the class mix of the whole pool."""
    shuffled = context.rng.permutation(pool)
    grouped = shuffled[np.argsort(context.labels[shuffled], kind="stable")]
    sizes = context.sizes(pool)
    place = np.arange(pool.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    moment = (place + context.rng.random(pool.size)) / np.repeat(sizes, sizes)
    return grouped[np.argsort(moment, kind="stable")]
