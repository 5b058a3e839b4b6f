"""What all tests share: quiet cores, and one place at a time for tests that start services."""

import os

import hypothesis
import pytest

# Before torch is imported: several test processes share the cores, and results depend on the number of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("FEDARENA_METHODS", None)  # read once, when the engine is imported

# No test asserts a wall-clock time: by default an example that takes 200 ms on a busy machine would fail.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

SERVICES = {"browser", "postgres", "chaos", "cluster"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file in one process, and all tests with services in one and the same, so that none disturbs another."""
    for item in items:
        group = "services" if SERVICES & {mark.name for mark in item.iter_markers()} else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own FEDARENA_ variables must not change what a test sees."""
    for name in list(os.environ):
        if name.startswith("FEDARENA_"):
            monkeypatch.delenv(name)
