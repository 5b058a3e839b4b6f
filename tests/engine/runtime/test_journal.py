"""A run in a folder goes on where it was killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from engine.runtime.journal import Journal, OtherExperiment
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of, same_results

SCRIPT = """
import sys, yaml
from pathlib import Path
from engine.runtime.journal import Journal
from engine.spec.experiment import ExperimentSpec
spec = ExperimentSpec.parse(yaml.safe_load(Path(sys.argv[1]).read_text()))
run, rounds = Journal(Path(sys.argv[2]), spec).run()
for record in rounds:
    print(record.round, flush=True)
"""


def lines(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def test_a_run_in_a_folder_gives_the_same_records(small_spec: SpecMaker, tmp_path: Path) -> None:
    _, rounds = Journal(tmp_path, small_spec("fedavg")).run()
    assert same_results(list(rounds), records_of(small_spec("fedavg")))


def test_a_finished_run_is_read_and_not_computed_again(small_spec: SpecMaker, tmp_path: Path) -> None:
    first = list(Journal(tmp_path, small_spec()).run()[1])
    again = list(Journal(tmp_path, small_spec()).run()[1])
    assert again == first  # wall times too


def test_killed_again_and_again_it_still_gives_the_same_records(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec("pfedafm", rounds=40)
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.canonical()))
    command = [sys.executable, "-c", SCRIPT, str(file), str(tmp_path)]
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        stored, deadline = lines(tmp_path), time.monotonic() + 120
        while lines(tmp_path) < stored + 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    journal = Journal(tmp_path, spec)
    assert 2 <= len(journal.records) < 41
    assert same_results(list(journal.run()[1]), records_of(spec))


def test_a_torn_last_line_is_left_out(small_spec: SpecMaker, tmp_path: Path) -> None:
    list(Journal(tmp_path, small_spec()).run()[1])
    path = tmp_path / "rounds.jsonl"
    path.write_text(path.read_text()[:-40])
    journal = Journal(tmp_path, small_spec())
    assert len(journal.records) == 3
    assert same_results(list(journal.run()[1]), records_of(small_spec()))


def test_a_folder_of_another_experiment_is_left_alone(small_spec: SpecMaker, tmp_path: Path) -> None:
    list(Journal(tmp_path, small_spec()).run()[1])
    before = (tmp_path / "rounds.jsonl").read_bytes()
    with pytest.raises(OtherExperiment, match="choose another folder"):
        Journal(tmp_path, small_spec(seed=8))
    assert (tmp_path / "rounds.jsonl").read_bytes() == before


def test_a_file_that_is_no_journal_is_left_alone(small_spec: SpecMaker, tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_text(json.dumps([1, 2]))
    with pytest.raises(OtherExperiment):
        Journal(tmp_path, ExperimentSpec.parse(small_spec().canonical()))
