"""A storage that stumbles or stays away: experiments wait a little, then go on without their checkpoints."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from app.config import Settings
from app.store.database import Database
from app.store.rounds import Verdict
from app.store.states import State
from engine.runtime.checkpoint import LocalFiles
from tests.services import look, state, submit
from tests.workers.processes import rounds_computed, stored, undisturbed
from workers import checkpoints
from workers.job import Job, Leaving, run_next

ROUNDS = 6


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"threads": 1, "checkpoint_every": 1, "device": "cpu"})


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SAVE_SECONDS", 0.5)
    monkeypatch.setattr(checkpoints, "LOAD_SECONDS", 0.5)


def faulty(
    monkeypatch: pytest.MonkeyPatch, method: str, code: int, times: float, about: str = ""
) -> Callable[[], float]:
    """So many calls about such a file raise this error; gives how many still would."""
    original, left = getattr(LocalFiles, method), times

    def call(files: LocalFiles, *arguments: Any) -> Any:
        nonlocal left
        if left > 0 and about in "".join(str(argument) for argument in arguments[:1]):
            left -= 1
            raise OSError(code, "the storage stumbles")
        return original(files, *arguments)

    monkeypatch.setattr(LocalFiles, method, call)
    return lambda: left


def given_back_after_round(monkeypatch: pytest.MonkeyPatch, settings: Settings, database: Database, last: int) -> str:
    key = submit(database, rounds=ROUNDS)
    hand_in = Job._hand_in

    def leaving_soon(job: Job, record: Any, checkpoint: Any) -> Verdict:
        if record.round == last - 1:
            job._leave(Leaving.DRAIN)
        return hand_in(job, record, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(Job, "_hand_in", leaving_soon)
        run_next(settings, "first")
    row = look(database, key)
    assert (row.state, row.next_round) == (State.QUEUED, last + 1)
    return key


@pytest.mark.parametrize(
    ("method", "code"),
    [("write", errno.EIO), ("settle", errno.EIO), ("names", errno.ESTALE), ("remove", errno.ESTALE)],
)
def test_one_error_of_the_storage_costs_neither_the_experiment_nor_its_last_checkpoint(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, method: str, code: int
) -> None:
    key = submit(sqlite_database, rounds=ROUNDS)
    left = faulty(monkeypatch, method, code, times=1)
    run_next(quick, "worker-1")
    assert left() == 0
    row = look(sqlite_database, key)
    assert row.state is State.FINISHED
    assert f"manifest-round-{ROUNDS:06d}-" in (row.checkpoint or "")
    assert stored(sqlite_database, key) == undisturbed(rounds=ROUNDS)


def test_a_storage_that_stays_away_costs_the_checkpoints_but_not_the_experiment(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = submit(sqlite_database, rounds=ROUNDS)
    faulty(monkeypatch, "write", errno.EIO, times=float("inf"))
    run_next(quick, "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.checkpoint, row.error_reason) == (State.FINISHED, None, None)
    assert stored(sqlite_database, key) == undisturbed(rounds=ROUNDS)


def test_a_checkpoint_that_cannot_be_read_at_once_is_waited_for(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = given_back_after_round(monkeypatch, quick, sqlite_database, last=3)
    left = faulty(monkeypatch, "read", errno.ESTALE, times=2)
    computed = rounds_computed(monkeypatch)
    run_next(quick, "second")
    assert left() == 0
    assert computed == [4, 5, 6]
    assert stored(sqlite_database, key) == undisturbed(rounds=ROUNDS)


def test_checkpoints_that_stay_unreadable_cost_time_but_no_different_number(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = given_back_after_round(monkeypatch, quick, sqlite_database, last=3)
    faulty(monkeypatch, "read", errno.EIO, times=float("inf"))
    faulty(monkeypatch, "names", errno.EIO, times=float("inf"))
    run_next(quick, "second")
    assert state(sqlite_database, key) is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(rounds=ROUNDS)
