"""A finished experiment goes on to more rounds: a real worker, the real store, and the bits of an undisturbed run."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update
from sqlmodel import col

from app.config import Settings
from app.queue import Queue
from app.reconciler import Reconciler
from app.store import continuing, experiments, orphans, rounds, steering
from app.store.database import Database
from app.store.plan import Plan, StopRule
from app.store.states import State
from app.store.tables import Experiment
from engine.records import headline
from engine.runtime.checkpoint import Checkpoints
from engine.testing import parts as all_parts
from tests.services import http, look, serving, submit
from tests.workers.processes import rounds_computed, stored, undisturbed
from workers.job import run_next

SHORT, LONG = 4, 7
FOUR = {
    "clients": 4,
    "participation": 0.5,
    "models": {"family": "tiny-3"},
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 1, "size": 16},
}
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "pfedafm": {**FOUR, "algorithm": {"name": "pfedafm"}},
    "fedper, whose clients keep their heads": {**FOUR, "algorithm": {"name": "fedper"}},
    "protocol C": {**FOUR, "evaluation": {"protocol": "C"}},
    "protocol C, where the copies tuned for a test have a price": {
        **FOUR,
        "algorithm": {"name": "fedavg-ft"},
        "evaluation": {"protocol": "C"},
    },
    "a test every third round": {**FOUR, "evaluation": {"every": 3}},
    "an opening": {**FOUR, "algorithm": {"name": "fedarc"}},
}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(
        update={"lease_seconds": 5.0, "heartbeat_seconds": 0.5, "threads": 1, "checkpoint_every": 2}
    )


@pytest.fixture
def web(quick: Settings, sqlite_database: Database) -> Any:
    with serving(quick) as address, http(address) as client:
        yield client


def finished(settings: Settings, database: Database, rounds: int = SHORT, **changes: Any) -> str:
    key = submit(database, **{"rounds": rounds, **changes})
    assert run_next(settings, "first") == key
    assert look(database, key).state is State.FINISHED
    return key


def extended(web: httpx.Client, key: str, count: int = LONG) -> dict[str, Any]:
    answer = web.post(f"/api/experiments/{key}/extend", json={"rounds": count})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def folder(settings: Settings, experiment: str) -> Path:
    return Path(settings.storage) / "checkpoints" / experiment


def tensors(settings: Settings, database: Database, experiment: str) -> dict[str, bytes]:
    """The last state of the server and of every client."""
    row = look(database, experiment)
    pointer = experiments.checkpoint_of(row)
    assert pointer is not None
    snapshot = Checkpoints(folder(settings, experiment)).load(*pointer)
    parts = {f"server {group}": dict(found) for group, found in all_parts(snapshot.server).items()}
    parts |= {f"client {client}": file.read() for client, file in snapshot.clients.items()}
    return {
        f"{part} {name}": tensor.numpy().tobytes() for part, found in parts.items() for name, tensor in found.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_an_extended_experiment_equals_one_submitted_with_more_rounds(
    case: str, quick: Settings, sqlite_database: Database, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = CASES[case]
    old = finished(quick, sqlite_database, **changes)
    before = stored(sqlite_database, old)
    key = extended(web, old)["id"]
    computed = rounds_computed(monkeypatch)
    assert run_next(quick, "second") == key
    row = look(sqlite_database, key)
    assert (row.state, row.bit_identical, row.mixed_environment) == (State.FINISHED, True, False)
    monkeypatch.undo()
    with sqlite_database.write() as session:  # hidden, so that the same spec is computed from the start
        steering.mark_deleted(session, key)
    again = finished(quick, sqlite_database, LONG, **changes)
    assert stored(sqlite_database, key) == stored(sqlite_database, again) == undisturbed(rounds=LONG, **changes)
    with sqlite_database.write() as session:
        steering.undelete(session, key)
    assert tensors(quick, sqlite_database, key) == tensors(quick, sqlite_database, again)
    assert stored(sqlite_database, old) == before, "what is finished stays as it is"
    begin = 3 if "price" in case else SHORT + 1  # the last round cannot be told there: from the checkpoint before it
    assert computed == list(range(begin, LONG + 1))
    assert row.taken_over == (SHORT if "price" in case else SHORT + 1)


def test_totals_headline_and_seconds_count_what_was_taken_over(
    quick: Settings, sqlite_database: Database, web: httpx.Client
) -> None:
    key = extended(web, finished(quick, sqlite_database, evaluation={"every": 3}))["id"]
    run_next(quick, "second")
    row = look(sqlite_database, key)
    with sqlite_database.read() as session:
        records = rounds.after(session, key)
    told = headline(records).model_dump()
    assert {name: getattr(row, name) for name in told} == told
    assert row.seconds == pytest.approx(sum(record["seconds"] for record in records))
    assert row.totals == {name: sum(record[name] for record in records) for name in row.totals}


def test_the_checkpoint_outlives_its_experiment_until_it_was_copied(
    quick: Settings, sqlite_database: Database, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = finished(quick, sqlite_database)
    key = extended(web, old)["id"]
    assert web.delete(f"/api/experiments/{old}").status_code == 200
    with sqlite_database.write() as session:
        session.execute(update(Experiment).where(col(Experiment.id) == old).values(deleted_at=1.0))
    reconciler = Reconciler(quick, sqlite_database, Queue(quick))
    reconciler._tidy()
    assert folder(quick, old).is_dir()
    computed = rounds_computed(monkeypatch)
    assert run_next(quick, "second") == key
    assert computed == list(range(SHORT + 1, LONG + 1))
    reconciler._tidy()
    assert not folder(quick, old).exists()
    with sqlite_database.read() as session:
        assert session.get(Experiment, old) is None
    assert stored(sqlite_database, key) == undisturbed(rounds=LONG)
    assert web.get(f"/experiments/{key}").status_code == 200


def test_a_worker_elsewhere_copies_the_checkpoint_inside_the_storage_they_share(
    quick: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = quick.model_copy(update={"storage_url": f"memory://{quick.home.name}"})
    with serving(elsewhere) as address, http(address) as web:
        changes = CASES["fedper, whose clients keep their heads"]
        answer = extended(web, finished(elsewhere, sqlite_database, **changes))
    assert answer["told"].endswith(f"it resumes from the checkpoint of round {SHORT}")
    computed = rounds_computed(monkeypatch)
    assert run_next(elsewhere, "second") == answer["id"]
    assert computed == list(range(SHORT + 1, LONG + 1))
    assert stored(sqlite_database, answer["id"]) == undisturbed(rounds=LONG, **changes)


def test_a_worker_that_dies_between_the_copy_and_the_row_costs_nothing(
    quick: Settings, sqlite_database: Database, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: Any) -> bool:
        raise Killed

    key = extended(web, finished(quick, sqlite_database, **CASES["fedper, whose clients keep their heads"]))["id"]
    with monkeypatch.context() as patched:
        patched.setattr(continuing, "adopt", dies)
        with pytest.raises(Killed):
            run_next(quick, "second")
    left = {path.name for path in folder(quick, key).iterdir()}
    assert left
    assert look(sqlite_database, key).checkpoint is None
    with sqlite_database.write() as session:
        orphans.expire_leases(session, "second")
    computed = rounds_computed(monkeypatch)
    assert run_next(quick, "third") == key
    assert computed == list(range(SHORT + 1, LONG + 1))
    assert stored(sqlite_database, key) == undisturbed(rounds=LONG, **CASES["fedper, whose clients keep their heads"])
    assert not left & {path.name for path in folder(quick, key).iterdir()}, "the copy that never counted is gone"


@pytest.mark.parametrize("loss", ["nothing is left", "a file of it is damaged"])
def test_without_a_checkpoint_the_training_starts_again_and_comes_to_the_same(
    loss: str, quick: Settings, sqlite_database: Database, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = finished(quick, sqlite_database)
    if loss == "nothing is left":
        shutil.rmtree(folder(quick, old))
    else:
        for path in folder(quick, old).glob("server-*"):
            path.write_bytes(b"damaged")
    answer = extended(web, old)
    if loss == "nothing is left":
        assert "no checkpoint is left: its training starts again from round 0" in answer["told"]
    computed = rounds_computed(monkeypatch)
    run_next(quick, "second")
    row = look(sqlite_database, answer["id"])
    assert (row.state, row.bit_identical) == (State.FINISHED, True)
    assert computed == list(range(LONG + 1))
    assert stored(sqlite_database, row.id) == undisturbed(rounds=LONG)
    log = [line["text"] for line in web.get(f"/api/experiments/{row.id}/log").json()["lines"]]
    assert any("its rounds are computed again and compared" in text for text in log)


def test_another_environment_goes_on_and_is_noted(
    quick: Settings, sqlite_database: Database, web: httpx.Client
) -> None:
    old = finished(quick, sqlite_database)
    with sqlite_database.write() as session:
        row = experiments.get(session, old)
        assert row is not None
        row.environment = {**(row.environment or {}), "torch": "1.0"}
    key = extended(web, old)["id"]
    assert look(sqlite_database, key).environment == look(sqlite_database, old).environment
    run_next(quick, "second")
    row = look(sqlite_database, key)
    assert (row.state, row.mixed_environment, row.bit_identical) == (State.FINISHED, True, True)


def test_an_experiment_that_its_stop_rule_ended_goes_on_without_the_rule(
    quick: Settings, sqlite_database: Database, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cosine = {"training": {"epochs": 1, "batch_size": 16, "schedule": "cosine"}}
    key = submit(sqlite_database, Plan(stop=StopRule(target=0.01)), rounds=LONG, **cosine)
    run_next(quick, "first")
    stopped = look(sqlite_database, key)
    assert (stopped.state, stopped.next_round) == (State.FINISHED, 2)
    answer = extended(web, key, LONG)
    assert (answer["fingerprint"], answer["stop"], answer["taken_over"]) == (stopped.fingerprint, None, 2)
    computed = rounds_computed(monkeypatch)
    run_next(quick, "second")
    assert computed == list(range(2, LONG + 1))
    assert stored(sqlite_database, answer["id"]) == undisturbed(rounds=LONG, **cosine)


def test_an_extended_experiment_is_extended_again(
    quick: Settings, sqlite_database: Database, web: httpx.Client
) -> None:
    second = extended(web, finished(quick, sqlite_database, 2), 4)["id"]
    third = extended_after(web, quick, second, 6)
    assert stored(sqlite_database, third) == undisturbed(rounds=6)


def extended_after(web: httpx.Client, settings: Settings, key: str, count: int) -> str:
    assert run_next(settings, "second") == key
    longer: str = extended(web, key, count)["id"]
    assert run_next(settings, "third") == longer
    return longer


@pytest.mark.parametrize("case", ["fedavg", "a test every third round", "protocol B"])
def test_a_shorter_run_is_read_out_at_once_and_equals_one_of_its_own(
    case: str, quick: Settings, sqlite_database: Database, web: httpx.Client
) -> None:
    changes = {**CASES, "protocol B": {**FOUR, "evaluation": {"protocol": "B"}}}[case]
    answer = extended(web, finished(quick, sqlite_database, LONG, **changes), 3)
    row = look(sqlite_database, answer["id"])
    assert (row.state, row.next_round, row.attempts, row.owner) == (State.FINISHED, 4, 0, None)
    assert "nothing was computed" in answer["told"]
    assert run_next(quick, "second") is None
    assert stored(sqlite_database, row.id) == undisturbed(rounds=3, **changes)
    wish = web.post(f"/api/experiments/{row.id}/artifacts", json={"kind": "weights"})
    assert wish.status_code == 202
    run_next(quick, "second")
    [made] = web.get(f"/api/experiments/{row.id}/artifacts").json()["artifacts"]
    assert (made["state"], made["error"]) == ("ready", None)
