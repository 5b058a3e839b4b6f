"""Artifacts in the store: wanted once, claimed with a lease, fenced, given up after too many deaths."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlmodel import Session

from app.store import artifacts, lifecycle, steering
from app.store.artifacts import MAX_ATTEMPTS, ArtifactState, StoredFile
from app.store.database import Database
from app.store.states import State
from tests.services import claim as claim_experiment
from tests.services import look, meanwhile, submit

FILE = StoredFile("features", "application/json", "artifacts/x/a.json", "0" * 64, 12)
BESIDE = StoredFile("feature-vectors", "application/octet-stream", "artifacts/x/a.npz", "1" * 64, 34)


@pytest.fixture
def experiment(database: Database) -> str:
    return finished(database)


def finished(database: Database) -> str:
    key = submit(database)
    held = claim_experiment(database)
    assert held is not None
    with database.write() as session:
        row = lifecycle.held(session, held)
        assert row is not None
        lifecycle.finish(session, row, State.FINISHED)
    return key


def want(database: Database, experiment: str, **parameters: Any) -> str:
    with database.write() as session:
        return artifacts.want(session, experiment, "features", parameters)[0].id


def take(database: Database, owner: str = "worker-1", lease_seconds: float = 60) -> Any:
    with database.write() as session:
        return artifacts.claim(session, owner, lease_seconds)


def state(database: Database, artifact: str) -> str:
    with database.read() as session:
        row = artifacts.get(session, artifact)
        assert row is not None
        return row.state


def test_the_same_wish_is_one_artifact_and_another_wish_another(database: Database, experiment: str) -> None:
    first = want(database, experiment, seed=1, samples=2)
    assert want(database, experiment, samples=2, seed=1) == first
    assert want(database, experiment, seed=2, samples=2) != first


def test_an_artifact_is_due_only_when_its_experiment_has_finished(database: Database) -> None:
    key = submit(database)
    want(database, key)
    with database.read() as session:
        assert artifacts.due(session) == 0
    assert take(database) is None


def test_a_claim_is_given_once_and_in_the_order_of_the_wishes(database: Database, experiment: str) -> None:
    first, second = want(database, experiment, seed=1), want(database, experiment, seed=2)
    assert [take(database).artifact, take(database).artifact] == [first, second]
    assert take(database) is None


def test_an_expired_lease_is_taken_over_and_the_first_owner_is_fenced_off(database: Database, experiment: str) -> None:
    key = want(database, experiment)
    first = take(database, lease_seconds=-1)
    second = take(database, "worker-2")
    assert second.artifact == key
    with database.write() as session:
        assert not artifacts.finish(session, first, [FILE])
        assert not artifacts.renew(session, first, 60)
        assert artifacts.renew(session, second, 60)
        assert artifacts.finish(session, second, [FILE, BESIDE])
    with database.read() as session:
        rows = {row.kind: row for row in artifacts.of_experiment(session, experiment)}
    assert {kind: row.state for kind, row in rows.items()} == {"features": "ready", "feature-vectors": "ready"}
    assert rows["features"].key == rows["feature-vectors"].key
    assert (rows["features"].bytes, rows["features"].owner, rows["features"].lease) == (12, None, None)


def test_after_too_many_deaths_it_fails(database: Database, experiment: str) -> None:
    key = want(database, experiment)
    for _ in range(MAX_ATTEMPTS):
        assert take(database, lease_seconds=-1) is not None
    assert take(database) is None
    with database.write() as session:
        assert artifacts.fail_hopeless(session) == [key]
    assert state(database, key) == ArtifactState.FAILED


def test_giving_back_costs_no_attempt(database: Database, experiment: str) -> None:
    key = want(database, experiment)
    for _ in range(2 * MAX_ATTEMPTS):
        held = take(database)
        with database.write() as session:
            assert artifacts.release(session, held)
    assert state(database, key) == ArtifactState.WANTED


def test_every_step_is_a_change_of_the_experiment(database: Database, experiment: str) -> None:
    want(database, experiment)
    numbers = [look(database, experiment).state_seq]
    held = take(database)
    numbers.append(look(database, experiment).state_seq)
    with database.write() as session:
        artifacts.fail(session, held, "no reason")
    numbers.append(look(database, experiment).state_seq)
    assert numbers == sorted(set(numbers))
    assert look(database, experiment).state is State.FINISHED


def wanted(database: Database, key: str) -> None:
    want(database, key)


def claimed(database: Database, key: str) -> Any:
    want(database, key)
    return take(database)


def left_behind(database: Database, key: str) -> None:
    want(database, key)
    for _ in range(MAX_ATTEMPTS):
        assert take(database, lease_seconds=-1) is not None


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("before", "step"),
    [
        (wanted, lambda session, _: artifacts.claim(session, "worker-2", 60)),
        (claimed, lambda session, held: artifacts.finish(session, held, [FILE, BESIDE])),
        (claimed, lambda session, held: artifacts.fail(session, held, "no")),
        (claimed, lambda session, held: artifacts.release(session, held)),
        (left_behind, lambda session, _: artifacts.fail_hopeless(session)),
    ],
    ids=["claim", "finish", "fail", "release", "fail_hopeless"],
)
@pytest.mark.parametrize(
    "change",
    [
        lambda session, key: steering.annotate(session, key, {"name": "new"}),
        lambda session, key: steering.mark_deleted(session, key),
    ],
    ids=["relabel", "delete"],
)
def test_an_artifact_and_its_experiment_can_change_at_once(
    postgres: Database,
    before: Callable[[Database, str], Any],
    step: Callable[[Session, Any], Any],
    change: Callable[[Session, str], Any],
) -> None:
    key = finished(postgres)
    held = before(postgres, key)
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            assert lifecycle.locked(session, key) is not None
            asked = meanwhile(pool, postgres, lambda session: step(session, held))
            assert change(session, key) is not None
        asked.result()


@pytest.mark.postgres
@pytest.mark.parametrize("before", [0, MAX_ATTEMPTS])
def test_two_equal_wishes_at_once_are_one_artifact(postgres: Database, before: int) -> None:
    key = finished(postgres)
    if before:
        left_behind(postgres, key)
        with postgres.write() as session:
            artifacts.fail_hopeless(session)
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            first, new = artifacts.want(session, key, "features", {})
            asked = meanwhile(pool, postgres, lambda session: artifacts.want(session, key, "features", {}))
        again, new_again = asked.result()
    assert (again.id, new, new_again) == (first.id, True, False)
    with postgres.read() as session:
        assert [row.state for row in artifacts.of_experiment(session, key)] == ["wanted"]


@pytest.mark.postgres
def test_two_artifacts_of_one_experiment_can_be_finished_at_once(postgres: Database) -> None:
    key = finished(postgres)
    want(postgres, key, seed=1)
    want(postgres, key, seed=2)
    one, other = take(postgres), take(postgres)
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            # the file beside the first one names the experiment, as the other's does before it waits
            artifacts.want(session, key, "feature-vectors", {"seed": 3})
            asked = meanwhile(pool, postgres, lambda session: artifacts.finish(session, other, [FILE, BESIDE]))
            assert artifacts.finish(session, one, [FILE, BESIDE])
        assert asked.result()


def test_weights_are_named_by_artifacts_and_by_specs(database: Database) -> None:
    made, shared, start = ("a" * 64, "b" * 64, "c" * 64)
    first, second = finished(database), finished(database)
    third = submit(database, models={"family": "tiny-mlp", "pretrained": {"weights": [start]}})
    with database.write() as session:
        for key, digest in ((first, made), (first, shared), (first, start), (second, shared)):
            row, _ = artifacts.want(session, key, "weights", {"digest": digest})
            row.file = f"weights/{digest}.safetensors"
    with database.read() as session:
        assert artifacts.last_weights(session, first) == [f"weights/{made}.safetensors"]
        assert artifacts.last_weights(session, second) == artifacts.last_weights(session, third) == []
