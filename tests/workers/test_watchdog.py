"""Children that freeze, die or do not obey, as the watchdog sees them: by files and processes, without the database."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.config import Settings
from app.store import database as database_module
from app.store import lifecycle, orphans, queue, steering
from app.store.database import Database
from app.store.states import State
from tests.services import ROOT, claim, environment, http, look, serving, spec_with, state, submit, wait_until
from workers import machine, watchdog
from workers.fleet import fleet
from workers.pulse import Holding, Pulse, read_pulses
from workers.watchdog import PACE_SECONDS, Pace, Stillness, Watchdog, is_alive

CHILD = """
import os, signal, sys, time
from app.config import Settings
from app.store.database import Database
from sqlalchemy import text
from workers.pulse import Pulse
settings = Settings()
Pulse(settings, "w", sys.argv[1], int(sys.argv[2])).start()
if sys.argv[3] == "lock":
    with Database(settings.database).write() as session:
        session.execute(text("UPDATE counter SET value = value"))
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
if sys.argv[3] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def child(settings: Settings, experiment: str, fence: int, manner: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a pulse, as a job has it."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, experiment, str(fence), manner],
        env=environment(settings),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"watchdog_seconds": 2.0})


def test_a_process_frozen_with_the_write_lock_is_killed_and_writers_go_on(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_MILLISECONDS", 200)
    key = submit(sqlite_database)
    held = claim(sqlite_database, "w", lease_seconds=600)
    assert held is not None
    with serving(quick) as address, http(address) as client, child(quick, key, held.fence, "lock") as frozen:
        answer = client.post("/api/experiments", json=spec_with())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), "busy, not broken"
        assert client.get("/api/experiments").status_code == 200, "reading goes on"
        dog = Watchdog(quick, "w")
        dog.start()
        assert frozen.wait(timeout=60) == -signal.SIGKILL
        wait_until(lambda: client.post("/api/experiments", json=spec_with()).status_code == 201, what="a writer")
        wait_until(lambda: not dog.holdings(), what="the burial")
        dog.stop()
        dog.settle(sqlite_database)
    with sqlite_database.read() as session:
        assert queue.due(session) >= 2, "what it held can be taken at once, long before its lease ends"


def test_a_child_that_beats_is_left_alone(quick: Settings, home: Path) -> None:
    pulse = Pulse(quick, "w", "01EXPERIMENT", 3)
    pulse.start()
    dog = Watchdog(quick, "w")
    for _ in range(watchdog.TICKS + 5):
        for path in read_pulses(quick, "w"):
            os.utime(path)
        dog.look()
    pulse.note(rounds=7)
    assert dog.holdings() == [Holding(os.getpid(), "01EXPERIMENT", 3)]
    wait_until(lambda: dog.holdings()[0].rounds == 7, what="the news")
    dog.look()
    assert dog.rounds() == 7
    pulse.stop()
    assert dog.holdings() == []


def test_the_pace_of_a_worker_is_that_of_the_last_minutes() -> None:
    pace = Pace(0)
    assert pace.after(15, 0) == 0
    assert pace.after(120, 1) == 0.5, "a slow round counts beyond the heartbeat in which it ended"
    assert [pace.after(120 + 60 * minute, 1 + minute) for minute in range(1, 30)][-1] == 1, (
        "the slow start is forgotten"
    )
    assert pace.after(120 + 60 * 29 + PACE_SECONDS, 30) == 0, "nothing for so long"


def test_a_dead_childs_claim_is_given_up_at_once(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database)
    held = claim(sqlite_database, "w", lease_seconds=600)
    assert held is not None
    with child(quick, key, held.fence, "quiet") as process:
        process.kill()
        process.wait()
        dog = Watchdog(quick, "w")
        dog.look()
        dog.settle(sqlite_database)
    successor = claim(sqlite_database, "next")
    assert successor is not None
    assert successor.fence == held.fence + 1


def test_a_cancel_that_is_not_obeyed_is_enforced_first_kindly_then_not(
    quick: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database)
    held = claim(sqlite_database, "w", lease_seconds=600)
    assert held is not None

    def cancelled_before(seconds: float) -> None:
        with sqlite_database.write() as session:
            row = lifecycle.locked(session, key)
            assert row is not None
            assert row.cancel_at is not None
            row.cancel_at -= seconds

    with child(quick, key, held.fence, "deaf") as process:
        dog = Watchdog(quick, "w")
        with sqlite_database.write() as session:
            lifecycle.cancel(session, key)
        dog.settle(sqlite_database)
        cancelled_before(watchdog.TERMINATE_SECONDS)
        dog.settle(sqlite_database)
        assert dog._asked == {(key, held.fence)}
        assert is_alive(process.pid), "it is deaf to SIGTERM"
        cancelled_before(watchdog.KILL_SECONDS)
        dog.settle(sqlite_database)
        assert process.wait(timeout=10) == -signal.SIGKILL
        dog.look()
        dog.settle(sqlite_database)
    with sqlite_database.write() as session:
        assert orphans.expire_cancelling(session, 180) == [key]
    assert state(sqlite_database, key) is State.CANCELLED


def test_a_claim_taken_by_somebody_else_is_not_enforced_here(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database)
    claim(sqlite_database, "w", lease_seconds=-1)
    assert claim(sqlite_database, "w") is not None
    with child(quick, key, 1, "quiet") as process:
        with sqlite_database.write() as session:
            lifecycle.cancel(session, key)
            row = lifecycle.locked(session, key)
            assert row is not None
            assert row.cancel_at is not None
            row.cancel_at -= 1000
        Watchdog(quick, "w").settle(sqlite_database)
        assert is_alive(process.pid)


def test_a_frozen_main_process_is_noticed_by_the_one_who_started_it(tmp_path: Path) -> None:
    pulse = tmp_path / "main"
    stillness = Stillness(pulse, seconds=3, period=1)
    assert [stillness.is_too_long() for _ in range(5)] == [False] * 5, "it may still be starting"
    pulse.touch()
    assert [stillness.is_too_long() for _ in range(4)] == [False, False, False, True]
    os.utime(pulse, ns=(1, 1))
    assert not stillness.is_too_long()


def test_a_machine_is_known_by_more_than_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.identity()
    assert here == machine.identity()
    monkeypatch.setattr("socket.gethostname", lambda: "other")
    assert machine.identity() != here
    memory = machine.memory()
    assert memory is not None
    assert 0 < memory[0] <= memory[1]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("cpu", ["cpu"]), ("cuda:0,cuda:1", ["cuda:0", "cuda:1"]), ("cuda:1,cuda:1", ["cuda:1"])],
)
def test_a_device_is_named_once(wanted: str, found: list[str]) -> None:
    assert machine.devices(wanted) == found


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to a core")
def test_only_the_cores_that_the_process_may_use_are_counted() -> None:
    bound = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})"
    ask = [sys.executable, "-c", f"{bound}; from workers import machine; print(machine.cores())"]
    assert subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize(
    ("outer", "inner", "cores"),
    [("max 100000", "200000 100000", 2), ("150000 100000", "max 100000", 2), ("50000 100000", "400000 100000", 1)],
)
def test_the_strictest_quota_of_the_groups_around_a_process_counts(
    tmp_path: Path, outer: str, inner: str, cores: int
) -> None:
    group = tmp_path / "slice" / "service"
    group.mkdir(parents=True)
    assert machine.quota_of(group) == sys.maxsize, "none"
    (group.parent / "cpu.max").write_text(f"{outer}\n")
    (group / "cpu.max").write_text(f"{inner}\n")
    assert machine.quota_of(group) == cores


def test_the_workers_of_a_machine_divide_its_cores_by_their_slots(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 16)
    assert [worker.cores for worker in fleet(settings, [("cuda:0", 6), ("cuda:1", 2)])] == [12, 4]
    assert [worker.cores for worker in fleet(settings, [("cuda:0", 40), ("cpu", 1)])] == [15, 1], "at least one"


def test_slots_chosen_by_themselves_are_the_cores_or_what_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    for free, slots in ((1 << 30, 1), (9 << 30, 4), (80 << 30, 8)):
        monkeypatch.setattr(machine, "memory", lambda free=free: (free, 100 << 30))
        assert machine.slots_for("cpu") == slots
    for free, slots in ((0, 1), (3 << 30, 1), (9 << 30, 2), (80 << 30, 8)):
        monkeypatch.setattr(machine, "_ask_torch", lambda _, free=free: free)
        assert machine.slots_for("cuda:0") == slots


def test_paused_by_hand_stays_paused_while_a_dead_child_is_buried(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database)
    held = claim(sqlite_database, "w", lease_seconds=600)
    assert held is not None
    with sqlite_database.write() as session:
        steering.pause(session, key)
        assert orphans.give_up(session, key, held.fence)
        assert orphans.settle(session) == [key]
    assert look(sqlite_database, key).state is State.PAUSED


def test_an_error_of_the_watchdog_does_not_end_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]

    def fails_once(*_: object) -> dict[Path, tuple[Holding, int]]:
        looks[0] += 1
        if looks[0] == 1:
            raise ValueError("a bug")
        return {}

    monkeypatch.setattr(watchdog, "read_pulses", fails_once)
    watching = Watchdog(settings.model_copy(update={"watchdog_seconds": 1.0}), "w")
    watching.start()
    wait_until(lambda: looks[0] > 2, what="further looks")
    watching.stop()
    assert not watchdog.main_pulse(settings, os.getpid()).exists()
