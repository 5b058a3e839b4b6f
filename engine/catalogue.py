"""The only door for the web: what can be chosen, whether a spec can run, what it costs and how its partition looks."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from engine.artifacts import parse_request
from engine.data import datasets
from engine.data.datasets import DataError, DataMissing, Dataset
from engine.data.partition import Partition, PartitionError
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.estimate import Estimate, RoundCost, Untold, rehearse
from engine.kit.calibration import RECALIBRATED
from engine.kit.contract import Setup, Trace
from engine.kit.headers import Header, header
from engine.methods import REGISTRY
from engine.models import FAMILIES, assign, build
from engine.models import check as check_architecture
from engine.models.sizes import CLASSES, SHAPE, sizes
from engine.runtime.horizon import Untellable, at_horizon
from engine.runtime.pretrained import PretrainedError, Weights, starting_points
from engine.runtime.setup import describe, set_up
from engine.spec.experiment import ExperimentSpec
from engine.spec.frozen import Frozen
from engine.spec.presets import PRESETS
from engine.spec.problems import Problem, SpecError

__all__ = [
    "Estimate",
    "Header",
    "RoundCost",
    "Seen",
    "Untellable",
    "Untold",
    "Weights",
    "architectures",
    "at_horizon",
    "catalogue",
    "check",
    "estimate",
    "method_header",
    "preview_partition",
    "priced",
    "rehearse",
]


def catalogue(data_root: Path | None) -> dict[str, Any]:
    """Every id a spec may name, with what people and forms need to know about it."""
    return {
        "algorithms": [
            {
                "id": name,
                "title": algorithm.method.title,
                **asdict(algorithm.method.source),
                "shares": algorithm.method.shares,
                "family": algorithm.method.family,
                "heterogeneous": algorithm.method.heterogeneous,
                "traces": [_trace(trace) for trace in (*algorithm.method.traces, RECALIBRATED)],
                "topologies": sorted(algorithm.topologies),
                "parameters": algorithm.Params.model_json_schema(),
                "presets": {preset: dict(values) for preset, values in algorithm.Params.preset_values.items()},
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
                "members": [{"id": member, **sizes(member, family.feature_dim)} for member in family.members],
            }
            for family in FAMILIES.values()
        ],
        "presets": PRESETS,
        "spec": ExperimentSpec.model_json_schema(),
    }


def _trace(trace: Trace) -> dict[str, Any]:
    return {"name": trace.name, "title": trace.title, "unit": trace.unit}


Seen = dict[tuple[str, str, int, int], tuple[tuple[int, int, int], int, tuple[int, ...]]]
"""Shape, classes and amounts of training samples, by data set, partition, clients and partition seed."""


def check(
    spec: ExperimentSpec, data_root: Path | None, weights: Weights | None = None, seen: Seen | None = None
) -> None:
    """Raise SpecError if the spec cannot run here: data missing, no such partition, method not applicable.

    `weights` finds the files that models.pretrained names. `seen` is for many specs one after the other: a partition
    that they share is made once.
    """
    algorithm = REGISTRY[spec.algorithm.name]
    unsupported = []
    if spec.topology not in algorithm.topologies:
        known = " or ".join(repr(topology) for topology in sorted(algorithm.topologies))
        message = f"{algorithm.method.title} runs with {known}, but got {spec.topology!r}"
        unsupported.append(Problem("topology", message, spec.topology, "not_applicable"))
    if unsupported:
        raise SpecError(tuple(unsupported))
    setup = _describe(spec, data_root, {} if seen is None else seen)
    for architecture in dict.fromkeys(setup.architectures):
        try:
            check_architecture(architecture, setup.shape, setup.classes, setup.feature_dim)
        except ValueError as error:
            raise SpecError((Problem("models.family", str(error), spec.models.family),)) from None
    if spec.models.pretrained is not None:
        try:
            starting_points(spec.models.pretrained, setup, weights)
        except PretrainedError as error:
            field = "models.pretrained.weights"
            raise SpecError((Problem(field, str(error), _value(spec, field)),)) from None
    for client, samples in enumerate(setup.num_samples):
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
        _, _, setup = _divide(spec, data_root)
        seen[key] = setup.shape, setup.classes, setup.num_samples
    return describe(spec, *seen[key])


def _divide(spec: ExperimentSpec, data_root: Path | None) -> tuple[Dataset, Partition, Setup]:
    """The partitioned data; SpecError where they are missing or cannot be divided like this."""
    try:
        return set_up(spec, data_root)
    except DataMissing as error:
        problem = Problem("dataset.name", error.reason, spec.dataset.name, remedy=error.remedy)
        raise SpecError((problem,)) from None
    except DataError as error:
        raise SpecError((Problem("dataset.name", str(error), spec.dataset.name),)) from None
    except PartitionError as error:
        raise SpecError((Problem(error.field, str(error), _value(spec, error.field)),)) from None


@cache
def partition_symbols() -> Mapping[str, str]:
    """The letters that papers give to parameters of partitions, by the parameter's name."""
    return {
        name: str(field.json_schema_extra["symbol"])
        for _, member in _members(PartitionSpec)
        for name, field in member.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "symbol" in field.json_schema_extra
    }


def method_header(name: str) -> Header:
    """What a method's file says on top: equations, notes and deviations. KeyError: there is no such method."""
    return header(REGISTRY[name])


def estimate(spec: ExperimentSpec, data_root: Path | None) -> Estimate:
    """What an average round costs, rehearsed in this process; Untold where it cannot be told in advance."""
    spec = priced(spec)
    check(spec, data_root)
    return rehearse(spec, data_root)


def priced(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec without what changes no cost: two that are equal then cost the same."""
    models = spec.models.model_copy(update={"pretrained": None})
    return spec.model_copy(update={"name": None, "tags": (), "notes": "", "models": models})


def architectures(spec: ExperimentSpec) -> list[str]:
    """The network of every client."""
    return assign(FAMILIES[spec.models.family], spec.clients, spec.models.assign, spec.seed)


def preview_partition(spec: ExperimentSpec, data_root: Path | None) -> dict[str, Any]:
    """The client × class table of a spec that `check` accepts, before anything runs."""
    dataset, partition, _ = _divide(spec, data_root)
    return {
        "clients": spec.clients,
        "classes": dataset.classes,
        "counts": partition.counts(dataset.labels).tolist(),
        "fingerprint": partition.fingerprint,
        "notes": list(partition.notes),
    }


def artifact_parameters(spec: ExperimentSpec, kind: str, parameters: Any) -> dict[str, Any]:
    """The complete parameters of an artifact of that kind; SpecError if this experiment cannot have it."""
    return parse_request(spec, kind, parameters).model_dump(mode="json")


def _members(union: Any) -> list[tuple[str, type[Frozen]]]:
    """The models of a discriminated union by their literal names."""
    return [
        (name, member)
        for member in get_args(get_args(union)[0])
        for name in get_args(member.model_fields["name"].annotation)
    ]


@lru_cache(maxsize=256)
def _normalises_batches(architecture: str) -> bool:
    with torch.device("meta"):
        model = build(architecture, SHAPE, CLASSES)
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def datasets_here(data_root: Path | None) -> list[dict[str, Any]]:
    """The data sets of the catalogue, each with the number of images that lie there, where a look can tell."""
    return _datasets(data_root, count=True)


def _datasets(data_root: Path | None, *, count: bool = False) -> list[dict[str, Any]]:
    schemas = {name: member.model_json_schema() for name, member in _members(DatasetSpec)}
    return [
        {
            "id": "imported" if found.imported else found.name,
            "set": found.name if found.imported else None,
            "title": found.title,
            "shape": list(found.shape),
            "classes": found.classes,
            "samples": found.images,
            **({"found": found.found, "incomplete": found.incomplete, "lacks": found.lacks} if count else {}),
            "available": found.available,
            "location": found.location,
            "missing": None if found.available else str(datasets.missing(found.name, data_root)),
            "how_to_get": None if found.remedy is None else found.remedy.how,
            "parameters": schemas["imported" if found.imported else found.name],
        }
        for found in datasets.available(data_root, count=count)
    ]


def _value(spec: ExperimentSpec, field: str) -> Any:
    """What the spec says under a dotted path."""
    value: Any = spec.canonical()
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
