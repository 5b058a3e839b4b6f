"""What a round of every method costs in one reference set-up, without rehearsing it.

A rehearsal trains, which takes seconds for all methods and is no work for the process that answers the web. The numbers
are written down in `costs.json` by `make docs`; a test rehearses every method and compares.
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

FILE = Path(__file__).with_name("costs.json")

REFERENCE: dict[str, Any] = {
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "cnn-1-5"},
    "clients": 10,
    "rounds": 100,
    "training": {"epochs": 1, "batch_size": 64, "augment": False},
}
"""It needs no download."""

REFERENCE_WORDS = "10 clients with CNN-1 … CNN-5 on digits, two classes each, one local epoch"

Cost = dict[str, Any]
"""`round` and `opening` as in engine.catalogue.Estimate, or a `reason` why there are none."""


@cache
def written() -> dict[str, Cost]:
    """By method."""
    found: dict[str, Cost] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def of(method: str) -> Cost:
    """What the pages show; a method that came from elsewhere has no row."""
    return written().get(method, {"reason": "its cost was never measured"})


def rehearsed(method: str) -> Cost:
    """What the file must hold for a method."""
    try:
        return asdict(catalogue.estimate(ExperimentSpec.parse({**REFERENCE, "algorithm": {"name": method}}), None))
    except SpecError as error:
        return {"reason": error.problems[0].message}
    except catalogue.Untold as error:
        return {"reason": str(error)}
