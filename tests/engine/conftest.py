"""Small experiments that every engine test can vary."""

from collections.abc import Callable

import pytest

from engine import testing
from engine.spec.experiment import ExperimentSpec
from engine.testing import records_of, same_results

__all__ = ["SMALL", "SpecMaker", "records_of", "same_results"]

SMALL = {"algorithm": {"name": "standalone"}, **testing.SMALL}

SpecMaker = Callable[..., ExperimentSpec]


@pytest.fixture
def small_spec() -> SpecMaker:
    return testing.small_spec
