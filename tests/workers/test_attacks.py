"""Attacks on real workers with the real broker: nothing is lost, nothing doubled, no number differs."""

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app import disk
from app.client import FedArena
from app.config import Settings
from app.queue import Queue
from app.reconciler import Reconciler
from app.store import artifacts, experiments, lifecycle, logs, steering, workers
from app.store.artifacts import ArtifactState
from app.store.database import Database, sqlite_module
from app.store.migrate import migrate
from app.store.plan import Plan, StopRule
from app.store.states import State
from engine.spec.experiment import ExperimentSpec
from tests.services import (
    cut_connections,
    http,
    look,
    postgres_admin,
    serving,
    short_folder,
    spec_with,
    state,
    submit,
    wait_until,
)
from tests.workers.processes import (
    LONG,
    children,
    ended,
    fences_in_order_of_commit,
    has_rounds,
    holdings,
    is_stopped,
    send,
    stored,
    undisturbed,
    worker,
)
from workers.embedded import Broker
from workers.job import run_next
from workers.pulse import Holding
from workers.watchdog import is_alive

pytestmark = pytest.mark.chaos


def test_a_frozen_child_is_killed_and_its_experiment_goes_on_before_the_lease_ends(
    with_broker: Settings, sqlite_database: Database
) -> None:
    settings = with_broker.model_copy(update={"lease_seconds": 600.0, "watchdog_seconds": 5.0})
    key = submit(sqlite_database, **LONG)
    with serving(settings), worker(settings):
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        [frozen] = holdings(settings, sqlite_database)
        os.kill(frozen.pid, signal.SIGSTOP)
        wait_until(lambda: ended(sqlite_database, key), seconds=120, what="the end")
        assert not is_alive(frozen.pid)
    assert state(sqlite_database, key) is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(**LONG)


def freeze(database: Database, *pids: int) -> None:
    """At a moment when the frozen do not hold the store: that is another attack, which a watchdog ends."""
    while True:
        send(signal.SIGSTOP, *pids)
        # a thread that waits for the disk runs on, and might take the lock that was found free
        wait_until(lambda: all(map(is_stopped, pids)), what="the standstill")
        try:
            with database.write() as session:
                session.execute(text("UPDATE counter SET value = value"))
            return
        except OperationalError:
            send(signal.SIGCONT, *pids)
            time.sleep(0.2)  # to let go of it


def test_a_zombie_that_wakes_after_a_takeover_writes_nothing(with_broker: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, **LONG)
    with serving(with_broker), worker(with_broker) as zombie:
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        frozen = (zombie.pid, *children(zombie.pid))
        freeze(sqlite_database, *frozen)
        fence = look(sqlite_database, key).fence
        with worker(with_broker):
            wait_until(lambda: look(sqlite_database, key).fence > fence, what="the takeover")
            send(signal.SIGCONT, *frozen)
            wait_until(lambda: ended(sqlite_database, key), seconds=120, what="the end")
    row, fences = look(sqlite_database, key), fences_in_order_of_commit(sqlite_database, key)
    assert (row.state, row.bit_identical) == (State.FINISHED, True)
    assert fences == sorted(fences), "the zombie wrote a round"
    assert stored(sqlite_database, key) == undisturbed(**LONG)


@pytest.mark.slow
def test_fifty_zombies_in_a_row_write_nothing(with_broker: Settings, sqlite_database: Database) -> None:
    """Two workers; whoever has the experiment is frozen until the other one has it and has stored a round."""
    settings = with_broker.model_copy(update={"lease_seconds": 5.0, "heartbeat_seconds": 1.0})
    key = submit(sqlite_database, rounds=100_000)
    with serving(settings) as address, worker(settings), worker(settings), FedArena(address) as arena:
        for _ in range(50):
            own = wait_until(lambda: holder(settings, sqlite_database, key), seconds=300, what="a round by its owner")
            freeze(sqlite_database, own.pid)
            wait_until(partial(is_taken_over, sqlite_database, key, own.fence), seconds=300, what="a takeover")
            os.kill(own.pid, signal.SIGCONT)
        wait_until(lambda: holder(settings, sqlite_database, key), seconds=300, what="a round by the last owner")
        arena.cancel(key)
        wait_until(lambda: ended(sqlite_database, key), seconds=120, what="the end")
    fences = fences_in_order_of_commit(sqlite_database, key)
    assert fences == sorted(fences), "a worker that had lost its claim wrote a round"
    assert len(set(fences)) >= 51
    found = stored(sqlite_database, key)
    assert found == undisturbed(rounds=len(found) - 1)


def is_taken_over(database: Database, key: str, fence: int) -> bool:
    return look(database, key).fence > fence


def is_beyond(database: Database, key: str, number: int) -> bool:
    return look(database, key).next_round > number


def holder(settings: Settings, database: Database, key: str) -> Holding | None:
    """The process that has the experiment, once it has stored a round."""
    fence = look(database, key).fence
    if fence not in fences_in_order_of_commit(database, key)[-1:]:
        return None
    return next((holding for holding in holdings(settings, database) if holding.fence == fence), None)


def test_superfluous_hints_change_nothing(with_broker: Settings, sqlite_database: Database) -> None:
    with_broker = with_broker.model_copy(update={"lease_seconds": 60.0})
    keys = [submit(sqlite_database, name=f"n{number}") for number in range(4)]
    queue = Queue(with_broker)
    queue.send(10 * len(keys))
    queue.close()
    with worker(with_broker, "--slots", "2"), worker(with_broker, "--slots", "2"):
        wait_until(lambda: ended(sqlite_database, *keys), seconds=120, what="the end")
    assert {look(sqlite_database, key).attempts for key in keys} == {1}
    for key in keys:
        assert stored(sqlite_database, key) == undisturbed()


@pytest.mark.parametrize(
    ("count", "away"), [(5, 0.0), pytest.param(30, 600.0, marks=pytest.mark.slow)], ids=["shortly", "ten minutes"]
)
def test_experiments_submitted_while_the_broker_is_away_run_when_it_is_back(
    with_broker: Settings, sqlite_database: Database, count: int, away: float
) -> None:
    broker = Broker(with_broker)
    with serving(with_broker) as address, worker(with_broker, "--slots", "2"), FedArena(address) as arena:
        wait_until(lambda: workers_seen(sqlite_database), what="the worker")
        broker.stop()  # all hints are gone with it
        keys = [arena.submit(spec_with(name=f"n{number}"))["id"] for number in range(count)]
        assert {arena.experiment(key)["state"] for key in keys} == {"queued"}
        time.sleep(away)
        broker.start()
        try:
            wait_until(lambda: ended(sqlite_database, *keys), seconds=120, what="the end")
        finally:
            broker.stop()
    assert {state(sqlite_database, key) for key in keys} == {State.FINISHED}


@pytest.mark.slow
def test_thirty_experiments_run_although_the_broker_forgot_every_hint(
    with_broker: Settings, sqlite_database: Database
) -> None:
    queue = Queue(with_broker)
    with serving(with_broker) as address, FedArena(address) as arena:
        keys = [arena.submit(spec_with(name=f"n{number}"))["id"] for number in range(30)]
        wait_until(queue.outstanding, what="hints")
        with worker(with_broker, "--slots", "2") as process:
            wait_until(lambda: workers_seen(sqlite_database), what="the worker")
            os.killpg(process.pid, signal.SIGSTOP)  # it takes no hint meanwhile
            queue.celery.control.purge()
            assert queue.outstanding() == 0
            os.killpg(process.pid, signal.SIGCONT)
            wait_until(lambda: ended(sqlite_database, *keys), seconds=120, what="the end")
    queue.close()
    assert {state(sqlite_database, key) for key in keys} == {State.FINISHED}


@pytest.mark.slow
def test_a_store_locked_for_twenty_seconds_fails_nothing(with_broker: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, **LONG)
    with serving(with_broker) as address, worker(with_broker), http(address) as client:
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        outsider = sqlite_module().connect(str(sqlite_database.path), timeout=60, isolation_level=None)
        outsider.execute("BEGIN EXCLUSIVE")
        answers = set()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            answers.add(client.post("/api/experiments", json=spec_with()).status_code)
        outsider.execute("ROLLBACK")
        outsider.close()
        assert answers == {503}
        wait_until(lambda: ended(sqlite_database, key), seconds=120, what="the end")
    assert stored(sqlite_database, key) == undisturbed(**LONG)


def workers_seen(database: Database) -> int:
    with database.read() as session:
        return workers.live_slots(session, 60)


def test_a_worker_elsewhere_resumes_what_a_dead_one_left_knowing_only_the_urls(
    with_broker: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database, **LONG)
    with short_folder() as shared, short_folder() as other_home, short_folder() as nowhere:
        urls = {
            "database_url": with_broker.database,
            "broker_url": with_broker.broker,
            "storage_url": f"file://{shared}",
            "checkpoint_every": 1,
        }
        with worker(with_broker.model_copy(update=urls)) as first:
            wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        kept = stored(sqlite_database, key)
        assert (state(sqlite_database, key), len(kept) >= 5) == (State.RUNNING, True)
        assert list((shared / "checkpoints" / key).glob("manifest-*"))
        with worker(with_broker.model_copy(update={**urls, "home": other_home}), cwd=nowhere):
            wait_until(lambda: ended(sqlite_database, key), seconds=120, what="the end")
        assert not (other_home / "fedarena.db").exists()
        with sqlite_database.read() as session:
            text = " ".join(line.text for line in logs.after(session, key))
    assert "goes on after round" in text
    row = look(sqlite_database, key)
    assert (row.state, row.attempts, row.bit_identical) == (State.FINISHED, 2, True)
    assert stored(sqlite_database, key) == undisturbed(**LONG)


@pytest.mark.slow
def test_an_experiment_that_kills_its_workers_fails_after_five_and_others_run(
    with_broker: Settings, sqlite_database: Database
) -> None:
    deadly = submit(sqlite_database, rounds=100_000)
    killed: set[int] = set()

    def kill_the_next() -> bool:
        for holding in holdings(with_broker, sqlite_database):
            if holding.experiment == deadly and holding.fence not in killed and holding.rounds == 0:
                killed.add(holding.fence)
                os.kill(holding.pid, signal.SIGKILL)  # as the kernel does when memory is short
        return ended(sqlite_database, deadly)

    with serving(with_broker), worker(with_broker):
        wait_until(kill_the_next, seconds=300, what="the failure")
        other = submit(sqlite_database)
        wait_until(lambda: ended(sqlite_database, other), seconds=120, what="the other one")
    row = look(sqlite_database, deadly)
    assert row.state is State.FAILED
    assert "5 workers died" in (row.error_reason or "")
    assert "likely out of memory" in (row.error_reason or "")
    assert (len(killed), row.next_round) == (5, 0)
    assert state(sqlite_database, other) is State.FINISHED


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of its own, where this user may mount one."""
    with short_folder() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount a small file system")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_pauses_the_experiment_and_room_lets_it_go_on(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(disk, "BALLAST_BYTES", 2_000_000)
    dice = random.Random(times)
    with small_disk(24) as home:
        settings = Settings(
            home=home,
            starter=False,
            threads=1,
            checkpoint_every=1,
            disk_low_mb=0,
            disk_low_percent=0,
            lease_seconds=5,
            heartbeat_seconds=1,
        )
        settings.prepare_home()
        database = Database(settings.database)
        migrate(database)
        expected = undisturbed(rounds=40)
        for _ in range(times):
            fill_up_and_go_on(settings, database, dice.randrange(100_000, 400_000), expected)
        database.close()


def fill_up_and_go_on(settings: Settings, database: Database, left: int, expected: list[dict[str, Any]]) -> None:
    """`left`: bytes of room when the experiment starts."""
    with database.engine.connect() as connection:  # else it writes over what is there and needs no room
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    disk.Ballast(settings).make()
    assert disk.Ballast(settings).path.exists()
    key = submit(database, rounds=40)
    filler = settings.home / "filler"
    with filler.open("wb") as file:
        file.write(b"x" * max(0, shutil.disk_usage(settings.home).free - left))
    run_next(settings, "worker-1")
    row = look(database, key)
    assert row.state is State.PAUSED
    assert (row.hold or "").startswith(disk.HOLD)
    assert not disk.Ballast(settings).path.exists()
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    assert stored(database, key) == expected[: row.next_round]
    filler.unlink()
    queue = Queue(settings)
    reconciler = Reconciler(settings, database, queue)
    reconciler.tick()
    reconciler.stop()
    queue.close()
    assert state(database, key) is State.QUEUED
    run_next(settings, "worker-2")
    assert look(database, key).state is State.FINISHED
    assert stored(database, key) == expected


@pytest.mark.slow
def test_a_hundred_cancels_at_any_moment_end_cancelled(with_broker: Settings, sqlite_database: Database) -> None:
    seconds: dict[str, list[float]] = {"cancelled": [], "cancelling": []}
    with serving(with_broker) as address, worker(with_broker, "--slots", "2"), FedArena(address) as arena:
        for number in range(100):
            key = arena.submit(spec_with(rounds=100_000, name=f"n{number}"))["id"]
            time.sleep(0.05 * (number % 37))
            answer = arena.cancel(key)["state"]
            asked = time.monotonic()
            wait_until(partial(ended, sqlite_database, key), seconds=30, what="the cancel")
            seconds[answer].append(time.monotonic() - asked)
            assert state(sqlite_database, key) is State.CANCELLED
    for answer, measured in seconds.items():
        print(f"answered {answer}: {len(measured)}, ended after at most {max(measured, default=0):.2f} s")


def test_a_job_outlives_cut_connections_to_postgresql(settings: Settings, postgres_store: str) -> None:
    """Also one whose stop rule reads the store after every round."""
    settings = settings.model_copy(update={"database_url": postgres_store, "threads": 1, "heartbeat_seconds": 0.5})
    database = Database(postgres_store)
    spec, plan = ExperimentSpec.parse(spec_with(**LONG)), Plan(stop=StopRule(patience=1000))
    with database.write() as session:
        key = experiments.submit(session, spec.canonical(), spec.fingerprint(), plan).id
    job = threading.Thread(target=run_next, args=(settings, "worker-1"))
    job.start()
    for number in range(3):
        wait_until(partial(is_beyond, database, key, 20 * number), what="rounds")
        with postgres_admin(postgres_store) as connection:
            cut_connections(connection)
    job.join(timeout=120)
    row = look(database, key)
    assert (row.state, row.attempts) == (State.FINISHED, 1)
    assert stored(database, key) == undisturbed(**LONG)
    database.close()


def test_the_files_of_removed_and_unknown_experiments_are_swept(settings: Settings, sqlite_database: Database) -> None:
    checkpoints = Path(settings.storage) / "checkpoints"
    kept, gone = submit(sqlite_database), submit(sqlite_database)
    unknown, young = checkpoints / "01UNKNOWN", checkpoints / "01YOUNG"
    for folder in (checkpoints / kept, checkpoints / gone, unknown, young):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    remnant, fresh = checkpoints / kept / "a.tmp", checkpoints / kept / "b.tmp"
    remnant.touch()
    fresh.touch()
    for path in (remnant, unknown / "file", unknown):
        os.utime(path, (1, 1))
    with sqlite_database.write() as session:
        lifecycle.cancel(session, gone)
        row = steering.mark_deleted(session, gone)
        assert row is not None
        row.deleted_at = 1.0
    queue = Queue(settings)
    Reconciler(settings, sqlite_database, queue).tick()
    queue.close()
    assert not unknown.exists()
    assert not (checkpoints / gone).exists()
    assert not remnant.exists()
    assert (young / "file").exists()
    assert fresh.exists()
    assert (checkpoints / kept / "file").exists()
    with sqlite_database.read() as session:
        assert experiments.ids_with_deleted(session, [kept, gone]) == {kept}


def test_trained_networks_go_with_the_last_experiment_that_names_them(
    settings: Settings, sqlite_database: Database
) -> None:
    weights = Path(settings.storage) / "weights"
    weights.mkdir(parents=True)
    alone, shared, start, young = (digest * 64 for digest in "abcd")
    for digest in (alone, shared, start, young):
        (weights / f"{digest}.safetensors").touch()
        if digest != young:
            os.utime(weights / f"{digest}.safetensors", (1, 1))
    first, second = submit(sqlite_database), submit(sqlite_database)
    pretrained = {"weights": [start]}
    third = submit(sqlite_database, models={"family": "tiny-mlp", "pretrained": pretrained})
    made = [(first, alone), (first, shared), (first, start), (first, young), (second, shared)]
    with sqlite_database.write() as session:
        for number, (key, digest) in enumerate(made):
            file = f"weights/{digest}.safetensors"
            wanted, _ = artifacts.want(session, key, "weights", {"clients": [number]})
            wanted.state, wanted.file = ArtifactState.READY, file

    def left_after_removing(key: str) -> set[str]:
        with sqlite_database.write() as session:
            lifecycle.cancel(session, key)
            row = steering.mark_deleted(session, key)
            assert row is not None
            row.deleted_at = 1.0
        queue = Queue(settings)
        reconciler = Reconciler(settings, sqlite_database, queue)
        reconciler.tick()
        reconciler.stop()
        queue.close()
        return {path.name[:1] for path in weights.iterdir()}

    assert left_after_removing(first) == {"b", "c", "d"}, "shared, the start of another, or of an artifact to be"
    assert left_after_removing(second) == {"c", "d"}
    assert left_after_removing(third) == {"d"}
