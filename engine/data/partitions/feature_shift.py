"""P7: the same classes, other looks."""

from typing import Literal

from engine.data.allocation import Allocation, PartitionError
from engine.data.partitions.rule import PartitionContext, PartitionRule


class FeatureShift(PartitionRule):
    """P7: one client per domain, all classes everywhere, different looks."""

    name: Literal["feature-shift"]

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Client d holds domain d."""
        domains, names = context.domains, context.domain_names
        if domains is None:
            raise PartitionError(
                "partition.name",
                f"feature-shift needs a data set with domains, but {context.name} has none; use pacs or domainnet",
            )
        number = len(names) or int(domains.max(initial=-1)) + 1
        if context.clients != number:
            named = f" ({', '.join(names)})" if names else ""
            raise PartitionError(
                "clients",
                f"feature-shift gives each domain to one client: {context.name} has {number} domains{named}, "
                f"so clients must be {number}, but got {context.clients:,}",
            )
        return [Allocation(domains[pool], pool) for pool in context.pools]
