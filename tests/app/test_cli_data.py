from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli_data import data
from engine.data import readers
from tests.engine.data import layouts
from tests.engine.data.layouts import pixels


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDARENA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(readers, "SYSTEM_FOLDERS", {})
    return tmp_path / "data"


def run(*words: str) -> Result:
    return CliRunner().invoke(data, list(words), env={"COLUMNS": "200"})


def test_ls_shows_every_set_and_the_command_for_a_missing_one(root: Path) -> None:
    answer = run("ls")
    assert answer.exit_code == 0
    assert "built in" in answer.output
    assert "missing: fedarena data get cifar10" in answer.output
    assert "missing: fedarena data import pacs --from FOLDER" in answer.output
    assert str(root) in answer.output.replace("\n", "")


def test_a_folder_is_imported_and_listed(root: Path, tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "from", pixels(3, channels=1), pixels(2, channels=1))
    answer = run("import", "mnist", "--from", str(tmp_path / "from"))
    assert answer.exit_code == 0, answer.output
    assert "5 images of 10 classes" in answer.output
    assert "dataset: {name: mnist}" in answer.output
    assert "missing: fedarena data get mnist" not in run("ls").output


def test_importing_clients_says_how_to_use_them(root: Path, tmp_path: Path) -> None:
    answer = run("import", "mine", "--from", str(layouts.Clients(2).write(tmp_path / "from")))
    assert "at 2 clients" in answer.output
    assert "dataset: {name: imported, set: mine}" in answer.output
    assert "partition: {name: imported}" in answer.output
    assert run("verify", "mine").exit_code == 0


def test_verify_fails_on_a_set_that_is_not_the_published_one(root: Path) -> None:
    layouts.write_idx(root / "mnist", pixels(3, channels=1), pixels(2, channels=1))
    answer = run("verify", "mnist")
    assert answer.exit_code == 1
    assert "BAD  images: 5 of 70,000" in answer.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("get", "pacs"), "no direct address"),
        (("get", "nothing"), "unknown data set 'nothing'"),
        (("verify", "cifar10"), "fedarena data get cifar10"),
        (("import", "cifar10", "--from", "nowhere"), "is not a folder"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_exit_code_1(root: Path, words: tuple[str, ...], sentence: str) -> None:
    answer = run(*words)
    assert answer.exit_code == 1
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr
