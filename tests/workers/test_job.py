"""One job in this process, with the real engine."""

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.config import Settings
from app.store import experiments, rounds
from app.store.database import Database
from app.store.rounds import Verdict
from app.store.states import State
from engine.run import Run
from engine.spec import ExperimentSpec
from tests.services import claim, look, spec_with, state, submit, wait_until
from workers.drain import Drain
from workers.job import Job, run_next, threads_of_a_slot

LONG = {"rounds": 5000}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"lease_seconds": 5.0, "heartbeat_seconds": 0.5, "threads": 1})


def undisturbed(**changes: Any) -> list[dict[str, Any]]:
    spec = ExperimentSpec.parse(spec_with(**changes))
    return [record.without_times() for record in Run(spec).rounds()]


def stored(database: Database, key: str) -> list[dict[str, Any]]:
    with database.read() as session:
        found = rounds.after(session, key)
    return [{name: value for name, value in row.items() if name not in rounds.TIMES} for row in found]


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
    assert row.partition_fingerprint == Run(ExperimentSpec.parse(spec_with())).partition_fingerprint
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


def test_a_cancel_is_obeyed_between_batches(
    running: tuple[str, threading.Thread, Settings], sqlite_database: Database
) -> None:
    key, thread, _ = running
    with sqlite_database.write() as session:
        experiments.cancel(session, key)
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert row.state is State.CANCELLED
    assert len(stored(sqlite_database, key)) == row.next_round


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
        experiments.expire_leases(session, "worker-1")
        successor = experiments.claim(session, "worker-2", 60)
    assert successor is not None
    number = look(sqlite_database, key).next_round
    thread.join(timeout=30)
    row = look(sqlite_database, key)
    assert (row.owner, row.next_round, row.state) == ("worker-2", number, State.RUNNING)


def test_a_continued_experiment_equals_an_undisturbed_one(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, rounds=6)
    expected = undisturbed(rounds=6)
    held = claim(sqlite_database, "first", lease_seconds=-1)
    assert held is not None
    run = Run(ExperimentSpec.parse(held.spec))
    with sqlite_database.write() as session:
        experiments.begin(session, held, run.partition_fingerprint, run.environment)
    for record, _ in zip(run.rounds(), range(3), strict=False):
        with sqlite_database.write() as session:
            rounds.commit_round(session, held, record, -1)
    before = stored(sqlite_database, key)
    assert len(before) == 3
    run_next(quick, "second")
    row = look(sqlite_database, key)
    assert (row.state, row.attempts, row.bit_identical) == (State.FINISHED, 2, True)
    assert stored(sqlite_database, key) == expected


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
    key = drained_after_some_rounds(quick, sqlite_database, rounds=60)
    stored_so_far = look(sqlite_database, key).next_round
    assert stored_so_far < 61
    computed: list[int] = []
    hand_in = Job._hand_in

    def noted(job: Job, record: Any, checkpoint: Any) -> Verdict:
        computed.append(record.round)
        return hand_in(job, record, checkpoint)

    monkeypatch.setattr(Job, "_hand_in", noted)
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert computed == list(range(stored_so_far, 61))
    assert stored(sqlite_database, key) == undisturbed(rounds=60)


def test_a_damaged_checkpoint_costs_time_but_no_different_number(quick: Settings, sqlite_database: Database) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=60)
    named = look(sqlite_database, key).checkpoint
    assert named is not None
    (quick.checkpoint_folder(key) / named).write_bytes(b"damaged")
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(rounds=60)


def test_a_lost_checkpoint_folder_costs_time_but_no_different_number(
    quick: Settings, sqlite_database: Database
) -> None:
    key = drained_after_some_rounds(quick, sqlite_database, rounds=60)
    shutil.rmtree(quick.checkpoint_folder(key))
    run_next(quick, "second")
    assert look(sqlite_database, key).state is State.FINISHED
    assert stored(sqlite_database, key) == undisturbed(rounds=60)


def test_only_the_newest_checkpoints_are_kept(quick: Settings, sqlite_database: Database) -> None:
    settings = quick.model_copy(update={"checkpoint_every": 1, "checkpoint_keep": 1})
    key = submit(sqlite_database, rounds=5)
    run_next(settings, "worker-1")
    [manifest] = quick.checkpoint_folder(key).glob("manifest-*")
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


def test_the_cores_are_shared_by_the_slots(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "4")
    assert threads_of_a_slot(settings) == 2
    assert threads_of_a_slot(settings.model_copy(update={"threads": 3})) == 3
    monkeypatch.setenv("FEDARENA_WORKER_SLOTS", "20")
    assert threads_of_a_slot(settings) == 1


@pytest.mark.parametrize(("grace_seconds", "dropped"), [(60.0, False), (0.0, True)])
def test_an_open_round_may_end_within_the_grace_period(
    quick: Settings, sqlite_database: Database, grace_seconds: float, dropped: bool
) -> None:
    submit(sqlite_database)
    held = claim(sqlite_database)
    assert held is not None
    job = Job(quick.model_copy(update={"grace_seconds": grace_seconds}), sqlite_database, held)
    assert not job.should_stop()
    job._start_draining()
    assert job.should_stop() is dropped
