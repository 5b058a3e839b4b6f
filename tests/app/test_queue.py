"""Hints through the real broker, and without one."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from app.api.services import Services
from app.config import Settings
from app.events import Events
from app.queue import Queue, make_celery
from app.reconciler import SPARE_HINTS, Reconciler
from app.rehearsals import Rehearsals
from app.store import lifecycle, workers
from app.store.database import Database
from app.store.queue import MAX_DEATHS
from app.store.states import State
from tests.services import ROOT, claim, state, submit, wait_until
from workers.embedded import Broker


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    settings.prepare_home()
    broker = Broker(settings)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def queue(settings: Settings) -> Iterator[Queue]:
    queue = Queue(settings)
    yield queue
    queue.close()


def test_celery_is_set_for_long_tasks(settings: Settings) -> None:
    conf = make_celery(settings).conf
    assert conf.task_acks_late
    assert conf.accept_content == ["json"]
    assert conf.worker_prefetch_multiplier == 1
    assert conf.worker_pool_start_method == "spawn"
    assert conf.worker_max_tasks_per_child == 1
    assert conf.broker_transport_options["visibility_timeout"] == conf.visibility_timeout == 86_400
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert conf.result_backend is None


def test_hints_are_counted_by_the_broker(broker: Broker, queue: Queue) -> None:
    assert queue.outstanding() == 0
    assert queue.send(3)
    assert queue.outstanding() == 3


def test_a_hint_is_sent_in_the_background(broker: Broker, queue: Queue) -> None:
    queue.hint()
    wait_until(lambda: queue.outstanding() == 1, what="the hint")


def test_many_experiments_at_once_are_hinted_to_every_slot(
    settings: Settings, sqlite_database: Database, broker: Broker, queue: Queue
) -> None:
    with sqlite_database.write() as session:
        workers.register(session, name="w", host="here", pid=1, device="cpu", slots=3)
    services = Services(settings, sqlite_database, queue, Events(sqlite_database), Rehearsals(settings))
    for _ in range(2):
        submit(sqlite_database)
    services.hint_slots()
    wait_until(lambda: queue.outstanding() == 2, what="a hint for each experiment")
    for _ in range(5):
        submit(sqlite_database)
    services.hint_slots()
    wait_until(lambda: queue.outstanding() == 5, what="and one for each slot")


def test_a_store_that_went_away_after_the_commit_costs_only_hints(
    settings: Settings, sqlite_database: Database, broker: Broker, queue: Queue
) -> None:
    services = Services(settings, sqlite_database, queue, Events(sqlite_database), Rehearsals(settings))
    with sqlite_database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE worker")
    services.hint_slots()
    wait_until(lambda: queue.outstanding() == 1, what="the hint")


def test_without_a_broker_a_hint_returns_at_once_and_the_trouble_is_logged_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        before = time.monotonic()
        for _ in range(100):
            queue.hint()
        returned = time.monotonic()
        assert not queue.send()
        failed = time.monotonic()
        assert queue.outstanding() is None
    assert returned - before < failed - before, "hinting does not wait for the broker"
    assert caplog.text.count("does not answer") == 1


def test_hints_travel_through_files_where_there_is_no_server(settings: Settings) -> None:
    settings = settings.model_copy(update={"broker_url": "filesystem://"})
    queue = Queue(settings)
    assert queue.send(2)
    assert queue.outstanding() == 2
    queue.close()


def test_a_process_that_only_looks_for_work_does_not_import_torch() -> None:
    modules = "app.store.rounds, app.store.migrate, app.queue, app.reconciler, workers.tasks, workers.launch, app.cli"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_claim_that_finds_nothing_does_not_import_torch(settings: Settings, sqlite_database: Database) -> None:
    code = (
        "import sys; from app.config import Settings; from workers.job import run_next; "
        f"print(run_next(Settings(home={str(settings.home)!r}), 'me'), 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "None False"


def test_the_reconciler_keeps_a_few_hints_outstanding_and_no_more(
    broker: Broker, queue: Queue, settings: Settings, sqlite_database: Database
) -> None:
    reconciler = Reconciler(settings, sqlite_database, queue)
    assert reconciler.tick() == 0
    for _ in range(10):
        submit(sqlite_database)
    assert reconciler.tick() == SPARE_HINTS
    assert reconciler.tick() == 0, "the hints are still there"
    with sqlite_database.write() as session:
        workers.register(session, name="w", host="h", pid=1, device="cpu", slots=3)
    assert reconciler.tick() == 3
    assert queue.outstanding() == 3 + SPARE_HINTS


def test_hints_lost_with_the_broker_are_sent_again(
    broker: Broker, queue: Queue, settings: Settings, sqlite_database: Database
) -> None:
    submit(sqlite_database)
    reconciler = Reconciler(settings, sqlite_database, queue)
    assert reconciler.tick() == 1
    broker.stop()
    assert reconciler.tick() == 0
    broker.start()
    assert reconciler.tick() == 1


def test_only_one_reconciler_acts_and_the_next_takes_over(
    broker: Broker, queue: Queue, settings: Settings, sqlite_database: Database
) -> None:
    submit(sqlite_database)
    first, second = (Reconciler(settings, sqlite_database, queue) for _ in range(2))
    assert first.tick() == 1
    queue.celery.control.purge()
    assert second.tick() == 0
    first.stop()
    assert second.tick() == 1


def test_the_reconciler_ends_what_dead_workers_left(
    queue: Queue, settings: Settings, sqlite_database: Database
) -> None:
    cancelled = submit(sqlite_database)
    claim(sqlite_database, lease_seconds=-1)
    with sqlite_database.write() as session:
        lifecycle.cancel(session, cancelled)
    hopeless = submit(sqlite_database)
    for _ in range(MAX_DEATHS):
        claim(sqlite_database, lease_seconds=-1)
    Reconciler(settings, sqlite_database, queue).tick()
    assert state(sqlite_database, cancelled) is State.CANCELLED
    assert state(sqlite_database, hopeless) is State.FAILED
