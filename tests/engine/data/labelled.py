"""Data sets without images: all that a partition looks at."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from engine.data.dataset import Shares
from engine.data.partition import Partition, make_partition
from engine.data.spec import PartitionSpec

_SPEC: TypeAdapter[Any] = TypeAdapter(PartitionSpec)


@dataclass(frozen=True)
class Labelled:
    name: str
    labels: Tensor
    classes: int
    official_test: Tensor
    domains: Tensor | None = None
    domain_names: tuple[str, ...] = ()
    imported_shares: Shares = ()


def labelled(*sizes: int, test: int = 0, domains: tuple[str, ...] = ()) -> Labelled:
    """sizes[c] samples of class c, interleaved; the last `test` of each class are the official test part."""
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    number = torch.cat([torch.arange(size) for size in sizes])
    official = torch.cat([torch.arange(size) >= size - test for size in sizes])
    order = torch.argsort(number, stable=True)
    domain = number[order] % len(domains) if domains else None
    return Labelled("toy", labels[order], len(sizes), official[order], domain, domains)


def imported(dataset: Labelled, *shares: tuple[Tensor, Tensor]) -> Labelled:
    """The same set, brought in with these training and test samples of each client."""
    return replace(dataset, imported_shares=shares)


def spec(name: str, **fields: Any) -> Any:
    return _SPEC.validate_python({"name": name, **fields})


def partition(dataset: Labelled, clients: int, name: str, seed: int = 0, **fields: Any) -> Partition:
    return make_partition(dataset, spec(name, **fields), clients, seed)
