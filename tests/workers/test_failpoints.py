"""A kill or a power cut at any point of a round: what is left can be read, and gives the records of a quiet run."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from app.config import Settings
from app.store import orphans
from app.store.database import Database
from app.store.migrate import migrate
from app.store.states import State
from engine.runtime.checkpoint import Checkpoints
from tests.services import look, submit, wait_until
from tests.workers import failpoints
from tests.workers.processes import stored, undisturbed
from workers.files import folder_of

ROUNDS = 6
TIMES = [1, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.chaos])]


@pytest.fixture(scope="module")
def expected() -> list[dict[str, object]]:
    return undisturbed(rounds=ROUNDS)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("point", failpoints.POINTS)
def test_killed_at_any_point_of_a_round_the_experiment_goes_on_with_the_same_bits(
    settings: Settings, sqlite_database: Database, expected: list[dict[str, object]], point: str, times: int
) -> None:
    settings = settings.model_copy(update={"checkpoint_every": 1, "threads": 1})
    dice = random.Random(point)
    for _ in range(times):
        key = submit(sqlite_database, rounds=ROUNDS)
        passes = dice.randint(1, ROUNDS // 2)
        first = failpoints.start(failpoints.run_and_die, settings, "first", point, passes)
        first.join()
        assert first.exitcode == -signal.SIGKILL
        assert look(sqlite_database, key).state is State.RUNNING
        with sqlite_database.write() as session:
            orphans.expire_leases(session, "first")
        second = failpoints.start(failpoints.run, settings, "second")
        second.join()
        assert second.exitcode == 0
        row = look(sqlite_database, key)
        assert (row.state, row.attempts, row.bit_identical) == (State.FINISHED, 2, True)
        assert stored(sqlite_database, key) == expected
        assert not list((Path(settings.storage) / folder_of(key)).glob("*.tmp")), "what was left half written is swept"


@contextmanager
def at_work(settings: Settings, database: Database, key: str) -> Iterator[BaseProcess]:
    process = failpoints.start(failpoints.run_and_tell, settings, "worker")
    try:
        wait_until(lambda: look(database, key).checkpoint is not None, what="the first checkpoint")
        yield process
    finally:
        process.kill()
        process.join()


def disk_after_a_power_cut(settings: Settings, key: str, target: Path) -> Settings:
    """What the disk holds at this moment, without the checkpoint files that nobody made sure of."""
    folder = Path(settings.storage) / folder_of(key)
    durable = set(json.loads((settings.home / "durable.json").read_text()))
    kept = Path("storage") / folder_of(key)
    (target / kept).mkdir(parents=True)
    for path in folder.iterdir():
        if path.name in durable:
            shutil.copy(path, target / kept)
    for path in settings.home.glob("fedarena.db*"):
        shutil.copy(path, target)
    return Settings(home=target)


@pytest.mark.parametrize("times", [5, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.chaos])])
def test_after_a_power_cut_the_store_is_whole_and_names_a_checkpoint_that_can_be_read(
    settings: Settings, sqlite_database: Database, tmp_path: Path, times: int
) -> None:
    settings = settings.model_copy(update={"checkpoint_every": 1, "threads": 1})
    key, dice = submit(sqlite_database, rounds=100_000), random.Random(times)
    fingerprint, seen = look(sqlite_database, key).fingerprint, []
    with at_work(settings, sqlite_database, key) as process:
        for number in range(times):
            time.sleep(dice.uniform(0.0, 0.1))
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
            there = disk_after_a_power_cut(settings, key, tmp_path / str(number))
            os.kill(process.pid, signal.SIGCONT)
            left = Database(there.database)
            migrate(left)
            row = look(left, key)
            with left.engine.connect() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            assert row.checkpoint is not None
            assert row.checkpoint_sha256 is not None
            snapshot = Checkpoints(Path(there.storage) / folder_of(key)).load(row.checkpoint, row.checkpoint_sha256)
            assert (snapshot.fingerprint, snapshot.round) == (fingerprint, row.next_round - 1)
            seen.append(stored(left, key))
            left.close()
            shutil.rmtree(there.home)
    assert [len(rounds) for rounds in seen] == sorted(len(rounds) for rounds in seen)
    longest = undisturbed(rounds=len(seen[-1]) - 1)
    assert all(rounds == longest[: len(rounds)] for rounds in seen)
