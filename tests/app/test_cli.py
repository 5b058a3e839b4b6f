"""The fedarena command."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from app.cli import app
from app.cli.arguments import moment
from app.client import FedArena
from app.config import Settings
from app.exits import BAD_INPUT, DIVERGED, FAILED, SERVER_FAILED
from app.store.database import Database
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.browser.filled import put
from tests.services import record, serving, short_folder, spec_with
from workers.job import run_next


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDARENA_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def write_spec(folder: Path, **changes: Any) -> str:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec_with(**changes)))
    return str(path)


def test_run_writes_the_engines_records_and_a_summary(tmp_path: Path) -> None:
    found = call("run", write_spec(tmp_path), "--out", str(tmp_path / "out"))
    assert found.exit_code == 0
    assert "final accuracy" in found.stdout
    spec = ExperimentSpec.parse(spec_with())
    job = Run(spec)
    records = list(job.rounds())
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(result) == {
        "spec",
        "fingerprint",
        "partition_fingerprint",
        "environment",
        "rounds",
        "headline",
        "majority_share",
        "no_convergence",
    }
    assert (result["majority_share"], result["no_convergence"]) == (job.majority_share, False)
    assert result["spec"] == spec.canonical()
    assert result["fingerprint"] == spec.fingerprint()
    assert result["partition_fingerprint"] == job.partition_fingerprint
    assert result["environment"] == job.environment
    assert [item["accuracy"] for item in result["rounds"]] == [item.accuracy for item in records]
    assert result["headline"]["final_accuracy"] == records[-1].accuracy
    lines = (tmp_path / "out" / "rounds.csv").read_text().splitlines()
    assert len(lines) == 1 + len(records)


def test_run_says_that_nothing_was_learned(tmp_path: Path) -> None:
    one_class = {"name": "pathological", "classes_per_client": 1}
    found = call("run", write_spec(tmp_path, partition=one_class, training={"lr": 0.0}), "--out", str(tmp_path / "out"))
    assert found.exit_code == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["majority_share"], result["no_convergence"]) == (1.0, True)
    assert "no convergence" in found.stdout


def test_a_run_with_a_validation_part_tells_what_it_chooses(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, partition={"name": "iid", "split": "80-10-10"})
    found = call("run", spec, "--out", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    best = max(result["rounds"][1:], key=lambda item: item["validation_accuracy"])
    assert result["headline"]["accuracy_at_best_validation"] == best["accuracy"]
    assert result["headline"]["best_validation_round"] == best["round"]
    assert "chosen on validation" in found.stdout
    lines = (tmp_path / "out" / "rounds.csv").read_text().splitlines()
    assert lines[0].endswith(",validation_accuracy")
    assert lines[-1].endswith(f",{result['rounds'][-1]['validation_accuracy']}")


def test_run_takes_the_ways_to_compute_and_writes_them_down(tmp_path: Path) -> None:
    found = call("run", write_spec(tmp_path), "--out", str(tmp_path / "out"), "--precision", "bfloat16")
    assert found.exit_code == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())["environment"]["precision"] == "bfloat16"


def test_run_refuses_a_device_that_is_not_there(tmp_path: Path) -> None:
    found = call("run", write_spec(tmp_path), "--device", "cuda:63")
    assert found.exit_code == 2
    assert "cuda:63 was asked for" in found.stderr


def test_run_needs_no_service_and_leaves_no_home_behind(tmp_path: Path, home: Path) -> None:
    call("run", write_spec(tmp_path))
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"participation": 1.5}, "participation: must be less than or equal to 1, but got 1.5"),
        ({"algorithm": {"name": "fedmagic"}}, "algorithm.name: unknown algorithm 'fedmagic'"),
        ({"dataset": {"name": "domainnet"}}, "dataset.name: "),
    ],
)
def test_a_bad_spec_is_refused_with_field_and_sentence(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = call("run", write_spec(tmp_path, **changes))
    assert found.exit_code == BAD_INPUT
    assert words in found.stderr


def test_a_file_that_is_not_there_or_not_yaml_is_refused(tmp_path: Path) -> None:
    assert call("run", str(tmp_path / "nothing.yaml")).exit_code == BAD_INPUT
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    found = call("run", str(broken))
    assert found.exit_code == BAD_INPUT
    assert "not readable as YAML or JSON" in found.stderr


HOSTILE = {
    "alias": ("base: &a {b: 1}\ncopy: *a\n", "YAML aliases (*a) are not read"),
    "recursive": ("&a [*a]\n", "YAML aliases (*a) are not read"),
    "bool": ("seed: !!bool xyz\n", "YAML tags (!!bool) are not read"),
    "int": ('seed: !!int ""\n', "YAML tags (!!int) are not read"),
    "python": ("seed: !!python/object:os.system x\n", "YAML tags"),
    "deep": ("[" * 500, "nested"),
    "digits": (f"seed: {'9' * 5000}\n", "integer string"),
    "open": ("a: [", "not readable as YAML or JSON"),
    "list": ("- 1\n", ""),
    "empty": ("", ""),
    "name": ("{preset: A, algorithm: {name: [1]}}\n", "algorithm.name"),
}


@pytest.mark.parametrize("command", ["run", "submit"])
@pytest.mark.parametrize(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_or_careless_spec_is_refused_in_a_sentence(
    tmp_path: Path, server: tuple[str, Settings], command: str, text: str, words: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    found = call(command, str(path), *(["--address", server[0]] if command == "submit" else []))
    assert (found.exit_code, type(found.exception)) == (BAD_INPUT, SystemExit)
    assert words in found.stderr
    assert found.stderr.strip()


def test_submit_refuses_what_json_cannot_carry(tmp_path: Path, server: tuple[str, Settings]) -> None:
    path = tmp_path / "spec.yaml"
    for text in ('name: "\\ud800"\n', "seed: !!float .nan\n", "? [a, b]\n: 1\n"):
        path.write_text(text)
        found = call("submit", str(path), "--address", server[0])
        assert (found.exit_code, type(found.exception)) == (BAD_INPUT, SystemExit), text
        assert found.stderr.strip()


def test_run_says_before_it_trains_that_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "rounds", lambda _: pytest.fail("it trained"))
    file = tmp_path / "file"
    file.touch()
    for place in ("/proc/nope", str(file), str(file / "below")):
        found = call("run", write_spec(tmp_path), "--out", place)
        assert (found.exit_code, type(found.exception)) == (BAD_INPUT, SystemExit)
        assert f"--out must be a folder that can be written, but {place}: " in found.stderr


def test_a_run_whose_disk_fails_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.runtime.checkpoint.LocalFiles.write", fails)
    found = call("run", write_spec(tmp_path), "--out", str(tmp_path / "out"))
    assert (found.exit_code, type(found.exception)) == (FAILED, SystemExit)
    assert "No space left on device" in found.stderr


def test_a_failing_server_is_told_apart_from_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with short_folder() as folder, serving(Settings(home=folder, starter=False)) as address:
        key = call("submit", write_spec(tmp_path), "--address", address).stdout.split()[0]
        mistake = call("pause", "01AAAAAAAAAAAAAAAAAAAAAAAA", "--address", address)
        assert mistake.exit_code == BAD_INPUT
        commands = (("ls",), ("sweeps",), ("watch", key), ("log", key), ("pause", key), ("artifact", key, "weights"))
        with monkeypatch.context() as patch:
            patch.setattr(Database, "read", fails)
            patch.setattr(Database, "write", fails)
            answers = [call(*command, "--address", address) for command in commands]
    for command, found in zip(commands, answers, strict=True):
        assert (found.exit_code, type(found.exception)) == (SERVER_FAILED, SystemExit), command
        assert "bug" in found.stderr


def test_a_diverging_run_keeps_its_rounds_and_says_so(tmp_path: Path) -> None:
    training = {"epochs": 20, "batch_size": 4, "lr": 10.0, "momentum": 0.99, "clip": None}
    found = call("run", write_spec(tmp_path, rounds=200, training=training), "--out", str(tmp_path / "out"))
    assert found.exit_code == DIVERGED
    assert "diverged" in found.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["rounds"][0]["round"] == 0


def test_a_setting_that_makes_no_sense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDARENA_PORT", "a lot")
    found = call("ls")
    assert found.exit_code == BAD_INPUT
    assert "FEDARENA_PORT" in found.stderr


def test_without_a_server_the_answer_is_one_line_with_the_way_out() -> None:
    found = call("ls", "--address", "http://127.0.0.1:9")
    assert found.exit_code == FAILED
    assert found.stderr.strip() == "nobody answers at http://127.0.0.1:9; start it with: fedarena serve"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Settings]]:
    with short_folder() as folder:
        settings = Settings(home=folder, starter=False)
        with serving(settings) as address:
            yield address, settings


def test_submit_list_and_watch(server: tuple[str, Settings], tmp_path: Path) -> None:
    address, settings = server
    found = call("submit", write_spec(tmp_path, name="by command"), "--address", address)
    assert found.exit_code == 0
    key = found.stdout.split()[0]
    assert f"{address}/experiments/{key}" in found.stdout
    listed = json.loads(call("ls", "--json", "--address", address).stdout)
    assert [item["id"] for item in listed] == [key]
    assert run_next(settings, "worker-1") == key
    assert "by command" in call("ls", "--address", address).stdout
    watched = call("watch", key, "--address", address)
    assert watched.exit_code == 0
    assert watched.stdout.strip().endswith("finished")
    assert watched.stdout.count("round") == 4


def test_ls_shows_the_accuracy_that_the_protocol_names(server: tuple[str, Settings]) -> None:
    address, settings = server
    database = Database(settings.database)
    history = [record(0, None), record(1, 0.9), record(2, 0.5)]
    for protocol in "AC":
        spec = spec_with(name=f"under {protocol}", rounds=2, evaluation={"protocol": protocol})
        put(database, history, majority_share=0.5, **spec)
    database.close()
    shown = call("ls", "--address", address).stdout.splitlines()
    rows = {name: next(line for line in shown if name in line) for name in ("under A", "under C")}
    assert "90.0% " in rows["under A"]
    assert "50.0% (no convergence)" in rows["under C"]


def test_an_experiment_is_planned_steered_and_tried_again_by_command(
    server: tuple[str, Settings], tmp_path: Path
) -> None:
    at = ("--address", server[0])
    options = ("--priority", "3", "--start-after", "22:00", "--window", "22:00-08:00", "--zone", "UTC")
    found = call("submit", write_spec(tmp_path), *options, "--stop-patience", "4", "--stop-min-gain", "0.01", *at)
    assert found.exit_code == 0, found.stderr
    key = found.stdout.split()[0]
    with FedArena(server[0]) as arena:
        planned = arena.experiment(key)
        assert (planned["priority"], planned["stop"]) == (3, {"patience": 4, "min_gain": 0.01})
        assert planned["window"] == {"from": "22:00", "to": "08:00", "zone": "UTC"}
        assert planned["start_after"] is not None
    assert f"{key}  paused: asked" in call("pause", key, *at).stdout
    assert f"{key}  queued, priority 3" in call("resume", key, *at).stdout
    assert f"{key}  queued, priority -7" in call("priority", *at, "--", "-7", key).stdout
    assert f"{key}  cancelled" in call("cancel", key, *at).stdout
    again = call("retry", key, *at)
    assert f"queued, tries {key} again" in again.stdout
    refused = call("pause", key, again.stdout.split()[0], *at)
    assert refused.exit_code == BAD_INPUT
    assert "already cancelled, so it cannot be paused" in refused.stderr
    assert "paused: asked" in refused.stdout, "the other one is paused all the same"
    assert call("log", key, *at).stdout == ""


def test_an_experiment_goes_on_and_is_read_out_by_command(server: tuple[str, Settings], tmp_path: Path) -> None:
    address, settings = server
    at = ("--address", address)
    key = call("submit", write_spec(tmp_path, seed=123), *at).stdout.split()[0]
    while run_next(settings, "worker-1") is not None:
        pass
    found = call("extend", key, "--rounds", "5", *at)
    assert found.exit_code == 0, found.stderr
    first, told = found.stdout.splitlines()
    longer = first.split()[0]
    assert first == f"{longer}  {address}/experiments/{longer}"
    assert told == f"rounds 0 to 3 are those of {key}; it resumes from the checkpoint of round 3"
    with FedArena(address) as arena:
        again = arena.extend(key, 5, key="once")
        assert (again["id"], again["continues"], again["taken_over"]) == (longer, key, 4)
    run_next(settings, "worker-1")
    shorter = call("extend", longer, "--rounds", "4", "--watch", *at)
    assert shorter.exit_code == 0
    assert shorter.stdout.strip().endswith("finished")
    refused = call("extend", key, "--rounds", "0", *at)
    assert refused.exit_code == BAD_INPUT
    gone = call("extend", "0" * 26, "--rounds", "5", *at)
    assert (gone.exit_code, "there is no experiment" in gone.stderr) == (BAD_INPUT, True)


def test_a_time_of_day_means_the_next_one_here() -> None:
    noon = datetime(2030, 6, 1, 12, 0).astimezone()
    assert moment("22:00", noon) == datetime(2030, 6, 1, 22, 0).astimezone()
    assert moment("12:00", noon) == datetime(2030, 6, 2, 12, 0).astimezone()
    assert moment("2030-01-31T22:00+01:00") == datetime(2030, 1, 31, 21, 0, tzinfo=UTC)


@pytest.mark.parametrize(("option", "value"), [("--start-after", "tonight"), ("--window", "22:00")])
def test_a_time_that_makes_no_sense_is_refused(tmp_path: Path, option: str, value: str) -> None:
    found = call("submit", write_spec(tmp_path), option, value)
    assert found.exit_code == BAD_INPUT
    assert f"{option} takes" in found.stderr
    assert value in found.stderr


def test_the_address_that_serve_wrote_down_is_used(server: tuple[str, Settings], home: Path) -> None:
    (home / "address").write_text(server[0])
    assert call("ls").exit_code == 0


def test_a_refused_submission_names_the_field(server: tuple[str, Settings], tmp_path: Path) -> None:
    found = call("submit", write_spec(tmp_path, clients=0), "--address", server[0])
    assert found.exit_code == BAD_INPUT
    assert "clients: must be greater than or equal to 1, but got 0" in found.stderr


def test_a_sweep_is_checked_queued_watched_and_listed(server: tuple[str, Settings], tmp_path: Path) -> None:
    address, settings = server
    base = {key: value for key, value in spec_with(rounds=1).items() if key not in {"name", "seed"}}
    document = {"name": "by document", "base": base, "grid": {"training.lr": [0.1, 0.2]}, "seeds": [1]}
    document["report"] = {"choose": {"over": ["training.lr"]}}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(document))
    dry = call("sweep", str(file), "--dry-run", "--address", address)
    assert (dry.exit_code, "2 experiments in 2 cells, 2 to run" in dry.stdout) == (0, True)
    assert "MB up and down" in dry.stdout
    queued = call("sweep", str(file), "--address", address)
    key = queued.stdout.split()[0]
    assert f"{address}/sweeps/{key}" in queued.stdout
    while run_next(settings, "worker-1") is not None:
        pass
    assert "by document" in call("sweeps", "--address", address).stdout
    watched = call("sweep", str(file), "--watch", "--address", address)
    assert watched.exit_code == 0
    assert "2 of 2 rounds: 2 finished" in watched.stdout
    assert "chosen on" in watched.stdout
    file.write_text(yaml.safe_dump({**document, "grid": {"training.lr": [-1]}}))
    wrong = call("sweep", str(file), "--address", address)
    assert wrong.exit_code == BAD_INPUT
    assert "training.lr: must be greater than or equal to 0, but got -1" in wrong.stderr


@pytest.fixture
def _in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local clock that is never that of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_kolkata")
def test_the_hours_of_a_sweep_are_local_by_option_and_in_its_document(
    server: tuple[str, Settings], tmp_path: Path
) -> None:
    at = ("--address", server[0])
    base = {key: value for key, value in spec_with(rounds=1).items() if key not in {"name", "seed"}}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({"base": base, "window": "22:00-06:00", "seeds": [1], "reuse": False}))

    def planned(*options: str) -> dict[str, Any]:
        found = call("sweep", str(file), *options, *at)
        assert found.exit_code == 0, found.stderr
        key = found.stdout.split()[0]
        with FedArena(server[0]) as arena:
            [cell] = arena.sweep(key)["cells"]
            arena.cancel_sweep(key)  # or a later test would find it due, at some hours of the day
            return arena.experiment(cell["runs"][0]["experiment"])

    assert planned()["window"] == {"from": "16:30", "to": "00:30", "zone": "UTC"}
    assert planned("--zone", "UTC")["window"] == {"from": "22:00", "to": "06:00", "zone": "UTC"}
    by_option = planned("--window", "20:00-04:00", "--priority", "-3", "--start-after", "2999-01-01T00:00")
    assert by_option["window"] == {"from": "14:30", "to": "22:30", "zone": "UTC"}
    assert (by_option["priority"], by_option["start_after"]) == (-3, "2998-12-31T18:30:00.000Z")


def test_a_whole_sweep_is_steered_by_the_commands_for_experiments(server: tuple[str, Settings], tmp_path: Path) -> None:
    at = ("--address", server[0])
    base = {key: value for key, value in spec_with(rounds=1).items() if key not in {"name", "seed"}}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({"base": base, "grid": {"training.lr": [0.3, 0.4]}, "seeds": [1]}))
    key = call("sweep", str(file), *at).stdout.split()[0]
    assert f"{key}  sweep, paused: 2 paused" in call("pause", key, *at).stdout
    assert f"{key}  sweep, queued: 2 queued" in call("resume", key, *at).stdout
    assert call("priority", *at, "--", "-7", key).exit_code == 0
    with FedArena(server[0]) as arena:
        members = [run["experiment"] for cell in arena.sweep(key)["cells"] for run in cell["runs"]]
        assert [arena.experiment(member)["priority"] for member in members] == [-7, -7]
    assert f"{key}  sweep, cancelled: 2 cancelled" in call("cancel", key, *at).stdout
    assert f"{key}  sweep, queued: 2 queued" in call("retry", key, *at).stdout
    call("cancel", key, *at)
    nobody = call("pause", "01AAAAAAAAAAAAAAAAAAAAAAAA", *at)
    assert nobody.exit_code == BAD_INPUT
    assert "there is neither an experiment nor a sweep 01AAAAAAAAAAAAAAAAAAAAAAAA" in nobody.stderr


def test_watching_a_failed_experiment_tells_the_reason(server: tuple[str, Settings]) -> None:
    from tests.services import submit

    address, settings = server
    store = Database(settings.database)
    key = submit(store, dataset={"name": "domainnet"})
    while (taken := run_next(settings, "worker-1")) not in {key, None}:
        continue  # what other tests left, in a window that is open at this hour
    assert taken == key
    store.close()
    found = call("watch", key, "--address", address)
    assert found.exit_code == FAILED
    assert "DataMissing" in found.stderr


def test_watching_what_does_not_exist_is_refused(server: tuple[str, Settings]) -> None:
    assert call("watch", "01AAAAAAAAAAAAAAAAAAAAAAAA", "--address", server[0]).exit_code == BAD_INPUT


def test_the_catalogue_lists_methods_data_partitions_and_models() -> None:
    found = json.loads(call("catalog", "--json").stdout)
    assert {"standalone", "fedavg"} <= {item["id"] for item in found["algorithms"]}
    shown = call("catalog").stdout
    assert "fedavg" in shown
    assert "cnn-1-5" in shown


def test_doctor_names_every_part_and_what_it_is() -> None:
    found = call("doctor", "--json")
    parts = {item["part"]: item for item in json.loads(found.stdout)}
    assert found.exit_code == 0
    assert {"python", "torch", "torchvision", "sqlite", "database", "broker", "data sets", "disk"} <= set(parts)
    assert parts["broker"]["status"] == "ok"
    assert "digits" in parts["data sets"]["text"]
    assert "sqlite" in call("doctor").stdout


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "worker",
        "run",
        "submit",
        "sweep",
        "sweeps",
        "ls",
        "watch",
        "pause",
        "resume",
        "cancel",
        "retry",
        "priority",
        "log",
        "catalog",
        "doctor",
        "data",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    assert call(command, "--help").exit_code == 0


def test_a_worker_on_a_device_that_is_not_there_is_refused() -> None:
    found = call("worker", "--device", "cuda:99")
    assert found.exit_code == BAD_INPUT
    assert "cuda:99 cannot be used" in found.stderr


def test_settings_that_contradict_each_other_are_named_and_no_other_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDARENA_LEASE_SECONDS", "10")
    monkeypatch.setenv("FEDARENA_DATABASE_URL", "postgresql+psycopg://fedarena:very-secret@db/fedarena")
    found = call("worker")
    assert found.exit_code == BAD_INPUT
    assert found.stderr.startswith("FEDARENA_LEASE_SECONDS must be at least 3 times FEDARENA_HEARTBEAT_SECONDS")
    assert "very-secret" not in found.stderr
