"""What every partition may say, and what it allocates from."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from engine.data.allocation import Allocation, Ints, PartitionError, allocate, class_sizes
from engine.data.dataset import Shares
from engine.spec.frozen import Frozen

LabelMode = Literal["unified", "independent", "permuted"]
Split = Literal["stratified-80-20", "80-10-10", "authors", "random-75-25", "official"]

MAX_ALLOCATED = 20_000_000
"""Samples that all clients together may hold when they share samples: bounds the memory of a partition."""


@dataclass(frozen=True)
class PartitionContext:
    """What every partition starts from; pools are (pool,), (training, test) or (training, test, validation).

    A partition that has its own split is given no pools.
    """

    name: str  # of the data set
    labels: Ints
    classes: int
    clients: int
    rng: np.random.Generator
    pools: tuple[Ints, ...] = ()
    ratio: tuple[int, int] = (0, 1)  # test : training samples
    domains: Ints | None = None  # of every sample
    domain_names: tuple[str, ...] = ()
    imported_shares: Shares = ()  # training and test samples of each client of an imported folder
    notes: list[str] = field(default_factory=list)

    def sizes(self, pool: Ints) -> Ints:
        return class_sizes(pool, self.labels, self.classes)

    def allocate(self, counts: list[Ints]) -> list[Allocation]:
        """counts[j][i, c] samples of class c of pool j for client i."""
        return [allocate(pool, self.labels, each, self.rng) for pool, each in zip(self.pools, counts, strict=True)]

    def require_classes(self, number: int) -> None:
        """PartitionError where no client can own so many."""
        if number > self.classes:
            raise PartitionError(
                "partition.classes_per_client",
                f"a client cannot own {number} classes: {self.name} has {self.classes}; choose at most {self.classes}",
            )


class PartitionRule(Frozen):
    """The base of all partitions: their common parameters, and who gets what."""

    is_sized: ClassVar[bool] = False
    """Every client gets local_size training samples; test samples follow in the ratio of the split."""
    takes_any_class: ClassVar[bool] = False
    """Which classes a client has is left to chance: independent labels then map all ids."""
    has_own_split: ClassVar[bool] = False
    """Training and test samples of each client are given, and no split is made."""

    labels: LabelMode = Field(
        "unified",
        description="Global class ids, private ids 0..n-1 of the client's own classes (independent), "
        "or a private permutation of all ids (permuted)",
    )
    split: Split = Field("stratified-80-20", description="How each client's samples become training and test samples")
    seed: int | None = Field(
        None, ge=0, le=2**32 - 1, description="Seed of the partition; null takes the experiment's seed"
    )

    @abstractmethod
    def allocate(self, context: PartitionContext) -> list[Allocation]:
        """One allocation for each pool; PartitionError where the rules cannot be met."""
