"""Training, test and validation samples: where in the data set each come from, and how a client's own are cut."""

from dataclasses import dataclass

import numpy as np

from engine.data.allocation import Allocation, Flags, Ints, PartitionError, choose, fraction
from engine.data.partitions.rule import Split

# Test samples for every (training + test + validation) samples, and whether there is a validation part as large.
_POOLED: dict[Split, tuple[int, bool]] = {
    "stratified-80-20": (5, False),
    "80-10-10": (10, True),
    "random-75-25": (4, False),
}
_APART = "a validation part: tested in each round, never trained on"


@dataclass(frozen=True)
class Pools:
    """What the clients draw from: one pool that is cut at each client, or training, test and validation apart.

    ratio is test : training samples.
    """

    train: Ints
    test: Ints | None
    ratio: tuple[int, int]
    notes: tuple[str, ...] = ()
    validation: Ints | None = None


def make_pools(name: str, official_test: Flags, split: Split, rng: np.random.Generator) -> Pools:
    """The pool of all samples, or for `official` and `authors` the publisher's own two parts.

    `authors` cuts the official training part at random 4 : 1; the smaller part is for validation.
    """
    everything = np.arange(official_test.size)
    if split in _POOLED:
        test, validation = _POOLED[split]
        return Pools(everything, None, (1, test - 1 - validation))
    train, test_part = everything[~official_test], everything[official_test]
    if not train.size or not test_part.size:
        raise PartitionError(
            "partition.split",
            f"{split!r} needs the publisher's own training and test parts, but {name} has {train.size:,} training and "
            f"{test_part.size:,} test samples; use stratified-80-20, 80-10-10 or random-75-25",
        )
    if split == "official":
        return Pools(train, test_part, (test_part.size, train.size))
    kept = train.size * 4 // 5
    notes = (f"{train.size - kept:,} of {train.size:,} official training samples are {_APART}",)
    order = rng.permutation(train)
    return Pools(np.sort(order[:kept]), test_part, (test_part.size, kept), notes, np.sort(order[kept:]))


def split_pool(pools: Pools, labels: Ints, classes: int, split: Split, rng: np.random.Generator) -> Pools:
    """Cut the pool itself, as if it were one client, where training and test samples are allocated apart."""
    whole = Allocation(np.zeros_like(pools.train), pools.train)
    train, test, validation, notes = split_clients(whole, labels, 1, classes, split, rng)
    return Pools(
        train.index, test.index, pools.ratio, pools.notes + notes, None if validation is None else validation.index
    )


def split_clients(
    allocation: Allocation, labels: Ints, clients: int, classes: int, split: Split, rng: np.random.Generator
) -> tuple[Allocation, Allocation, Allocation | None, tuple[str, ...]]:
    """Cut every client's samples in training, test and validation samples; who has two or more gets the first two."""
    whole, validation = _POOLED[split]
    if split == "random-75-25":
        test = _random_quarter(allocation, clients, rng)
        return allocation.keep(~test), allocation.keep(test), None, ()
    wanted = fraction(allocation.counts(labels, clients, classes), 1, whole, rng, at_least=1)
    test = choose(allocation, labels, wanted, rng)
    train_part, test_part = allocation.keep(~test), allocation.keep(test)
    if not validation:
        return train_part, test_part, None, ()
    wanted = fraction(train_part.counts(labels, clients, classes), 1, whole - 1, rng, at_least=0)
    apart = choose(train_part, labels, wanted, rng)
    note = f"{int(apart.sum()):,} of {allocation.index.size:,} samples are {_APART}"
    return train_part.keep(~apart), test_part, train_part.keep(apart), (note,)


def _random_quarter(allocation: Allocation, clients: int, rng: np.random.Generator) -> Flags:
    """Not stratified: ⌊0.75·n⌋ random samples stay for training, the rest are test samples."""
    sizes = allocation.sizes(clients)
    # the same choice, blind to classes
    one_class = np.zeros(int(allocation.index.max(initial=0)) + 1, np.int64)
    return choose(allocation, one_class, (sizes - sizes * 3 // 4)[:, None], rng)
