"""P1: few classes at each client."""

from typing import Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import NOISE, Allocation, Flags, listing
from engine.data.partitions.rule import PartitionContext, PartitionRule


class Pathological(PartitionRule):
    """P1: every client owns exactly k classes, in unequal shares."""

    name: Literal["pathological"]
    classes_per_client: int = Field(2, ge=1, le=1000, description="Classes each client owns (k)")
    low: float = Field(
        0.4, ge=0, le=0.6, description="Lower end of U(low, 0.6), from which the raw shares of a class are drawn"
    )

    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """Clients in order pick k classes among those with the largest remaining quota ⌈kN/L⌉.

        A client receives ⌊n_c·weight⌋ samples of class c, of every pool with the same weight.
        """
        k = self.classes_per_client
        context.require_classes(k)
        quota = -(-k * context.clients // context.classes)
        weights = context.rng.uniform(self.low, 0.6, size=(quota, context.classes))
        owned = _pick_by_quota(quota, context.classes, context.clients, k, context.rng)
        used = owned.sum(axis=0)
        weights[np.arange(quota)[:, None] >= used] = 0  # unused weights are dropped, the rest renormalised
        weights /= np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
        turn = np.maximum(np.cumsum(owned, axis=0) - 1, 0)  # (N, L) how many clients took the class before
        share = np.where(owned, np.take_along_axis(weights, turn, axis=0), 0.0)
        counts = [np.floor(share * context.sizes(pool) + NOISE).astype(np.int64) for pool in context.pools]
        empty = np.flatnonzero(((counts[0] == 0) & owned).any(axis=1))
        if empty.size:
            context.notes.append(
                f"{listing('client', empty)}: the share of an own class is below one sample, so none of it"
            )
        unowned = np.flatnonzero(used == 0)
        if unowned.size:
            context.notes.append(
                f"no client owns {listing('class', unowned)}: {context.clients} clients own {k} classes each"
            )
        total = sum(pool.size for pool in context.pools)
        unused = total - sum(int(each.sum()) for each in counts)
        if unused:
            context.notes.append(f"{unused:,} of {total:,} samples belong to no client: shares are rounded down")
        return context.allocate(counts)


def _pick_by_quota(quota: int, classes: int, clients: int, k: int, rng: np.random.Generator) -> Flags:
    """(N, L) bool. A client's own picks leave the quotas of the other classes alone, so k picks in a row,
    each uniform among the largest, are the k largest with ties broken by lot."""
    remaining = np.full(classes, quota, dtype=np.int64)
    owned = np.zeros((clients, classes), dtype=np.bool_)
    for client in range(clients):
        picks = np.argsort(-(remaining + rng.random(classes)), kind="stable")[:k]
        owned[client, picks] = True
        remaining[picks] -= 1
    return owned
