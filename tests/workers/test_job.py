"""One job in this process, with the real engine."""

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from app.config import Settings
from app.disk import BALLAST_BYTES, Ballast, shortage
from app.queue import Queue
from app.reconciler import Reconciler
from app.store import experiments, lifecycle, logs, orphans, queue, rounds, steering
from app.store.database import Database
from app.store.plan import Plan, StopRule, Window
from app.store.states import State
from engine.runtime.checkpoint import LocalFiles
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, look, spec_with, state, submit, wait_until
from tests.workers import failpoints
from tests.workers.processes import rounds_computed, stored, undisturbed
from workers import machine
from workers.drain import Drain
from workers.job import Job, Leaving, run_due, run_next, threads_of_a_slot
from workers.pulse import Pulse

LONG: dict[str, Any] = {"rounds": 5000}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"lease_seconds": 5.0, "heartbeat_seconds": 0.5, "threads": 1})


def checkpoints_of(settings: Settings, experiment: str) -> Path:
    return Path(settings.storage) / "checkpoints" / experiment


@pytest.fixture
def running(quick: Settings, sqlite_database: Database) -> Iterator[tuple[str, threading.Thread, Settings]]:
    """A job in a thread, past its first rounds."""
    quick = quick.model_copy(update={"grace_seconds": 0.0})
    key = submit(sqlite_database, **LONG)
    thread = threading.Thread(target=run_next, args=(quick, "worker-1"))
    thread.start()
    wait_until(lambda: look(sqlite_database, key).next_round > 2, what="the first rounds")
    yield key, thread, quick
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_queued_experiment_runs_to_its_end_with_the_engines_numbers(
    quick: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database)
    assert run_next(quick, "worker-1") == key
    row = look(sqlite_database, key)
    assert (row.state, row.next_round, row.owner, row.attempts) == (State.FINISHED, 4, None, 1)
    assert row.environment is not None
    assert row.environment["device"] == "cpu"
    run = Run(ExperimentSpec.parse(spec_with()))
    assert (row.partition_fingerprint, row.majority_share) == (run.partition_fingerprint, run.majority_share)
    assert stored(sqlite_database, key) == undisturbed()


def test_with_no_work_there_is_nothing_to_do(quick: Settings, sqlite_database: Database) -> None:
    assert run_next(quick, "worker-1") is None


def test_a_stopping_worker_takes_no_new_work(quick: Settings, sqlite_database: Database) -> None:
    submit(sqlite_database)
    drain = Drain(quick, "worker-1")
    drain.ask()
    assert run_next(quick, "worker-1") is None
    drain.clear()
    assert run_next(quick, "worker-1") is not None


def test_an_exception_fails_the_experiment_once_with_its_traceback(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, dataset={"name": "domainnet"})
    assert run_next(quick, "worker-1") == key
    row = look(sqlite_database, key)
    assert row.state is State.FAILED
    assert "DataMissing" in (row.error_reason or "")
    assert "Traceback" in (row.error_detail or "")
    assert run_next(quick, "worker-1") is None


def test_a_loss_that_is_no_number_ends_the_experiment_as_diverged(quick: Settings, sqlite_database: Database) -> None:
    training = {"epochs": 20, "batch_size": 4, "lr": 10.0, "momentum": 0.99, "clip": None}
    key = submit(sqlite_database, rounds=200, training=training)
    run_next(quick, "worker-1")
    row = look(sqlite_database, key)
    assert row.state is State.DIVERGED
    assert "loss of client" in (row.error_reason or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"epochs": 1000, "batch_size": 1}},
        {"algorithm": {"name": "fedtgp", "server_epochs": 10_000, "server_batch": 1}},
    ],
    ids=["a client trains", "the server trains"],
)
def test_a_cancel_is_obeyed_within_a_round(quick: Settings, sqlite_database: Database, changes: dict[str, Any]) -> None:
    """A round that would last for minutes: its end cannot be what ends the experiment."""
    key = submit(sqlite_database, rounds=1, clients=4, **changes)
    thread = threading.Thread(target=run_next, args=(quick, "worker-1"))
    thread.start()
    wait_until(lambda: look(sqlite_database, key).next_round == 1, what="the opening")
    time.sleep(1)  # into the training
    with sqlite_database.write() as session:
        lifecycle.cancel(session, key)
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.state, row.next_round, thread.is_alive()) == (State.CANCELLED, 1, False)


def test_a_drained_job_gives_the_experiment_back(
    running: tuple[str, threading.Thread, Settings], sqlite_database: Database
) -> None:
    key, thread, settings = running
    Drain(settings, "worker-1").ask()
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.lease, row.deaths) == (State.QUEUED, None, None, 0)


def test_a_job_whose_claim_was_taken_stops_and_writes_nothing_more(
    running: tuple[str, threading.Thread, Settings], sqlite_database: Database
) -> None:
    key, thread, _ = running
    with sqlite_database.write() as session:  # one transaction: the owner would renew its lease in between
        orphans.expire_leases(session, "worker-1")
        successor = queue.claim(session, "worker-2", 60)
    assert successor is not None
    number = look(sqlite_database, key).next_round
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.owner, row.next_round, row.state) == ("worker-2", number, State.RUNNING)


@pytest.mark.parametrize("error", [NoConnectionLeft("the pool is empty"), ZeroDivisionError("a bug")])
def test_an_error_of_the_heartbeat_does_not_end_it(
    running: tuple[str, threading.Thread, Settings], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _, thread, quick = running
    renewed, renew = [0], lifecycle.renew

    def fails_twice(*arguments: Any) -> Any:
        renewed[0] += 1
        if renewed[0] <= 2:
            raise error
        return renew(*arguments)

    monkeypatch.setattr(lifecycle, "renew", fails_twice)
    wait_until(lambda: renewed[0] > 3, what="a lease that is kept again")
    assert thread.is_alive()
    Drain(quick, "worker-1").ask()


def test_a_job_that_cannot_keep_its_lease_gives_the_experiment_back_before_another_worker_takes_it(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(lifecycle, "renew", fails)
    monkeypatch.setattr(lifecycle, "standing", fails)
    key = submit(sqlite_database, **LONG)
    assert run_next(quick.model_copy(update={"lease_seconds": 2.0}), "worker-1") == key
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.error_reason) == (State.QUEUED, None, None)


def test_a_continued_experiment_equals_an_undisturbed_one(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, rounds=6)
    expected = undisturbed(rounds=6)
    held = claim(sqlite_database, "first", lease_seconds=-1)
    assert held is not None
    run = Run(ExperimentSpec.parse(held.spec))
    with sqlite_database.write() as session:
        lifecycle.begin(session, held, run.partition_fingerprint, run.environment)
    for record, _ in zip(run.rounds(), range(3), strict=False):
        with sqlite_database.write() as session:
            rounds.commit_round(session, held, record, -1)
    before = stored(sqlite_database, key)
    assert len(before) == 3
    run_next(quick, "second")
    row = look(sqlite_database, key)
    assert (row.state, row.attempts, row.bit_identical) == (State.FINISHED, 2, True)
    assert stored(sqlite_database, key) == expected


MANY = 150
"""Rounds of a few milliseconds: more than a busy machine makes between an order to stop and the look at it."""


def drained_after_some_rounds(settings: Settings, database: Database, **changes: Any) -> str:
    """An experiment that a first worker gave back in the middle, with a checkpoint after every round."""
    key = submit(database, **changes)
    settings = settings.model_copy(update={"checkpoint_every": 1})
    thread = threading.Thread(target=run_next, args=(settings, "first"))
    thread.start()
    wait_until(lambda: look(database, key).next_round > 4, what="the first rounds")
    Drain(settings, "first").ask()
    thread.join(timeout=30)
    assert look(database, key).state is State.QUEUED
    return key


def test_a_worker_goes_on_after_the_checkpoint_of_another_one(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=MANY)
    stored_so_far = look(sqlite_database, key).next_round
    assert stored_so_far < MANY + 1
    computed = rounds_computed(monkeypatch)
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert computed == list(range(stored_so_far, MANY + 1))
    assert stored(sqlite_database, key) == undisturbed(rounds=MANY)


def test_a_job_that_goes_on_counts_only_its_own_rounds(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=MANY)
    before = look(sqlite_database, key).next_round
    counted: list[int] = []
    monkeypatch.setattr(Pulse, "note", lambda _, *, rounds, **__: counted.append(rounds))
    run_next(quick, "second")
    assert counted == list(range(1, MANY + 2 - before))


def test_a_damaged_checkpoint_costs_time_but_no_different_number(quick: Settings, sqlite_database: Database) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=MANY)
    named = look(sqlite_database, key).checkpoint
    assert named is not None
    (checkpoints_of(quick, key) / named).write_bytes(b"damaged")
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(rounds=MANY)


def test_a_lost_checkpoint_folder_costs_time_but_no_different_number(
    quick: Settings, sqlite_database: Database
) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=MANY)
    shutil.rmtree(checkpoints_of(quick, key))
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(rounds=MANY)


def test_only_the_newest_checkpoints_are_kept(quick: Settings, sqlite_database: Database) -> None:
    settings = quick.model_copy(update={"checkpoint_every": 1, "checkpoint_keep": 1})
    key = submit(sqlite_database, rounds=5)
    run_next(settings, "worker-1")
    [manifest] = checkpoints_of(quick, key).glob("manifest-*")
    assert manifest.name == look(sqlite_database, key).checkpoint


def test_a_locked_store_delays_a_job_but_does_not_fail_it(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.store import database as database_module

    monkeypatch.setattr(database_module, "BUSY_MILLISECONDS", 50)
    key = submit(sqlite_database, rounds=30)
    thread = threading.Thread(target=run_next, args=(quick, "worker-1"))
    thread.start()
    wait_until(lambda: look(sqlite_database, key).next_round > 1, what="the first rounds")
    with sqlite_database.write() as session:
        experiments.count(session)  # takes the lock
        thread.join(timeout=1.0)
    thread.join(timeout=60)
    assert state(sqlite_database, key) is State.FINISHED


def test_a_paused_job_ends_after_its_round_with_a_checkpoint_and_goes_on_there(
    quick: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database, rounds=150)
    thread = threading.Thread(target=run_next, args=(quick, "first"))
    thread.start()
    wait_until(lambda: look(sqlite_database, key).next_round > 2, what="the first rounds")
    with sqlite_database.write() as session:
        steering.pause(session, key)
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.state, row.hold, row.owner, row.deaths) == (State.PAUSED, "asked", None, 0)
    assert f"manifest-round-{row.next_round - 1:06d}-" in (row.checkpoint or "")
    assert run_next(quick, "second") is None
    with sqlite_database.write() as session:
        steering.resume(session, key)
    assert run_next(quick, "second") == key
    assert stored(sqlite_database, key) == undisturbed(rounds=150)


def test_a_job_whose_window_closes_gives_the_experiment_back_to_the_queue(
    running: tuple[str, threading.Thread, Settings], sqlite_database: Database
) -> None:
    key, thread, settings = running
    now = datetime.now(UTC)
    closed = Window.of_minutes((now.hour * 60 + now.minute + 60) % 1440, (now.hour * 60 + now.minute + 120) % 1440)
    with sqlite_database.write() as session:
        steering.change_plan(session, key, Plan(window=closed).columns())
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.state, row.hold, row.owner) == (State.QUEUED, None, None)
    assert row.checkpoint is not None
    assert run_next(settings, "second") is None, "not before its window opens"


def test_a_job_ended_by_its_stop_rule_has_a_checkpoint_of_its_last_round(
    quick: Settings, sqlite_database: Database
) -> None:
    spec = ExperimentSpec.parse(spec_with(rounds=50))
    with sqlite_database.write() as session:
        plan = Plan(stop=StopRule(target=0.01))
        key = experiments.submit(session, spec.canonical(), spec.fingerprint(), plan).id
    run_next(quick.model_copy(update={"checkpoint_every": 100}), "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.next_round) == (State.FINISHED, 2)
    assert "target" in (row.stopped_by or "")
    assert "manifest-round-000001-" in (row.checkpoint or "")


def test_what_a_job_logs_is_kept_with_its_experiment(
    quick: Settings, sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        key = submit(sqlite_database)
        run_next(quick, "worker-1")
        failing = submit(sqlite_database, dataset={"name": "domainnet"})
        run_next(quick, "worker-1")
    with sqlite_database.read() as session:
        lines = [(line.level, line.text) for line in logs.after(session, key)]
        errors = [line.text for line in logs.after(session, failing) if line.level == "error"]
    assert lines[0] == ("info", f"experiment {key}: worker worker-1 on cpu with 1 threads starts")
    assert lines[-1] == ("info", f"experiment {key}: finished at round 3")
    assert "DataMissing" in errors[0]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("cannot allocate"),
        RuntimeError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("could not create a primitive"),
        torch.OutOfMemoryError("4 GB"),
    ],
    ids=["memory", "cuda", "cublas", "onednn", "torch"],
)
def test_too_little_memory_fails_this_experiment_alone_with_advice(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    key, other = submit(sqlite_database), submit(sqlite_database)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "rounds", raising(error))
        run_next(quick, "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.attempts) == (State.FAILED, 1)
    assert "smaller batch_size" in (row.error_reason or "")
    run_next(quick, "worker-1")
    assert state(sqlite_database, other) is State.FINISHED


def test_what_does_not_fit_into_memory_fails_alone(quick: Settings, sqlite_database: Database) -> None:
    large = {"name": "synthetic", "classes": 4, "samples_per_class": 500, "channels": 3, "size": 32}
    key = submit(sqlite_database, dataset=large, models={"family": "cnn-5"}, training={"epochs": 1, "batch_size": 1024})
    other = submit(sqlite_database)
    process = failpoints.start(failpoints.run_with_little_memory, quick, "worker-1", 80)
    process.join()
    row = look(sqlite_database, key)
    assert (process.exitcode, row.state, row.attempts) == (0, State.FAILED, 1)
    assert "smaller batch_size" in (row.error_reason or "")
    assert "FEDARENA_STACKED=off" in (row.error_reason or "")
    assert run_next(quick, "worker-1") == other


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_full_disk_pauses_the_experiment_and_keeps_its_last_good_round(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = quick.model_copy(update={"checkpoint_every": 1})
    assert Ballast(settings).make()
    key = submit(sqlite_database, rounds=6)
    write = LocalFiles.write

    def full_from_round_four(files: LocalFiles, name: str, content: bytes) -> None:
        if "round-4" in name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(files, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write", full_from_round_four)
        run_next(settings, "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.next_round, row.owner) == (State.PAUSED, 4, None)
    assert (row.hold or "").startswith("disk full: [Errno 28] No space left on device")
    assert not Ballast(settings).path.exists(), "it made room for the last words"
    hints = Queue(settings)
    Reconciler(settings, sqlite_database, hints).tick()
    hints.close()
    assert state(sqlite_database, key) is State.QUEUED, "resumed by itself, there is room"
    assert Ballast(settings).path.stat().st_size == BALLAST_BYTES
    run_next(settings, "worker-2")
    assert stored(sqlite_database, key) == undisturbed(rounds=6)


def test_a_pulse_that_finds_no_room_pauses_the_experiment(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = submit(sqlite_database)
    monkeypatch.setattr(Pulse, "_write", raising(OSError(errno.ENOSPC, "No space left on device")))
    run_next(quick, "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.lease, row.deaths) == (State.PAUSED, None, None, 0)
    assert (row.hold or "").startswith("disk full")


def test_a_job_that_cannot_show_its_pulse_gives_the_experiment_back(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database)
    (quick.home / "pulse").write_text("a file where the folder should be")
    run_next(quick, "worker-1")
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.lease, row.deaths) == (State.QUEUED, None, None, 0)
    (quick.home / "pulse").unlink()
    assert run_next(quick, "worker-1") == key
    assert state(sqlite_database, key) is State.FINISHED


def test_where_nothing_can_be_written_no_work_is_taken(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = submit(sqlite_database)
    monkeypatch.setattr("os.access", lambda *_, **__: False)  # root may write into a folder whatever its mode is
    assert run_next(quick, "worker-1") is None
    assert "cannot be written" in (shortage(quick) or "")
    assert look(sqlite_database, key).attempts == 0


def test_with_too_little_room_no_work_is_taken(quick: Settings, sqlite_database: Database) -> None:
    submit(sqlite_database)
    scarce = quick.model_copy(update={"disk_low_mb": 10_000_000})
    assert run_next(scarce, "worker-1") is None
    assert "must stay free" in (shortage(scarce) or "")


def test_one_process_runs_several_experiments_until_one_fails(quick: Settings, sqlite_database: Database) -> None:
    good = [submit(sqlite_database), submit(sqlite_database)]
    bad, last = submit(sqlite_database, dataset={"name": "domainnet"}), submit(sqlite_database)
    assert run_due(quick, "worker-1") == 3
    assert [state(sqlite_database, key) for key in good] == [State.FINISHED, State.FINISHED]
    assert (state(sqlite_database, bad), state(sqlite_database, last)) == (State.FAILED, State.QUEUED)


def test_a_lone_experiment_has_all_cores_and_several_share_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "8")
    assert [threads_of_a_slot(settings, busy) for busy in (1, 2, 3, 8, 200)] == [8, 4, 2, 1, 1]


def test_the_cores_are_shared_by_the_slots(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "4")
    assert threads_of_a_slot(settings) == 2
    assert threads_of_a_slot(settings.model_copy(update={"threads": 3})) == 3
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "20")
    assert threads_of_a_slot(settings) == 1


def test_a_worker_beside_others_shares_out_its_own_cores_only(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "2")
    monkeypatch.setenv("FEDARENA_WORKER_CORES", "4")
    assert [threads_of_a_slot(settings, busy) for busy in (1, 2)] == [4, 2]


@pytest.mark.parametrize(("grace_seconds", "dropped"), [(60.0, False), (0.0, True)])
def test_an_open_round_may_end_within_the_grace_period(
    quick: Settings, sqlite_database: Database, grace_seconds: float, dropped: bool
) -> None:
    submit(sqlite_database)
    held = claim(sqlite_database)
    assert held is not None
    job = Job(quick.model_copy(update={"grace_seconds": grace_seconds}), sqlite_database, held)
    assert not job.should_stop()
    job._leave(Leaving.DRAIN)
    assert job.should_stop() is dropped
