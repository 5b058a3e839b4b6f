"""The only door for the web: what can be chosen, whether a spec can run, and how a partition looks."""

from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from engine.algorithm import Setup
from engine.algorithms import REGISTRY
from engine.data import datasets
from engine.data.datasets import DataError
from engine.data.partition import PartitionError
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.frozen import Frozen
from engine.models import FAMILIES, build, count
from engine.models import check as check_architecture
from engine.run import describe, set_up
from engine.spec import PRESETS, ExperimentSpec, Problem, SpecError

_COUNTED_AT = {"shape": (3, 32, 32), "classes": 10}


def catalogue(data_root: Path | None) -> dict[str, Any]:
    """Every id a spec may name, with what people and forms need to know about it."""
    return {
        "algorithms": [
            {
                "id": name,
                "title": algorithm.method.title,
                "paper": algorithm.method.paper,
                "authors": algorithm.method.authors,
                "venue": algorithm.method.venue,
                "year": algorithm.method.year or None,
                "link": algorithm.method.link,
                "shares": algorithm.method.shares,
                "family": algorithm.method.family,
                "heterogeneous": algorithm.method.heterogeneous,
                "topologies": sorted(algorithm.topologies),
                "parameters": algorithm.Params.model_json_schema(),
            }
            for name, algorithm in REGISTRY.items()
        ],
        "datasets": _datasets(data_root),
        "partitions": [
            {"id": name, "title": (member.__doc__ or "").strip(), "parameters": member.model_json_schema()}
            for name, member in _members(PartitionSpec)
        ],
        "models": [
            {
                "id": family.name,
                "title": family.title,
                "feature_dim": family.feature_dim,
                "members": [{"id": member, **_parameters(member, family.feature_dim)} for member in family.members],
            }
            for family in FAMILIES.values()
        ],
        "presets": PRESETS,
        "spec": ExperimentSpec.model_json_schema(),
    }


Seen = dict[tuple[str, str, int, int], tuple[tuple[int, int, int], int, tuple[int, ...]]]
"""Shape, classes and amounts of training samples, by data set, partition, clients and partition seed."""


def check(spec: ExperimentSpec, data_root: Path | None, seen: Seen | None = None) -> None:
    """Raise SpecError if the spec cannot run here: data missing, no such partition, method not applicable.

    `seen` is for many specs one after the other: a partition that they share is made once.
    """
    algorithm = REGISTRY[spec.algorithm.name]
    unsupported = []
    if spec.topology not in algorithm.topologies:
        known = " or ".join(repr(topology) for topology in sorted(algorithm.topologies))
        message = f"{algorithm.method.title} runs with {known}, but got {spec.topology!r}"
        unsupported.append(Problem("topology", message, spec.topology, "not_applicable"))
    if spec.models.pretrained is not None:
        message = f"{spec.models.pretrained!r} is not supported yet; use None"
        unsupported.append(Problem("models.pretrained", message, spec.models.pretrained))
    if unsupported:
        raise SpecError(tuple(unsupported))
    try:
        setup = _describe(spec, data_root, {} if seen is None else seen)
    except DataError as error:
        raise SpecError((Problem("dataset.name", str(error), spec.dataset.name),)) from None
    except PartitionError as error:
        raise SpecError((Problem(error.field, str(error), _value(spec, error.field)),)) from None
    for architecture in dict.fromkeys(setup.architectures):
        try:
            check_architecture(architecture, setup.shape, setup.classes, setup.feature_dim)
        except ValueError as error:
            raise SpecError((Problem("models.family", str(error), spec.models.family),)) from None
    for client, samples in enumerate(setup.samples):
        if samples == 1 and _normalises_batches(setup.architectures[client]):
            raise SpecError(
                (
                    Problem(
                        "partition",
                        f"client {client} has a single training sample, but its {setup.architectures[client]} uses "
                        "batch norm and needs two: take fewer clients or a family without batch norm",
                        spec.partition.name,
                    ),
                )
            )
    reason = algorithm(spec.algorithm, setup).why_not()
    if reason is not None:
        raise SpecError((Problem("algorithm.name", reason, spec.algorithm.name, "not_applicable"),))


def _describe(spec: ExperimentSpec, data_root: Path | None, seen: Seen) -> Setup:
    key = (spec.dataset.model_dump_json(), spec.partition.model_dump_json(), spec.clients, spec.partition_seed)
    if key not in seen:
        _, _, setup = set_up(spec, data_root)
        seen[key] = setup.shape, setup.classes, setup.samples
    return describe(spec, *seen[key])


def preview_partition(spec: ExperimentSpec, data_root: Path | None) -> dict[str, Any]:
    """The client × class table before anything runs."""
    check(spec, data_root)
    dataset, partition, _ = set_up(spec, data_root)
    return {
        "clients": spec.clients,
        "classes": dataset.classes,
        "counts": partition.counts(dataset.labels).tolist(),
        "fingerprint": partition.fingerprint,
        "notes": list(partition.notes),
    }


def _members(union: Any) -> list[tuple[str, type[Frozen]]]:
    """The models of a discriminated union by their literal names."""
    return [
        (name, member)
        for member in get_args(get_args(union)[0])
        for name in get_args(member.model_fields["name"].annotation)
    ]


@lru_cache(maxsize=256)
def _parameters(architecture: str, feature_dim: int | None) -> dict[str, int]:
    with torch.device("meta"):
        model = build(architecture, feature_dim=feature_dim, **_COUNTED_AT)  # type: ignore[arg-type]
    (body, body_buffers), (head, _) = count(model.body), count(model.head)
    return {"parameters": body + head, "body_parameters": body, "head_parameters": head, "buffers": body_buffers}


@lru_cache(maxsize=256)
def _normalises_batches(architecture: str) -> bool:
    with torch.device("meta"):
        model = build(architecture, **_COUNTED_AT)  # type: ignore[arg-type]
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def _datasets(data_root: Path | None) -> list[dict[str, Any]]:
    schemas = {name: member.model_json_schema() for name, member in _members(DatasetSpec)}
    return [
        {
            "id": "imported" if found.imported else found.name,
            "set": found.name if found.imported else None,
            "title": found.title,
            "shape": list(found.shape),
            "classes": found.classes,
            "samples": found.images,
            "available": found.available,
            "parameters": schemas["imported" if found.imported else found.name],
        }
        for found in datasets.available(data_root)
    ]


def _value(spec: ExperimentSpec, field: str) -> Any:
    """What the spec says under a dotted path."""
    value: Any = spec.canonical()
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
