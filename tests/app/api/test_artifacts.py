"""The routes of artifacts."""

import hashlib
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.storage import Storage
from app.store import artifacts, experiments
from app.store.artifacts import StoredFile
from app.store.database import Database
from app.store.states import State
from engine.artifacts import parse_request
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import SPEC, spec_with

CONTENT = b'{"points": [[0, 1]]}'


def posted(client: httpx.Client, **changes: Any) -> str:
    answer = client.post("/api/experiments", json=spec_with(**changes))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def end(store: Database, experiment: str, state: State) -> None:
    with store.write() as session:
        row = experiments.get(session, experiment)
        assert row is not None
        row.state = state


@pytest.fixture
def finished(client: httpx.Client, store: Database) -> str:
    key = posted(client)
    end(store, key, State.FINISHED)
    return key


def ask(client: httpx.Client, experiment: str, kind: str = "features", **parameters: Any) -> httpx.Response:
    return client.post(f"/api/experiments/{experiment}/artifacts", json={"kind": kind, "parameters": parameters})


def make_ready(store: Database, settings: Settings, artifact: str) -> None:
    """As a worker would."""
    with store.write() as session:
        row = artifacts.get(session, artifact)
        assert row is not None
        name = f"artifacts/{row.experiment}/{artifact}-1-features.json"
        digest = Storage(settings.storage).write(name, CONTENT)
        artifacts._fill(session, row, StoredFile(row.kind, "application/json", name, digest, len(CONTENT)))


def test_a_wish_is_stored_once(client: httpx.Client, finished: str) -> None:
    first, second = ask(client, finished, samples=5), ask(client, finished, samples=5)
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json() == second.json()
    assert first.json()["state"] == "wanted"
    assert first.json()["parameters"]["perplexity"] == 30.0  # what was left out is filled in
    listed = client.get(f"/api/experiments/{finished}/artifacts").json()["artifacts"]
    assert listed == [first.json()]
    assert client.get(f"/api/artifacts/{first.json()['id']}").json() == first.json()


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.CANCELLED, State.DIVERGED])
def test_an_experiment_that_has_not_finished_has_no_artifacts(
    client: httpx.Client, store: Database, state: State
) -> None:
    key = posted(client)
    end(store, key, state)
    answer = ask(client, key)
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["field"] == "state"
    assert client.get(f"/api/experiments/{key}/artifacts").json()["artifacts"] == []
    end(store, key, State.CANCELLED)  # no worker of another test shall find it


def test_a_wish_that_cannot_be_met_is_refused_with_its_field(client: httpx.Client, finished: str) -> None:
    for kind, parameters, field in (
        ("portrait", {}, "kind"),
        ("pictures", {}, "kind"),
        ("features", {"clients": [9]}, "parameters.clients"),
        ("features", {"perplexity": "many"}, "parameters.perplexity"),
    ):
        answer = ask(client, finished, kind, **parameters)
        assert answer.status_code == 422
        assert [problem["field"] for problem in answer.json()["errors"]] == [field]
    assert client.get(f"/api/experiments/{finished}/artifacts").json()["artifacts"] == []


def test_what_does_not_exist_is_not_found(client: httpx.Client) -> None:
    for path in ("/api/experiments/nobody/artifacts", "/api/artifacts/nobody", "/api/artifacts/nobody/file"):
        assert client.get(path).status_code == 404
    assert ask(client, "nobody").status_code == 404


def test_a_file_comes_as_a_download_that_no_browser_runs(
    client: httpx.Client, store: Database, served: tuple[str, Settings], finished: str
) -> None:
    artifact = ask(client, finished).json()["id"]
    early = client.get(f"/api/artifacts/{artifact}/file")
    assert early.status_code == 409
    make_ready(store, served[1], artifact)
    view = client.get(f"/api/artifacts/{artifact}").json()
    answer = client.get(f"/api/artifacts/{artifact}/file")
    assert answer.content == CONTENT
    assert hashlib.sha256(answer.content).hexdigest() == view["sha256"]
    assert answer.headers["content-disposition"] == f'attachment; filename="features-{artifact}.json"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-type"] == "application/json"


def test_a_file_that_is_gone_from_the_storage_is_not_found(
    client: httpx.Client, store: Database, served: tuple[str, Settings], finished: str
) -> None:
    artifact = ask(client, finished).json()["id"]
    make_ready(store, served[1], artifact)
    with store.read() as session:
        row = artifacts.get(session, artifact)
    assert row is not None
    assert row.file is not None
    Storage(served[1].storage).remove(row.file)
    assert client.get(f"/api/artifacts/{artifact}/file").status_code == 404


def test_a_file_is_sent_in_pieces(
    client: httpx.Client,
    store: Database,
    served: tuple[str, Settings],
    finished: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    artifact = ask(client, finished).json()["id"]
    make_ready(store, served[1], artifact)
    monkeypatch.setattr(Storage, "read", lambda *_: pytest.fail("the whole file was read at once"))
    monkeypatch.setattr("app.storage.BLOCK_BYTES", 3)
    answer = client.get(f"/api/artifacts/{artifact}/file", headers={"Accept-Encoding": "identity"})
    assert answer.content == CONTENT
    assert answer.headers["content-length"] == str(len(CONTENT))


def test_the_artifacts_of_a_deleted_experiment_are_not_found_until_it_is_undeleted(
    client: httpx.Client, store: Database, served: tuple[str, Settings], finished: str
) -> None:
    artifact = ask(client, finished).json()["id"]
    make_ready(store, served[1], artifact)
    addresses = [f"/api/artifacts/{artifact}", f"/api/artifacts/{artifact}/file"]
    assert client.delete(f"/api/experiments/{finished}").status_code == 200
    assert [client.get(address).status_code for address in addresses] == [404, 404]
    assert client.post(f"/api/experiments/{finished}/undelete").status_code == 200
    assert [client.get(address).status_code for address in addresses] == [200, 200]


def test_pretrained_weights_are_looked_up_before_queueing(client: httpx.Client, served: tuple[str, Settings]) -> None:
    run = Run(ExperimentSpec.parse(SPEC))
    list(run.rounds())
    content = parse_request(run.spec, "weights", {}).make(run)[0].content
    digest = hashlib.sha256(content).hexdigest()
    models = {"family": "tiny-mlp", "pretrained": {"weights": [digest]}}
    for path in ("/api/experiments", "/api/check", "/api/partition"):
        refused = client.post(path, json=spec_with(models=models))
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "models.pretrained.weights"
    Storage(served[1].storage).write(f"weights/{digest}.safetensors", content)
    assert client.post("/api/check", json=spec_with(models=models)).status_code == 200
    wrong = {**models, "feature_dim": 5}
    answer = client.post("/api/check", json=spec_with(models=wrong))
    assert "has shape [5, " in answer.json()["errors"][0]["message"]
