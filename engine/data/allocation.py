"""How samples are allocated to clients: whole arrays at a time, never sample by sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# A share that is a whole number up to rounding noise counts as that number when it is rounded down.
NOISE = 1e-9


class PartitionError(ValueError):
    """The partition cannot be made: the field to change, and why, with the numbers."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Allocation:
    """What all clients hold of one pool: sample index[j] belongs to client owner[j]."""

    owner: Ints
    index: Ints

    def keep(self, chosen: Flags) -> "Allocation":
        return Allocation(self.owner[chosen], self.index[chosen])

    def counts(self, labels: Ints, clients: int, classes: int) -> Ints:
        """(N, L) samples of each class at each client."""
        cells = self.owner * classes + labels[self.index]
        return np.bincount(cells, minlength=clients * classes).astype(np.int64).reshape(clients, classes)

    def sizes(self, clients: int) -> Ints:
        return np.bincount(self.owner, minlength=clients).astype(np.int64)


def class_sizes(pool: Ints, labels: Ints, classes: int) -> Ints:
    """(L,) samples of each class in a pool."""
    return np.bincount(labels[pool], minlength=classes).astype(np.int64)


def allocate(pool: Ints, labels: Ints, counts: Ints, rng: np.random.Generator) -> Allocation:
    """Give counts[i, c] samples of class c to client i, clients in order, each class in one random order.

    A class that is asked for more samples than the pool has is given again from the start of its order.
    """
    clients, classes = counts.shape
    shuffled = rng.permutation(pool)
    grouped = shuffled[np.argsort(labels[shuffled], kind="stable")]
    have = class_sizes(pool, labels, classes)
    asked = counts.sum(axis=0)
    owner = np.repeat(np.tile(np.arange(clients), classes), counts.T.ravel())
    position = np.arange(owner.size) - np.repeat(np.cumsum(asked) - asked, asked)
    first = np.cumsum(have) - have
    index = grouped[np.repeat(first, asked) + position % np.repeat(np.maximum(have, 1), asked)]
    return Allocation(owner, index)


def cut(weights: Floats, total: int) -> Ints:
    """Split `total` in consecutive runs proportional to the weights; every sample is given away."""
    edges = np.cumsum(weights)
    # dividing by the last edge makes it exactly 1, so that trailing weights of 0 receive nothing
    ends = np.floor(edges / edges[-1] * total + NOISE).astype(np.int64)
    runs: Ints = np.diff(ends, prepend=0)
    return runs


def apportion(weights: Floats, total: int) -> Ints:
    """(N, L) → (N, L): each row sums to `total`, by largest remainder; ties go to the lower column."""
    exact = weights / weights.sum(axis=1, keepdims=True) * total
    whole = np.floor(exact + NOISE).astype(np.int64)
    missing = total - whole.sum(axis=1, keepdims=True)
    shares: Ints = whole + (_ranks(whole - exact) < missing)
    return shares


def fraction(counts: Ints, part: int, whole: int, rng: np.random.Generator, at_least: int) -> Ints:
    """About part/whole of every row of counts (N, L), exact in the row's sum, within one sample in each cell.

    What rounding leaves over goes first to cells of two or more samples, so that a class's only sample stays
    where it is as long as possible; then to larger remainders, then to larger cells, then by lot.
    """
    sizes = counts.sum(axis=1, keepdims=True)
    target = np.maximum((2 * sizes * part + whole) // (2 * whole), np.minimum(at_least, sizes))
    floor, remainder = counts * part // whole, counts * part % whole
    missing = target - floor.sum(axis=1, keepdims=True)
    urgency = np.where(counts >= 2, 2, 0) + np.where(remainder > 0, 1, 0)
    # cells above one sample without a remainder still come before a class's only sample
    key = (urgency * float(whole) + remainder) * (float(counts.max(initial=0)) + 1) + counts
    chosen: Ints = floor + ((_ranks(-(key + rng.random(counts.shape))) < missing) & (counts > 0))
    return chosen


def choose(allocation: Allocation, labels: Ints, wanted: Ints, rng: np.random.Generator) -> Flags:
    """Mark wanted[i, c] random samples of class c at client i."""
    cells = allocation.owner * wanted.shape[1] + labels[allocation.index]
    order = np.lexsort((rng.random(cells.size), cells))
    held = np.bincount(cells, minlength=wanted.size)
    rank = np.arange(cells.size) - np.repeat(np.cumsum(held) - held, held)
    chosen = np.zeros(cells.size, dtype=np.bool_)
    chosen[order] = rank < np.repeat(wanted.ravel(), held)
    return chosen


def _ranks(keys: Floats) -> Ints:
    """(N, L) place of each cell when its row is sorted in ascending order; equal keys in column order."""
    order = np.argsort(keys, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(keys.shape[1])[None, :], axis=1)
    return ranks


def listing(kind: str, ids: Ints) -> str:
    """'class 3', 'classes 1, 2 and 5', 'clients 0, 1, 2 and 40 more'."""
    plural = {"class": "classes", "client": "clients"}[kind]
    if ids.size == 1:
        return f"{kind} {ids[0]}"
    if ids.size <= 8:
        return f"{plural} {', '.join(str(i) for i in ids[:-1])} and {ids[-1]}"
    return f"{plural} {', '.join(str(i) for i in ids[:6])} and {ids.size - 6} more"
