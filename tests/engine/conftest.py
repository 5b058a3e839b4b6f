"""Small experiments that every engine test can vary."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.records import RoundRecord
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec

SMALL: dict[str, Any] = {
    "algorithm": {"name": "standalone"},
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 1, "size": 16},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "tiny-3"},
    "clients": 6,
    "participation": 0.5,
    "rounds": 3,
    "training": {"epochs": 2, "batch_size": 8, "lr": 0.05},
    "seed": 7,
}

SpecMaker = Callable[..., ExperimentSpec]


@pytest.fixture
def small_spec() -> SpecMaker:
    """A spec that runs in a fraction of a second; keyword arguments replace top-level fields."""

    def make(algorithm: str | dict[str, Any] = "standalone", **changes: Any) -> ExperimentSpec:
        named = {"name": algorithm} if isinstance(algorithm, str) else algorithm
        return ExperimentSpec.parse({**SMALL, "algorithm": named, **changes})

    return make


def records_of(spec: ExperimentSpec, **options: Any) -> list[RoundRecord]:
    return list(Run(spec, **options).rounds())


def same_results(first: list[RoundRecord], second: list[RoundRecord]) -> bool:
    return [record.without_times() for record in first] == [record.without_times() for record in second]
