"""The results script: finished folders are adopted, and the table is written without running anything."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from app.config import Settings
from engine.records import headline
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import ROOT, SPEC, environment

BASE = {key: value for key, value in SPEC.items() if key not in {"name", "seed"}}


def finished_folder(folder: Path, method: str, seed: int) -> float:
    """As `fedarena run SPEC --out FOLDER` leaves it; returns the best accuracy."""
    spec = ExperimentSpec.parse({**BASE, "algorithm": {"name": method}, "seed": seed})
    run = Run(spec)
    records = list(run.rounds())
    numbers = headline(records)
    folder.mkdir(parents=True)
    result = {
        "spec": spec.canonical(),
        "fingerprint": spec.fingerprint(),
        "partition_fingerprint": run.partition_fingerprint,
        "rounds": [record.model_dump() for record in records],
        "headline": numbers.model_dump(),
    }
    (folder / "result.json").write_text(json.dumps(result))
    assert numbers.best_accuracy is not None
    return numbers.best_accuracy


def test_the_table_is_written_from_finished_folders(tmp_path: Path) -> None:
    document = {
        "name": "small",
        "report": {"target": 0.01},
        "base": BASE,
        "grid": {"algorithm": [{"name": "fedavg"}, {"name": "standalone"}]},
        "seeds": [1, 2],
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(document))
    best = finished_folder(tmp_path / "out" / "fedavg-1", "fedavg", 1)
    command: list[str | Path] = [sys.executable, "scripts/results.py", tmp_path / "small.yaml", "--table-only"]
    options: list[str | Path] = ["--outputs", tmp_path / "out", "--table", tmp_path / "small.md"]
    for _ in range(2):  # again: nothing is adopted twice
        subprocess.run([*command, *options], cwd=ROOT, env=environment(Settings(home=tmp_path / "home")), check=True)
    lines = (tmp_path / "small.md").read_text().splitlines()
    assert lines[0] == "# small"
    assert next(line for line in lines if line.startswith("| FedAvg | 1 |")).split(" | ")[2] == f"{100 * best:.2f}"
    assert not any(line.startswith("| Standalone") for line in lines)
    curves = (tmp_path / "small.csv").read_text().splitlines()
    assert curves[0].startswith("method,seed,round,accuracy,")
    assert len(curves) == 1 + 1 + BASE["rounds"]  # the header, round 0 and the rounds of the one finished run
    assert max(float(line.split(",")[3]) for line in curves[2:]) == best
    assert "FedAvg" in (tmp_path / "small.svg").read_text()

    # another machine has the document and the runs shipped beside it
    table, shipped = (tmp_path / "small.md").read_text(), list((tmp_path / "runs").iterdir())
    assert len(shipped) == 1
    before = shipped[0].read_bytes()
    options[1] = tmp_path / "elsewhere"
    subprocess.run([*command, *options], cwd=ROOT, env=environment(Settings(home=tmp_path / "home")), check=True)
    assert (tmp_path / "small.md").read_text() == table
    assert shipped[0].read_bytes() == before
