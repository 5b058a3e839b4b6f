"""Real worker processes for tests, and what they left in the store."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from app import reconciler
from app.config import Settings
from app.store import rounds, workers
from app.store.database import Database
from app.store.rounds import Verdict
from app.store.states import State
from app.store.tables import Round
from engine.records import RoundRecord
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import ROOT, environment, fedarena, look, spec_with, state
from workers.embedded import Broker
from workers.job import Job
from workers.pulse import Holding, read_pulses

LONG: dict[str, Any] = {"rounds": 150, "training": {"epochs": 10, "batch_size": 16}}
"""About two seconds, so that there is time to hit it."""


@pytest.fixture
def with_broker(settings: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """With a lease that a busy machine does not miss, and that a test can wait for; lost hints are soon sent again."""
    monkeypatch.setattr(reconciler, "PERIOD_SECONDS", 0.5)
    settings = settings.model_copy(update={"lease_seconds": 6.0, "heartbeat_seconds": 1.5, "grace_seconds": 20.0})
    broker = Broker(settings)
    broker.start()
    yield settings
    broker.stop()


@contextmanager
def worker(settings: Settings, *options: str, cwd: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """`fedarena worker` as its user starts it; killed with its children when the test is over."""
    process = subprocess.Popen(fedarena("worker", *options), env=environment(settings), cwd=cwd, start_new_session=True)
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            assert process.poll() is not None
        process.wait()


def children(pid: int) -> list[int]:
    """Of all its threads: with hints in files Celery starts them from one of its own."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in task.read_text().split()]
    return found


def is_stopped(pid: int) -> bool:
    """Every thread of it. SIGSTOP only asks: a thread in the middle of a system call stops when that is over."""
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def send(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def undisturbed(**changes: Any) -> list[dict[str, Any]]:
    return [record.without_times() for record in Run(ExperimentSpec.parse(spec_with(**changes))).rounds()]


def stored(database: Database, key: str) -> list[dict[str, Any]]:
    with database.read() as session:
        found = rounds.after(session, key)
    return [RoundRecord(**row).without_times() for row in found]


def fences_in_order_of_commit(database: Database, key: str) -> list[int]:
    """Of the experiment's rounds. One that is smaller than its predecessor was written by a zombie."""
    query = select(col(Round.fence)).where(col(Round.experiment) == key).order_by(col(Round.seq))
    with database.read() as session:
        return list(session.scalars(query))


def has_rounds(database: Database, key: str, count: int = 5) -> bool:
    row = look(database, key)
    return row.next_round >= count and row.state is State.RUNNING


def holdings(settings: Settings, database: Database) -> list[Holding]:
    """What the children of all workers of this home say that they work on."""
    with database.read() as session:
        names = [row.name for row in workers.known(session)]
    return [holding for name in names for holding, _ in read_pulses(settings, name).values()]


def ended(database: Database, *keys: str) -> bool:
    return all(state(database, key).is_finished() for key in keys)


def rounds_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the rounds that jobs of this process hand in from now on."""
    computed: list[int] = []
    hand_in = Job._hand_in

    def noted(job: Job, record: Any, checkpoint: Any) -> Verdict:
        computed.append(record.round)
        return hand_in(job, record, checkpoint)

    monkeypatch.setattr(Job, "_hand_in", noted)
    return computed
