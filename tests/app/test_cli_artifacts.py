"""`fedarena artifact`, and the files that `fedarena run` reads and writes beside its rounds."""

import hashlib
import json
import tarfile
import threading
from pathlib import Path

import pytest

from app.config import Settings
from app.exits import BAD_INPUT, FAILED
from app.storage import CHECKPOINTS
from app.store import experiments, steering
from app.store.database import Database
from app.store.migrate import migrate
from engine.records import RoundRecord
from tests.app.test_cli import call, write_spec
from tests.services import look, serving, submit, wait_until
from tests.workers.processes import LONG, has_rounds, undisturbed
from workers.job import run_next


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDARENA_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")


def test_a_run_starts_from_the_networks_that_another_run_wrote(tmp_path: Path) -> None:
    weights, plane = tmp_path / "weights.safetensors", tmp_path / "plane" / "features.json"
    first = call("run", write_spec(tmp_path), "--save-weights", str(weights), "--features", str(plane))
    assert first.exit_code == 0, first.output
    assert len(json.loads(plane.read_text())["points"]) > 8
    assert plane.with_suffix(".npz").is_file()
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert digest in first.stdout
    models = {"family": "tiny-mlp", "pretrained": {"weights": [digest]}}
    second = write_spec(tmp_path, models=models)
    refused = call("run", second)
    assert refused.exit_code == BAD_INPUT
    assert f"models.pretrained.weights: there are no weights with sha256 {digest}" in refused.stderr
    assert call("run", second, "--weights", str(weights)).exit_code == 0


def test_an_artifact_is_made_by_a_worker_and_downloaded(settings: Settings, tmp_path: Path) -> None:
    with serving(settings) as address:
        store = Database(settings.database)
        migrate(store)
        key = submit(store)
        too_early = call("artifact", key, "features", "--address", address)
        assert too_early.exit_code == BAD_INPUT
        assert "is queued" in too_early.stderr
        run_next(settings, "worker-1")
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.2):
                run_next(settings, "worker-1")

        worker = threading.Thread(target=work)
        worker.start()
        try:
            target = tmp_path / "plane.json"
            made = call("artifact", key, "features", "--set", "samples=6", "--out", str(target), "--address", address)
            failed = call("artifact", key, "features", "--set", "samples=1", "--address", address)
        finally:
            stop.set()
            worker.join(timeout=60)
            wait_until(lambda: not worker.is_alive(), what="the worker's end")
            store.close()
    assert made.exit_code == 0, made.output
    assert len(json.loads(target.read_text())["points"]) == 12
    assert hashlib.sha256(target.read_bytes()).hexdigest() in made.stdout
    assert failed.exit_code == FAILED
    assert "at least 5 samples" in failed.stderr
    assert call("artifact", key, "features", "--set", "samples").exit_code == BAD_INPUT
    unreadable = call("artifact", key, "features", "--set", "samples={")
    assert (unreadable.exit_code, "--set samples: " in unreadable.stderr) == (BAD_INPUT, True)


def test_a_checkpoint_is_downloaded_and_goes_on_without_a_service(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"checkpoint_every": 1, "threads": 1})
    with serving(settings) as address:
        store = Database(settings.database)
        key = submit(store, **LONG)
        none_yet = call("checkpoint", key, "--address", address)
        worker = threading.Thread(target=run_next, args=(settings, "worker-1"))
        worker.start()
        wait_until(lambda: has_rounds(store, key, 3), what="the first rounds")
        with store.write() as session:
            steering.pause(session, key)
        worker.join(timeout=60)
        target = tmp_path / "paused.tar"
        made = call("checkpoint", key, "--out", str(target), "--address", address)
        stopped_at = look(store, key).next_round
        manifest, _ = experiments.checkpoint_of(look(store, key)) or ("", "")
        nowhere = call("checkpoint", key, "--out", str(tmp_path / "no" / "x.tar"), "--address", address)
        [file] = (Path(settings.storage) / CHECKPOINTS / key).glob(manifest)
        file.write_text("{}")
        damaged = call("checkpoint", key, "--out", str(tmp_path / "y.tar"), "--address", address)
        store.close()
    assert (none_yet.exit_code, "has no checkpoint yet" in none_yet.stderr) == (BAD_INPUT, True)
    assert made.exit_code == 0, made.output
    assert nowhere.exit_code == BAD_INPUT
    assert (damaged.exit_code, "not the manifest of a checkpoint" in damaged.stderr) == (BAD_INPUT, True)
    assert list(tmp_path.iterdir()) == [target], "nothing is left of a download that failed"
    with tarfile.open(target) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / key
    before = rounds_in(folder)
    assert len(before) == stopped_at
    rest = call("run", str(folder / "spec.json"), "--out", str(folder), "--threads", "1")
    assert rest.exit_code == 0, rest.output
    after = rounds_in(folder)
    assert [record.without_times() for record in after] == undisturbed(**LONG)
    assert after[:stopped_at] == before, "rounds were computed again: their times differ"


def rounds_in(folder: Path) -> list[RoundRecord]:
    _, *lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [RoundRecord.model_validate_json(line) for line in lines]
