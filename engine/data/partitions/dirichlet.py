"""P3: Dirichlet shares of every class."""

import heapq
from typing import Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, Ints, PartitionError, cut
from engine.data.partitions.rule import PartitionContext, PartitionRule

MAX_DRAWS = 1_000
# Repeating stops earlier where one draw is large, so that a hopeless partition is refused within seconds.
_MAX_NUMBERS = 10_000_000
_MIN_DRAWS = 10


class Dirichlet(PartitionRule):
    """P3: Dirichlet(β) per class over clients."""

    name: Literal["dirichlet"]
    beta: float = Field(
        0.1, gt=0, le=1000, description="Concentration β; smaller is more skewed", json_schema_extra={"symbol": "β"}
    )

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Each client holds at least min(40, n/N/2) samples."""
        least = min(40.0, context.pools[0].size / context.clients / 2)
        return context.allocate(dirichlet_counts(context, self.beta, "partition.beta", least))


def dirichlet_counts(
    context: PartitionContext, concentration: float, where: str, least: float, everywhere: bool = False
) -> list[Ints]:
    """Class by class p ~ Dir over clients; a client that holds n/N already gets 0; repeat until all hold enough.

    Other pools follow the training samples: the same proportions, nothing where a client trains on nothing.
    """
    total = context.pools[0].size
    if least * context.clients > total:
        raise PartitionError(
            "clients",
            f"{context.clients:,} clients of at least {least:g} samples need {least * context.clients:,.0f}, but "
            f"{context.name} has {total:,} to deal; use at most {int(total / least):,} clients",
        )
    draws = int(np.clip(_MAX_NUMBERS / (context.clients * context.classes), _MIN_DRAWS, MAX_DRAWS))
    best = 0
    for _ in range(draws):
        first = _draw(context.sizes(context.pools[0]), context.clients, concentration, context.rng)
        smallest = int(first.sum(axis=1).min())
        best = max(best, smallest)
        if smallest < least:
            continue
        counts = [first, *(_follow(first, context.sizes(pool)) for pool in context.pools[1:])]
        if everywhere:
            for each in counts:
                _spread(each)
        # everybody needs a test sample, but may do without validation samples
        if first.sum(axis=1).min() >= least and all(each.sum(axis=1).min() >= 1 for each in counts[1:2]):
            return counts
    raise PartitionError(
        where,
        f"each of {context.clients:,} clients needs {np.ceil(least):g} of {total:,} samples and a test sample, but in "
        f"{draws:,} draws of Dirichlet({concentration:g}) the smallest had at most {best:,}; use fewer clients "
        "or a larger value",
    )


def _draw(sizes: Ints, clients: int, concentration: float, rng: np.random.Generator) -> Ints:
    counts = np.zeros((sizes.size, clients), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    target = sizes.sum() / clients
    for label, size in enumerate(sizes):
        mix = rng.dirichlet(np.full(clients, concentration))
        mix[held >= target] = 0
        if not mix.any():  # all the weight fell on clients that are full
            mix[held < target] = 1
        if mix.any():
            counts[label] = cut(mix, int(size))
            held += counts[label]
    return counts.T.copy()


def _follow(counts: Ints, sizes: Ints) -> Ints:
    """Cut another pool's classes with the proportions that were really drawn."""
    columns = [
        cut(column.astype(np.float64), int(size)) if column.any() else np.zeros_like(column)
        for column, size in zip(counts.T, sizes, strict=True)
    ]
    return np.stack(columns, axis=1)


def _spread(counts: Ints) -> None:
    """One sample of each class for every client, taken from the largest holder of the moment, in place."""
    clients = counts.shape[0]
    for column in counts.T:
        missing = np.flatnonzero(column == 0)
        if not missing.size or column.sum() < clients:
            continue
        holders = [(-int(held), client) for client, held in enumerate(column) if held > 1]
        heapq.heapify(holders)
        for client in missing:
            negative, giver = holders[0]
            column[giver] -= 1
            column[client] = 1
            heapq.heapreplace(holders, (negative + 1, giver))
