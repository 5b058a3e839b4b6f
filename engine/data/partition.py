"""Spread a data set over clients: a pure function of the data set, the parameters, the clients and the seed.

Who gets what is each partition's own file in engine/data/partitions; the rest is common to all and is here.

Three streams of random numbers (who gets what, training or test, label maps) are independent of each other: another
label mode leaves every sample where it is. Index lists ascend. No sample lies in the training set of one client and
the test set of the same or another one, and no validation sample lies in either. No two clients share a sample, except
where `balanced` and `dirichlet-mix` give an exhausted class again or test on whole classes, and where an imported
folder says so.

The splits:

* `stratified-80-20`, `80-10-10`, `random-75-25` pool the publisher's parts, allocate the pool and cut the share of each
  client.
* `official` and `authors` allocate the publisher's training and test parts apart, with the same proportions.
* `80-10-10` and `authors` have a validation part: a tenth of each client's share, and a fifth of the publisher's
  training part, allocated like the test part. A client may be left without a validation sample.
* `balanced` and `dirichlet-mix` allocate local_size training samples. Under a pooled split the pool is cut first, and
  test samples come from the other side in the ratio of the split and with the client's class mix, so that nobody trains
  on what another client is tested on. `authors` does the same with its own parts. Under `official` a client is tested
  on all official test samples of the classes it trains on.
* `imported` keeps the folder's own split.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.data.allocation import Allocation, Flags, Ints, PartitionError, listing
from engine.data.dataset import Shares
from engine.data.labels import label_maps
from engine.data.partitions import PartitionSpec
from engine.data.partitions.rule import MAX_ALLOCATED, PartitionContext
from engine.data.splits import make_pools, split_clients, split_pool
from engine.kit.rng import numpy_generator

__all__ = ["ClientShare", "LabelledSet", "Partition", "PartitionError", "make_partition"]


class LabelledSet(Protocol):
    """What a partition needs to know of a data set."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Tensor: ...
    @property
    def classes(self) -> int: ...
    @property
    def official_test(self) -> Tensor: ...
    @property
    def domains(self) -> Tensor | None: ...
    @property
    def domain_names(self) -> tuple[str, ...]: ...
    @property
    def imported_shares(self) -> Shares: ...


@dataclass(frozen=True, eq=False)
class ClientShare:
    """One client's samples, as ascending indices into the data set, and its own names for the classes."""

    train: Tensor
    test: Tensor
    label_map: Tensor | None
    """(L,) global id → local id, -1 where the client has none; None is the identity."""
    validation: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, eq=False)
class Partition:
    """Every client's share; classes is the width of the clients' heads."""

    shares: tuple[ClientShare, ...]
    classes: int
    fingerprint: str
    notes: tuple[str, ...]

    def counts(self, labels: Tensor) -> Tensor:
        """(N, L) training and test samples of each class at each client."""
        return self.train_counts(labels) + self.test_counts(labels)

    def train_counts(self, labels: Tensor) -> Tensor:
        return self._count([share.train for share in self.shares], labels)

    def test_counts(self, labels: Tensor) -> Tensor:
        return self._count([share.test for share in self.shares], labels)

    def majority_share(self, labels: Tensor) -> float:
        """Mean over the clients of the share that the most frequent class has of a client's test set."""
        counts = self.test_counts(labels)
        return (counts.amax(1).double() / counts.sum(1)).mean().item()

    def _count(self, lists: list[Tensor], labels: Tensor) -> Tensor:
        first = self.shares[0].label_map
        classes = self.classes if first is None else first.numel()
        owner = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([each.numel() for each in lists]))
        cells = owner * classes + labels[torch.cat(lists)]
        return torch.bincount(cells, minlength=len(lists) * classes).reshape(len(lists), classes)


def make_partition(dataset: LabelledSet, spec: PartitionSpec, clients: int, seed: int) -> Partition:
    """The shares of `clients` clients; raises PartitionError where the rules cannot be met.

    seed is the partition's own (`ExperimentSpec.partition_seed`).
    """
    labels = dataset.labels.numpy().astype(np.int64)
    notes: list[str] = []
    context = PartitionContext(
        dataset.name,
        labels,
        dataset.classes,
        clients,
        numpy_generator(seed, "partition", "deal"),
        domains=None if dataset.domains is None else dataset.domains.numpy().astype(np.int64),
        domain_names=dataset.domain_names,
        imported_shares=dataset.imported_shares,
        notes=notes,
    )
    if spec.has_own_split:
        parts = _as_given(context, spec)
    else:
        official_test = dataset.official_test.numpy().astype(np.bool_)
        parts = _split(context, spec, official_test, numpy_generator(seed, "partition", "split"))
    train, test, validation, owned = parts
    _check_sizes(train, test)
    maps, width = label_maps(spec.labels, owned, spec.takes_any_class, numpy_generator(seed, "partition", "labels"))
    if maps is not None:  # a class of which a client has validation samples alone has no id there
        validation = [own[ids[labels[own]] >= 0] for own, ids in zip(validation, maps, strict=True)]
    tensors = (_tensors(train), _tensors(test), _tensors(validation))
    shares = tuple(
        ClientShare(own, tested, None if maps is None else torch.from_numpy(maps[client]), validated)
        for client, (own, tested, validated) in enumerate(zip(*tensors, strict=True))
    )
    return Partition(shares, width, _fingerprint(shares), tuple(notes))


Lists = list[Ints]
"""One ascending index list for each client."""

Parts = tuple[Lists, Lists, Lists, Flags]
"""Training, test and validation lists, and which classes each client trains or is tested on (N, L)."""


def _as_given(context: PartitionContext, spec: PartitionSpec) -> Parts:
    train, test = spec.allocate(context)
    return _parts(context, train, test, None)


def _split(context: PartitionContext, spec: PartitionSpec, official_test: Flags, rng: np.random.Generator) -> Parts:
    labels, classes, clients = context.labels, context.classes, context.clients
    pools = make_pools(context.name, official_test, spec.split, rng)
    if not spec.is_sized:
        _check_enough(context.name, pools.train, pools.test, clients)
    elif pools.test is None:
        pools = split_pool(pools, labels, classes, spec.split, rng)
    context.notes.extend(pools.notes)

    whole_classes = spec.is_sized and spec.split == "official"
    apart = () if whole_classes else (pools.test, pools.validation)
    drawn_from = (pools.train, *(pool for pool in apart if pool is not None))
    train, *rest = spec.allocate(replace(context, pools=drawn_from, ratio=pools.ratio))

    if pools.test is None:
        train, test, validation, more = split_clients(train, labels, clients, classes, spec.split, rng)
        context.notes.extend(more)
        return _parts(context, train, test, validation)
    if whole_classes:
        owned = train.counts(labels, clients, classes) > 0
        return _lists(train, clients), _class_lists(pools.test, labels, owned), _nothing(clients), owned
    return _parts(context, train, rest[0], rest[1] if len(rest) > 1 else None)


def _parts(context: PartitionContext, train: Allocation, test: Allocation, validation: Allocation | None) -> Parts:
    labels, classes, clients = context.labels, context.classes, context.clients
    owned = train.counts(labels, clients, classes) + test.counts(labels, clients, classes) > 0
    kept = _nothing(clients) if validation is None else _lists(validation, clients)
    return _lists(train, clients), _lists(test, clients), kept, owned


def _class_lists(pool: Ints, labels: Ints, owned: Flags) -> Lists:
    """All samples of the pool that belong to a client's classes; clients of the same classes share one list."""
    sets, which = np.unique(owned, axis=0, return_inverse=True)
    lengths = sets @ np.bincount(labels[pool], minlength=owned.shape[1])
    if lengths.sum() > MAX_ALLOCATED:
        raise PartitionError(
            "partition.split",
            f"testing {len(owned):,} clients on whole classes needs {lengths.sum():,} test indices, more than the "
            f"{MAX_ALLOCATED:,} that are allowed; use fewer clients or another split than official",
        )
    lists = [pool[each[labels[pool]]] for each in sets]
    return [lists[each] for each in which.ravel()]


def _check_enough(name: str, train: Ints, test: Ints | None, clients: int) -> None:
    """One training and one test sample each, before anything is drawn."""
    if test is None:
        most, rule, have = train.size // 2, "two samples", f"{train.size:,} samples"
    else:
        most, rule = min(train.size, test.size), "a training and a test sample"
        have = f"{train.size:,} training and {test.size:,} test samples"
    if most < clients:
        raise PartitionError(
            "clients",
            f"each of {clients:,} clients needs {rule}, but {name} has {have}; use at most {most:,} clients",
        )


def _check_sizes(train: Lists, test: Lists) -> None:
    sizes = np.array([[own.size for own in side] for side in (train, test)])
    poor = np.flatnonzero((sizes == 0).any(axis=0))
    if poor.size:
        client = poor[0]
        raise PartitionError(
            "clients",
            f"each of {len(train):,} clients needs a training and a test sample, but {listing('client', poor)} would "
            f"not have both (client {client}: {sizes[0, client]:,} training, {sizes[1, client]:,} test); use "
            "fewer clients or a less skewed partition",
        )


def _lists(allocation: Allocation, clients: int) -> Lists:
    """Ascending lists; one sort of client-and-index numbers is much faster than a sort for each client."""
    span = int(allocation.index.max(initial=0)) + 1
    index = np.sort(allocation.owner * span + allocation.index) % span
    return np.split(index, np.cumsum(allocation.sizes(clients))[:-1])


def _nothing(clients: int) -> Lists:
    return [np.empty(0, dtype=np.int64)] * clients


def _tensors(lists: Lists) -> list[Tensor]:
    """Lists that several clients share become one tensor."""
    made = {id(own): torch.from_numpy(own) for own in {id(own): own for own in lists}.values()}
    return [made[id(own)] for own in lists]


def _fingerprint(shares: tuple[ClientShare, ...]) -> str:
    """SHA-256 over the digests of every client's training and test lists and label map, in client order.

    Validation samples follow from the same spec and seed, and what is stored was named without them.
    """
    digests: dict[int, bytes] = {}
    total = hashlib.sha256()
    for share in shares:
        for part in (share.train, share.test, share.label_map):
            if id(part) not in digests:
                data = b"identity" if part is None else part.numpy().astype("<i8").tobytes()
                digests[id(part)] = hashlib.sha256(data).digest()
            total.update(digests[id(part)])
    return total.hexdigest()
