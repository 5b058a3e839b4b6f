"""From REST through the real broker to real worker processes and back, and what happens when they are killed."""

import os
import signal

import pytest

from app.client import FedArena
from app.config import Settings
from app.store import workers
from app.store.database import Database
from app.store.states import State
from tests.services import look, postgres_database, serving, short_folder, spec_with, state, submit, wait_until
from tests.workers.processes import ended, has_rounds, stored, undisturbed, worker

pytestmark = pytest.mark.chaos

LONG = {"rounds": 150}


def test_a_posted_spec_is_run_by_a_worker_and_seen_live(with_broker: Settings, sqlite_database: Database) -> None:
    with serving(with_broker) as address, worker(with_broker, "--slots", "2"), FedArena(address) as arena:
        key = arena.submit(spec_with())["id"]
        events = list(arena.watch(key))
        with sqlite_database.read() as session:
            [row] = workers.known(session)
        assert (row.device, row.slots) == ("cpu", 2)
    assert [event.data["round"] for event in events if event.kind == "round"] == [0, 1, 2, 3]
    assert events[-1].data["state"] == "finished"
    assert stored(sqlite_database, key) == undisturbed()


def test_after_a_kill_another_worker_goes_on_and_the_result_is_the_same(
    with_broker: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database, **LONG)
    with worker(with_broker) as first:
        wait_until(lambda: has_rounds(sqlite_database, key), what="the first rounds")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    kept = stored(sqlite_database, key)
    assert state(sqlite_database, key) is State.RUNNING
    with short_folder() as elsewhere, worker(with_broker, cwd=elsewhere):
        wait_until(lambda: ended(sqlite_database, key), what="the end")
    row = look(sqlite_database, key)
    assert (row.state, row.attempts, row.bit_identical) == (State.FINISHED, 2, True)
    assert len(kept) >= 5
    assert stored(sqlite_database, key) == undisturbed(**LONG)


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


def test_a_sweep_runs_through_the_queue_and_its_table_fills(with_broker: Settings, sqlite_database: Database) -> None:
    document = {
        "name": "two by two",
        "base": {key: value for key, value in spec_with().items() if key not in {"name", "seed"}},
        "grid": {"algorithm.name": ["fedavg", "standalone"]},
        "seeds": {"from": 1, "count": 2},
    }
    with serving(with_broker) as address, worker(with_broker, "--slots", "2"), FedArena(address) as arena:
        key = arena.submit_sweep(document)["id"]
        view = arena.wait_sweep(key, every=0.2)
        table = arena.sweep_table(key)
        again = arena.submit_sweep(document)
    assert (view["state"], view["counts"], view["rounds_done"]) == ("finished", {"finished": 4}, 12)
    assert [(row["algorithm.name"], row["seeds"]) for row in table] == [("fedavg", 2), ("standalone", 2)]
    [first, *_] = view["cells"][1]["runs"]
    assert stored(sqlite_database, first["experiment"]) == undisturbed(algorithm={"name": "standalone"}, seed=1)
    assert (again["reused"], again["state"]) == (4, "finished")


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
