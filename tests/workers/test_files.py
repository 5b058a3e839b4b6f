"""Checkpoints outside this machine: what a worker there left, another one takes up."""

from pathlib import Path

import pytest

from app.storage import Storage
from engine.runtime.checkpoint import CheckpointDamaged, Checkpoints, rounds_with_checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import spec_with
from workers.files import StoredFiles

SPEC = ExperimentSpec.parse(spec_with(rounds=4, algorithm={"name": "fedper"}))


def stored_files(url: str) -> StoredFiles:
    """As another process sees them: nothing is shared but the URL."""
    return StoredFiles(Storage(url), "checkpoints/01EXPERIMENT")


def begun(url: str) -> None:
    run, checkpoints = Run(SPEC), Checkpoints(stored_files(url), writer="1")
    for record, saved in rounds_with_checkpoints(run, checkpoints, every=1):
        if saved is not None:
            checkpoints.prune()
        if record.round == 2:
            return


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared") if request.param == "folder" else f"memory://{tmp_path.name}"


def test_a_run_is_resumed_from_the_storage_with_the_same_bits(url: str) -> None:
    begun(url)
    checkpoints = Checkpoints(stored_files(url), writer="2")
    snapshot = checkpoints.newest(SPEC.fingerprint())
    assert snapshot is not None
    assert snapshot.round == 2
    assert set(snapshot.clients) == {0, 1}
    rest = [record.without_times() for record in Run(SPEC, resume_from=snapshot).rounds()]
    assert rest == [record.without_times() for record in Run(SPEC).rounds()][3:]


def test_the_storage_keeps_the_last_two_checkpoints(url: str) -> None:
    begun(url)
    names = stored_files(url).names()
    assert len([name for name in names if name.startswith("manifest-")]) == 2
    assert len([name for name in names if name.startswith("client-")]) == 4


def test_a_file_missing_in_the_storage_is_noticed(url: str) -> None:
    begun(url)
    files = stored_files(url)
    manifest = max(name for name in files.names() if name.startswith("manifest-"))
    files.remove(next(name for name in files.names() if name.startswith("client-0-round-2")))
    with pytest.raises(CheckpointDamaged, match=r"client-0-round-2-writer-1\.safetensors cannot be read"):
        Checkpoints(files).load(manifest, manifest.split("-")[3])
    snapshot = Checkpoints(files).newest(SPEC.fingerprint())
    assert snapshot is not None
    assert snapshot.round == 1
