"""Who gets what: one function for each partition, from the piles of samples to the clients' hands."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from engine.data.dealing import (
    NOISE,
    Flags,
    Hand,
    Ints,
    PartitionError,
    apportion,
    class_sizes,
    cut,
    deal,
    fraction,
    listing,
)
from engine.data.spec import Balanced, Dirichlet, DirichletMix, Pathological, Practical, QuantitySkew

MAX_DRAWS = 1_000
# Repeating stops earlier where one draw is large, so that a hopeless partition is refused within seconds.
_MAX_NUMBERS = 10_000_000
_MIN_DRAWS = 10
MAX_DEALT = 20_000_000
"""Samples that all clients together may be dealt when they share samples: bounds the memory of a partition."""


@dataclass(frozen=True)
class Table:
    """What every partition starts from; piles are (pool,), (training, test) or (training, test, validation)."""

    name: str
    labels: Ints
    classes: int
    clients: int
    piles: tuple[Ints, ...]
    rng: np.random.Generator
    notes: list[str] = field(default_factory=list)

    def sizes(self, pile: Ints) -> Ints:
        return class_sizes(pile, self.labels, self.classes)

    def deal(self, counts: list[Ints]) -> list[Hand]:
        return [deal(pile, self.labels, each, self.rng) for pile, each in zip(self.piles, counts, strict=True)]


def pathological(table: Table, spec: Pathological) -> list[Hand]:
    """P1: clients in order pick k classes among those with the largest remaining quota ⌈kN/L⌉.

    A client receives ⌊n_c·weight⌋ samples of class c, of every pile with the same weight.
    """
    k = spec.classes_per_client
    _check_classes(table, k)
    quota = -(-k * table.clients // table.classes)
    weights = table.rng.uniform(spec.low, 0.6, size=(quota, table.classes))
    owned = _pick_by_quota(quota, table.classes, table.clients, k, table.rng)
    used = owned.sum(axis=0)
    weights[np.arange(quota)[:, None] >= used] = 0  # unused weights are dropped, the rest renormalised
    weights /= np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
    turn = np.maximum(np.cumsum(owned, axis=0) - 1, 0)  # (N, L) how many clients took the class before
    share = np.where(owned, np.take_along_axis(weights, turn, axis=0), 0.0)
    counts = [np.floor(share * table.sizes(pile) + NOISE).astype(np.int64) for pile in table.piles]
    empty = np.flatnonzero(((counts[0] == 0) & owned).any(axis=1))
    if empty.size:
        table.notes.append(f"{listing('client', empty)}: the share of an own class is below one sample, so none of it")
    unowned = np.flatnonzero(used == 0)
    if unowned.size:
        table.notes.append(f"no client owns {listing('class', unowned)}: {table.clients} clients own {k} classes each")
    total = sum(pile.size for pile in table.piles)
    unused = total - sum(int(each.sum()) for each in counts)
    if unused:
        table.notes.append(f"{unused:,} of {total:,} samples belong to no client: shares are rounded down")
    return table.deal(counts)


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


def _check_classes(table: Table, k: int) -> None:
    if k > table.classes:
        raise PartitionError(
            "partition.classes_per_client",
            f"a client cannot own {k} classes: {table.name} has {table.classes}; choose at most {table.classes}",
        )


def practical(table: Table, spec: Practical) -> list[Hand]:
    """P2: Dirichlet(γ) per class over clients, ≥ 10 samples each, then every class everywhere where possible."""
    counts = _dirichlet(table, spec.gamma, "partition.gamma", least=10.0, everywhere=True)
    scarce = np.flatnonzero(table.sizes(table.piles[0]) < table.clients)
    if scarce.size:
        table.notes.append(f"not every client holds {listing('class', scarce)}: fewer samples than clients")
    return table.deal(counts)


def dirichlet(table: Table, spec: Dirichlet) -> list[Hand]:
    """P3: Dirichlet(β) per class over clients, each holding at least min(40, n/N/2) samples."""
    least = min(40.0, table.piles[0].size / table.clients / 2)
    return table.deal(_dirichlet(table, spec.beta, "partition.beta", least))


def _dirichlet(table: Table, concentration: float, where: str, least: float, everywhere: bool = False) -> list[Ints]:
    """Class by class p ~ Dir over clients; a client that holds n/N already gets 0; repeat until all hold enough.

    Other piles follow the training samples: the same proportions, nothing where a client trains on nothing.
    """
    total = table.piles[0].size
    if least * table.clients > total:
        raise PartitionError(
            "clients",
            f"{table.clients:,} clients of at least {least:g} samples need {least * table.clients:,.0f}, but "
            f"{table.name} has {total:,} to deal; use at most {int(total / least):,} clients",
        )
    draws = int(np.clip(_MAX_NUMBERS / (table.clients * table.classes), _MIN_DRAWS, MAX_DRAWS))
    best = 0
    for _ in range(draws):
        first = _draw(table.sizes(table.piles[0]), table.clients, concentration, table.rng)
        smallest = int(first.sum(axis=1).min())
        best = max(best, smallest)
        if smallest < least:
            continue
        counts = [first, *(_follow(first, table.sizes(pile)) for pile in table.piles[1:])]
        if everywhere:
            for each in counts:
                _spread(each)
        # everybody needs a test sample, but may do without validation samples
        if first.sum(axis=1).min() >= least and all(each.sum(axis=1).min() >= 1 for each in counts[1:2]):
            return counts
    raise PartitionError(
        where,
        f"each of {table.clients:,} clients needs {np.ceil(least):g} of {total:,} samples and a test sample, but in "
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
    """Cut another pile's classes with the proportions that were really dealt."""
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


def iid(table: Table) -> list[Hand]:
    """P6: an equal random share; where the number does not divide, the first clients hold one more."""
    return [Hand(np.arange(pile.size) % table.clients, table.rng.permutation(pile)) for pile in table.piles]


def quantity_skew(table: Table, spec: QuantitySkew) -> list[Hand]:
    """Ten samples for everybody, the rest by sizes ~ Dir(β), and the class mix of the whole at each client."""
    least, pool = 10, table.piles[0].size
    if least * table.clients > pool:
        raise PartitionError(
            "clients",
            f"{table.clients:,} clients of at least {least} samples need {least * table.clients:,}, but {table.name} "
            f"has {pool:,} to deal; use at most {pool // least:,} clients",
        )
    mix = table.rng.dirichlet(np.full(table.clients, spec.beta))
    sizes = least + apportion(mix[None, :], pool - least * table.clients)[0]
    hands = []
    for pile in table.piles:
        share = apportion(sizes[None, :].astype(np.float64), pile.size)[0]
        hands.append(Hand(np.repeat(np.arange(table.clients), share), _mixed_order(table, pile)))
    return hands


def _mixed_order(table: Table, pile: Ints) -> Ints:
    """A random order in which every stretch has about the class mix of the whole pile."""
    shuffled = table.rng.permutation(pile)
    grouped = shuffled[np.argsort(table.labels[shuffled], kind="stable")]
    sizes = table.sizes(pile)
    place = np.arange(pile.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    moment = (place + table.rng.random(pile.size)) / np.repeat(sizes, sizes)
    return grouped[np.argsort(moment, kind="stable")]


def feature_shift(table: Table, domains: Ints | None, domain_names: tuple[str, ...]) -> list[Hand]:
    """P7: client d holds domain d."""
    if domains is None:
        raise PartitionError(
            "partition.name",
            f"feature-shift needs a data set with domains, but {table.name} has none; use pacs or domainnet",
        )
    number = len(domain_names) or int(domains.max(initial=-1)) + 1
    if table.clients != number:
        named = f" ({', '.join(domain_names)})" if domain_names else ""
        raise PartitionError(
            "clients",
            f"feature-shift gives each domain to one client: {table.name} has {number} domains{named}, "
            f"so clients must be {number}, but got {table.clients:,}",
        )
    return [Hand(domains[pile], pile) for pile in table.piles]


def balanced(table: Table, spec: Balanced, ratio: tuple[int, int]) -> list[Hand]:
    """P4: every client draws k classes and takes local_size training samples, the remainder from the last class."""
    k = spec.classes_per_client
    _check_classes(table, k)
    if spec.local_size < k:
        raise PartitionError(
            "partition.local_size",
            f"{spec.local_size} samples cannot be spread over {k} classes; use at least {k}",
        )
    picks = np.argsort(table.rng.random((table.clients, table.classes)), axis=1, kind="stable")[:, :k]
    amounts = np.full(k, spec.local_size // k, dtype=np.int64)
    amounts[-1] += spec.local_size % k
    counts = np.zeros((table.clients, table.classes), dtype=np.int64)
    np.put_along_axis(counts, picks, np.broadcast_to(amounts, picks.shape), axis=1)
    return _deal_sized(table, counts, spec.local_size, ratio)


def dirichlet_mix(table: Table, spec: DirichletMix, ratio: tuple[int, int]) -> list[Hand]:
    """P5: every client draws its class mix ~ Dir(α) and takes local_size training samples."""
    mixes = table.rng.dirichlet(np.full(table.classes, spec.alpha), size=table.clients)
    counts = apportion(mixes, spec.local_size)
    return _deal_sized(table, counts, spec.local_size, ratio)


def _deal_sized(table: Table, counts: Ints, local_size: int, ratio: tuple[int, int]) -> list[Hand]:
    """local_size counts training samples. Those of other piles follow in the given ratio."""
    if table.clients * local_size > MAX_DEALT:
        raise PartitionError(
            "partition.local_size",
            f"{table.clients:,} clients × {local_size:,} samples are {table.clients * local_size:,}, more than the "
            f"{MAX_DEALT:,} that are allowed; use at most {MAX_DEALT // table.clients:,}",
        )
    have = table.sizes(table.piles[0])
    if (counts > have).any():
        client, label = (int(each) for each in np.argwhere(counts > have)[0])
        raise PartitionError(
            "partition.local_size",
            f"client {client} would need {counts[client, label]:,} different training samples of class {label}, but "
            f"{table.name} has {have[label]:,} (local_size is {local_size:,}); lower local_size",
        )
    _note_repetition(table, counts, have, "")
    if len(table.piles) == 1:
        return table.deal([counts])
    share = fraction(counts, *ratio, rng=table.rng, at_least=1)
    wanted = [counts]
    for pile, purpose in zip(table.piles[1:], (" for testing", " for validation"), strict=False):
        have = table.sizes(pile)
        wanted.append(np.minimum(share, have))
        _note_repetition(table, wanted[-1], have, purpose)
    return table.deal(wanted)


def _note_repetition(table: Table, counts: Ints, have: Ints, purpose: str) -> None:
    again = np.flatnonzero(counts.sum(axis=0) > have)
    if again.size:
        verb = "was" if again.size == 1 else "were"
        table.notes.append(f"{listing('class', again)} {verb} dealt again from the start{purpose}")
