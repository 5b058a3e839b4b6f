"""From REST through the real broker to real worker processes and back."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from app.client import FedArena
from app.config import Settings
from app.queue import Queue
from app.store import workers
from app.store.database import Database
from app.store.migrate import migrate
from app.store.states import State
from tests.services import look, postgres_database, serving, short_folder, spec_with, state, submit, wait_until
from tests.workers.processes import LONG, ended, has_rounds, holdings, stored, undisturbed, worker
from workers.embedded import Broker
from workers.watchdog import is_alive

pytestmark = pytest.mark.chaos


@dataclass(frozen=True)
class Running:
    """Web, broker and a worker with two slots, shared by tests that kill nobody."""

    database: Database
    arena: FedArena


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with short_folder() as home:
        settings = Settings(home=home, starter=False)
        database, broker = Database(settings.database), Broker(settings)
        migrate(database)
        broker.start()
        with serving(settings) as address, worker(settings, "--slots", "2"), FedArena(address) as arena:
            yield Running(database, arena)
        broker.stop()
        database.close()


def test_a_posted_spec_is_run_by_a_worker_and_seen_live(running: Running) -> None:
    key = running.arena.submit(spec_with())["id"]
    events = list(running.arena.watch(key))
    with running.database.read() as session:
        [row] = workers.known(session)
    assert (row.device, row.slots) == ("cpu", 2)
    assert [event.data["round"] for event in events if event.kind == "round"] == [0, 1, 2, 3]
    assert events[-1].data["state"] == "finished"
    assert stored(running.database, key) == undisturbed()


def test_a_sweep_runs_through_the_queue_and_its_table_fills(running: Running) -> None:
    document = {
        "name": "two by two",
        "base": {key: value for key, value in spec_with().items() if key not in {"name", "seed"}},
        "grid": {"algorithm.name": ["fedavg", "standalone"]},
        "seeds": {"from": 1, "count": 2},
    }
    key = running.arena.submit_sweep(document)["id"]
    view = running.arena.wait_sweep(key, every=0.2)
    table = running.arena.sweep_table(key)
    again = running.arena.submit_sweep(document)
    assert (view["state"], view["counts"], view["rounds_done"]) == ("finished", {"finished": 4}, 12)
    assert [(row["algorithm.name"], row["seeds"]) for row in table] == [("fedavg", 2), ("standalone", 2)]
    [first, *_] = view["cells"][1]["runs"]
    assert stored(running.database, first["experiment"]) == undisturbed(algorithm={"name": "standalone"}, seed=1)
    assert (again["reused"], again["state"]) == (4, "finished")


def test_pause_and_resume_reach_a_real_worker(running: Running) -> None:
    arena = running.arena
    key = arena.submit(spec_with(**LONG))["id"]
    wait_until(lambda: has_rounds(running.database, key, 2), what="the first rounds")
    assert arena.pause(key)["pause"]
    wait_until(lambda: state(running.database, key) is not State.RUNNING, what="the pause")
    assert (state(running.database, key), look(running.database, key).hold) == (State.PAUSED, "asked")
    [seen] = arena.workers()
    assert seen["report"]["versions"]["python"]
    arena.resume(key)
    wait_until(lambda: ended(running.database, key), seconds=120, what="the end")
    assert any("given back: it is to be paused" in line["text"] for line in arena.log(key))
    assert stored(running.database, key) == undisturbed(**LONG)


def test_a_worker_asked_to_stop_gives_its_experiment_back_and_leaves(
    with_broker: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database, rounds=100_000)
    with worker(with_broker) as process:
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        process.terminate()
        assert process.wait(timeout=60) == 0
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.lease, row.deaths) == (State.QUEUED, None, None, 0)
    assert len(stored(sqlite_database, key)) == row.next_round
    with sqlite_database.read() as session:
        assert workers.known(session) == []


def test_with_hints_in_files_too_a_worker_asked_to_stop_lets_a_long_round_end(
    with_broker: Settings, sqlite_database: Database
) -> None:
    settings = with_broker.model_copy(update={"broker_url": "filesystem://"})
    submit(sqlite_database, **LONG)
    queue = Queue(settings)
    with worker(settings) as process:
        # not the child that came with the worker: its successors are started by a thread, which ends before the round
        [first] = wait_until(lambda: holdings(settings, sqlite_database), what="the first child")
        wait_until(lambda: not is_alive(first.pid), what="its end")
        key = submit(sqlite_database, rounds=1000, training={"epochs": 1000, "batch_size": 4})
        queue.send()
        wait_until(lambda: has_rounds(sqlite_database, key, 1), what="the opening")
        process.terminate()
        assert process.wait(timeout=60) == 0
    queue.close()
    row = look(sqlite_database, key)
    assert (row.state, row.owner, row.deaths, row.next_round) == (State.QUEUED, None, 0, 2)


def test_with_hints_in_files_too_a_child_dies_with_its_worker(with_broker: Settings, sqlite_database: Database) -> None:
    settings = with_broker.model_copy(update={"broker_url": "filesystem://", "lease_seconds": 600.0})
    key = submit(sqlite_database, rounds=100_000)
    with worker(settings) as process:
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        [orphan] = holdings(settings, sqlite_database)
        process.kill()  # the worker alone, as the kernel does when memory is short
        wait_until(lambda: not is_alive(orphan.pid), what="its child's end")
    # it ended at once, or it was told while the last threads of its worker were dying, and gave its experiment back
    assert state(sqlite_database, key) in {State.RUNNING, State.QUEUED}


@pytest.mark.postgres
def test_the_same_way_leads_through_postgresql(with_broker: Settings, postgres_server: str) -> None:
    with postgres_database(postgres_server) as url:
        settings = with_broker.model_copy(update={"database_url": url})
        with serving(settings) as address, worker(settings), FedArena(address) as arena:
            key = arena.submit(spec_with())["id"]
            assert list(arena.watch(key))[-1].data["state"] == "finished"
        database = Database(url)
        assert stored(database, key) == undisturbed()
        database.close()
