"""What the partitions with a given number of training samples for each client have in common."""

import numpy as np

from engine.data.allocation import Allocation, Ints, PartitionError, fraction, listing
from engine.data.partitions.rule import MAX_ALLOCATED, PartitionContext


def allocate_sized(context: PartitionContext, counts: Ints, local_size: int) -> list[Allocation]:
    """local_size counts training samples. Those of other pools follow in the ratio of the split."""
    if context.clients * local_size > MAX_ALLOCATED:
        raise PartitionError(
            "partition.local_size",
            f"{context.clients:,} clients × {local_size:,} samples are {context.clients * local_size:,}, more than the "
            f"{MAX_ALLOCATED:,} that are allowed; use at most {MAX_ALLOCATED // context.clients:,}",
        )
    have = context.sizes(context.pools[0])
    if (counts > have).any():
        client, label = (int(each) for each in np.argwhere(counts > have)[0])
        raise PartitionError(
            "partition.local_size",
            f"client {client} would need {counts[client, label]:,} different training samples of class {label}, but "
            f"{context.name} has {have[label]:,} (local_size is {local_size:,}); lower local_size",
        )
    _note_repetition(context, counts, have, "")
    if len(context.pools) == 1:
        return context.allocate([counts])
    share = fraction(counts, *context.ratio, rng=context.rng, at_least=1)
    wanted = [counts]
    for pool, purpose in zip(context.pools[1:], (" for testing", " for validation"), strict=False):
        have = context.sizes(pool)
        wanted.append(np.minimum(share, have))
        _note_repetition(context, wanted[-1], have, purpose)
    return context.allocate(wanted)


def _note_repetition(context: PartitionContext, counts: Ints, have: Ints, purpose: str) -> None:
    again = np.flatnonzero(counts.sum(axis=0) > have)
    if again.size:
        verb = "was" if again.size == 1 else "were"
        context.notes.append(f"{listing('class', again)} {verb} dealt again from the start{purpose}")
