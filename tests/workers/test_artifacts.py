"""Artifacts made by a real worker from the real store."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.config import Settings
from app.storage import Storage
from app.store import artifacts, experiments, lifecycle
from app.store.artifacts import ArtifactState
from app.store.database import Database
from app.store.states import State
from app.store.tables import Artifact
from engine.artifacts import parse_request
from engine.runtime.run import Interrupted, Run
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, look, spec_with, submit, wait_until
from workers.artifacts import ArtifactJob, make_wanted, order_artifacts
from workers.drain import Drain
from workers.files import folder_of
from workers.job import run_next

FEW: dict[str, Any] = {"samples": 4}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"lease_seconds": 5.0, "heartbeat_seconds": 0.5, "threads": 1})


@pytest.fixture
def done(quick: Settings, sqlite_database: Database) -> str:
    """A finished experiment."""
    key = submit(sqlite_database)
    run_next(quick, "worker-1")
    assert look(sqlite_database, key).state is State.FINISHED
    return key


def parameters(kind: str = "features", **given: Any) -> dict[str, Any]:
    return parse_request(ExperimentSpec.parse(spec_with()), kind, given).model_dump(mode="json")


def want(database: Database, experiment: str, kind: str = "features", **given: Any) -> str:
    with database.write() as session:
        return artifacts.want(session, experiment, kind, parameters(kind, **given))[0].id


def row(database: Database, artifact: str) -> Artifact:
    with database.read() as session:
        found = artifacts.get(session, artifact)
    assert found is not None
    return found


def rows(database: Database, experiment: str) -> dict[str, Artifact]:
    with database.read() as session:
        return {found.kind: found for found in artifacts.of_experiment(session, experiment)}


def expected(kind: str = "features", **given: Any) -> bytes:
    run = Run(ExperimentSpec.parse(spec_with()))
    list(run.rounds())
    return parse_request(run.spec, kind, parameters(kind, **given)).make(run)[0].content


def test_wanted_features_are_made_from_the_final_checkpoint(
    quick: Settings, sqlite_database: Database, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, before = want(sqlite_database, done, **FEW), look(sqlite_database, done).seq
    monkeypatch.setattr(Run, "rounds", lambda _: pytest.fail("a round was computed again"))
    assert run_next(quick, "worker-1") is None
    monkeypatch.undo()
    made = row(sqlite_database, key)
    assert (made.state, made.error, made.owner, made.attempts) == (ArtifactState.READY, None, None, 1)
    assert made.file is not None
    content = Storage(quick.storage).read(made.file)
    assert content == expected(**FEW)
    assert len(json.loads(content)["points"]) == 8
    assert (made.bytes, made.media_type) == (len(content), "application/json")
    beside = rows(sqlite_database, done)["feature-vectors"]
    assert beside.state == ArtifactState.READY
    assert beside.file is not None
    assert beside.file.endswith(".npz")
    assert look(sqlite_database, done).seq > before  # open pages look again


@pytest.mark.parametrize("loss", ["checkpoint files", "the row's checkpoint"])
def test_without_its_checkpoint_the_rounds_are_computed_again(
    quick: Settings, sqlite_database: Database, done: str, loss: str
) -> None:
    if loss == "checkpoint files":
        Storage(quick.storage).remove_folder(folder_of(done))
    else:
        with sqlite_database.write() as session:
            found = experiments.get(session, done)
            assert found is not None
            found.checkpoint = found.checkpoint_sha256 = None
    key = want(sqlite_database, done, **FEW)
    make_wanted(quick, sqlite_database, "worker-1")
    made = row(sqlite_database, key)
    assert made.file is not None
    assert Storage(quick.storage).read(made.file) == expected(**FEW)


@pytest.mark.parametrize(("algorithm", "kind"), [("fedper", "features"), ("fedper", "weights"), ("pfedes", "pictures")])
def test_artifacts_of_a_method_with_private_tensors_are_made_from_an_object_store(
    quick: Settings, sqlite_database: Database, algorithm: str, kind: str
) -> None:
    elsewhere = quick.model_copy(update={"storage_url": f"memory://{quick.home.name}-{algorithm}-{kind}"})
    experiment = submit(sqlite_database, algorithm={"name": algorithm})
    run_next(elsewhere, "worker-1")
    if kind not in rows(sqlite_database, experiment):  # pictures are made at the end without being asked for
        spec = ExperimentSpec.parse(spec_with(algorithm={"name": algorithm}))
        given = parse_request(spec, kind, FEW if kind == "features" else {}).model_dump(mode="json")
        with sqlite_database.write() as session:
            artifacts.want(session, experiment, kind, given)
        make_wanted(elsewhere, sqlite_database, "worker-1")
    made = rows(sqlite_database, experiment)[kind]
    assert (made.state, made.error) == (ArtifactState.READY, None)
    assert made.file is not None
    assert hashlib.sha256(Storage(elsewhere.storage).read(made.file)).hexdigest() == made.sha256


def test_an_artifact_is_made_before_the_next_experiment(quick: Settings, sqlite_database: Database, done: str) -> None:
    key = want(sqlite_database, done, "weights")
    following = submit(sqlite_database)
    with sqlite_database.write() as session:
        found = experiments.get(session, following)
        assert found is not None
        found.start_after = 1e12
    run_next(quick, "worker-1")
    assert row(sqlite_database, key).state == ArtifactState.READY
    assert look(sqlite_database, following).state is State.QUEUED


def test_enhanced_images_lie_there_when_a_pfedes_experiment_has_finished(
    quick: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database, algorithm={"name": "pfedes"})
    run_next(quick, "worker-1")
    found = rows(sqlite_database, key)
    assert {kind: made.state for kind, made in found.items()} == {"pictures": "ready", "picture-values": "ready"}
    file = found["pictures"].file
    assert file is not None
    assert Storage(quick.storage).read(file).startswith(b"\x89PNG")


def test_nothing_is_made_of_an_experiment_that_did_not_finish(quick: Settings, sqlite_database: Database) -> None:
    key = submit(sqlite_database, algorithm={"name": "pfedes"})
    held = claim(sqlite_database)
    assert held is not None
    with sqlite_database.write() as session:
        order_artifacts(session, held)
        lifecycle.diverge(session, held, "too fast")
    assert list(rows(sqlite_database, key)) == ["pictures"]
    assert make_wanted(quick, sqlite_database, "worker-1") == 0


def test_what_cannot_be_made_fails_with_the_reason_and_may_be_wanted_again(
    quick: Settings, sqlite_database: Database, done: str
) -> None:
    key = want(sqlite_database, done, samples=1)
    make_wanted(quick, sqlite_database, "worker-1")
    failed = row(sqlite_database, key)
    assert failed.state == ArtifactState.FAILED
    assert "t-SNE needs at least 5 samples" in (failed.error or "")
    assert want(sqlite_database, done, samples=1) == key
    assert row(sqlite_database, key).state == ArtifactState.WANTED


def test_a_drained_worker_gives_an_artifact_back(
    quick: Settings, sqlite_database: Database, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = want(sqlite_database, done, **FEW)
    with sqlite_database.write() as session:
        held = artifacts.claim(session, "worker-1", 60)
    assert held is not None
    job = ArtifactJob(quick, sqlite_database, held)
    Drain(quick, "worker-1").ask()
    start: Callable[[ArtifactJob], Any] = ArtifactJob._make

    def after_a_look(self: ArtifactJob) -> Any:
        self._stopping = True
        return start(self)

    monkeypatch.setattr(ArtifactJob, "_make", after_a_look)
    job.run()
    given_back = row(sqlite_database, key)
    assert (given_back.state, given_back.owner, given_back.attempts) == (ArtifactState.WANTED, None, 0)
    assert make_wanted(quick, sqlite_database, "worker-1") == 0  # a stopping worker takes no new work


def test_an_artifact_whose_lease_cannot_be_kept_is_given_back(
    quick: Settings, sqlite_database: Database, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = want(sqlite_database, done, **FEW)

    def fails(*_: Any) -> bool:
        raise ZeroDivisionError("a bug")

    def until_stopped(self: ArtifactJob) -> Any:
        wait_until(self._is_stopping, what="the end of the lease")
        raise Interrupted

    monkeypatch.setattr(artifacts, "renew", fails)
    monkeypatch.setattr(ArtifactJob, "_make", until_stopped)
    with sqlite_database.write() as session:
        held = artifacts.claim(session, "worker-1", 60)
    assert held is not None
    ArtifactJob(quick.model_copy(update={"lease_seconds": 2.0}), sqlite_database, held).run()
    assert (row(sqlite_database, key).state, row(sqlite_database, key).error) == (ArtifactState.WANTED, None)


def test_a_worker_that_lost_its_claim_changes_nothing(quick: Settings, sqlite_database: Database, done: str) -> None:
    key = want(sqlite_database, done, **FEW)
    with sqlite_database.write() as session:
        first = artifacts.claim(session, "worker-1", -1)
        second = artifacts.claim(session, "worker-2", 60)
    assert first is not None
    assert second is not None
    ArtifactJob(quick, sqlite_database, first).run()
    held = row(sqlite_database, key)
    assert (held.state, held.owner, held.file) == (ArtifactState.RUNNING, "worker-2", None)


def test_an_experiment_starts_from_the_weights_of_another_one(
    quick: Settings, sqlite_database: Database, done: str
) -> None:
    key = want(sqlite_database, done, "weights")
    make_wanted(quick, sqlite_database, "worker-1")
    digest = row(sqlite_database, key).sha256
    models = {"family": "tiny-mlp", "pretrained": {"weights": [digest]}}
    second = submit(sqlite_database, models=models, seed=8)
    run_next(quick, "worker-1")
    assert look(sqlite_database, second).state is State.FINISHED
    spec = ExperimentSpec.parse(spec_with(models=models, seed=8))
    run = Run(spec, weights=lambda _: expected("weights"))
    assert [record.accuracy for record in run.rounds()][-1] == look(sqlite_database, second).final_accuracy
