"""A device that is not there or breaks: the worker stops taking work, and no experiment pays for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.config import Settings
from app.store import artifacts
from app.store.artifacts import ArtifactState
from app.store.database import Database
from app.store.states import State
from engine.artifacts import parse_request
from engine.spec.experiment import ExperimentSpec
from tests.services import ROOT, environment, look, spec_with, state, submit
from workers.device import AGAIN_SECONDS, DeviceTrouble, DeviceUnusable, why_unusable
from workers.job import run_due, run_next
from workers.launch import Presence, work

ABSENT = "cuda:99"


@pytest.fixture
def well(settings: Settings) -> Settings:
    return settings.model_copy(update={"threads": 1, "device": "cpu"})


@pytest.fixture
def broken(well: Settings) -> Settings:
    return well.model_copy(update={"device": ABSENT})


def let_time_pass(home: Path) -> None:
    """As if the worker's note were older than the time after which a device is tried again."""
    [note] = (home / "trouble").iterdir()
    old = note.stat().st_mtime - AGAIN_SECONDS - 1
    os.utime(note, (old, old))


def test_a_worker_does_not_start_on_a_device_that_cannot_be_used(broken: Settings) -> None:
    with pytest.raises(DeviceUnusable, match=rf"{ABSENT} cannot be used: .*FEDARENA_DEVICE"):
        work(broken, 1)


def test_a_broken_device_costs_no_experiment_and_another_worker_runs_them_all(
    well: Settings, broken: Settings, sqlite_database: Database
) -> None:
    keys = [submit(sqlite_database) for _ in range(3)]
    assert run_due(broken, "sick") == 1
    assert run_due(broken, "sick") == 0, "it takes nothing more"
    rows = [look(sqlite_database, key) for key in keys]
    assert [row.state for row in rows] == [State.QUEUED] * 3
    assert (rows[0].owner, rows[0].lease, rows[0].deaths, rows[0].error_reason) == (None, None, 0, None)
    assert run_due(well, "well") == 3
    assert [state(sqlite_database, key) for key in keys] == [State.FINISHED] * 3


def test_an_artifact_on_a_broken_device_goes_back_too(
    well: Settings, broken: Settings, sqlite_database: Database
) -> None:
    experiment = submit(sqlite_database)
    run_next(well, "well")
    parameters = parse_request(ExperimentSpec.parse(spec_with()), "features", {"samples": 4}).model_dump(mode="json")
    with sqlite_database.write() as session:
        wanted = artifacts.want(session, experiment, "features", parameters)[0].id
    run_next(broken, "sick")
    with sqlite_database.read() as session:
        row = artifacts.get(session, wanted)
    assert row is not None
    assert (row.state, row.attempts, row.error) == (ArtifactState.WANTED, 0, None)
    assert ABSENT in (DeviceTrouble(broken, "sick").reason() or "")


def test_the_report_of_a_worker_tells_why_it_takes_no_work(broken: Settings, sqlite_database: Database) -> None:
    presence = Presence(broken, 1)
    assert presence.report()["shortage"] is None
    submit(sqlite_database)
    run_next(broken, presence.name)
    assert f"{ABSENT} cannot be used" in presence.report()["shortage"]


def test_a_broken_device_is_tried_again_and_work_is_taken_once_it_computes(
    well: Settings, broken: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database)
    run_next(broken, "worker-1")
    assert run_next(well, "worker-1") is None, "not before some time has passed"
    let_time_pass(well.home)
    assert run_next(broken, "worker-1") is None, "still broken"
    let_time_pass(well.home)
    assert run_next(well, "worker-1") == key
    assert DeviceTrouble(well, "worker-1").reason() is None


def test_a_cpu_can_always_be_used() -> None:
    assert why_unusable("cpu") is None


def test_a_started_worker_says_in_one_line_that_its_device_cannot_be_used(broken: Settings) -> None:
    command = [sys.executable, "-m", "workers.launch"]
    ended = subprocess.run(command, env=environment(broken), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert f"{ABSENT} cannot be used" in line
