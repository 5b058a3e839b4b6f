from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.data import data
from app.exits import BAD_INPUT, FAILED
from engine.data.download import Remote
from engine.data.sets import REGISTRY
from tests.engine.data import layouts
from tests.engine.data.layouts import pixels


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDARENA_DATA", str(tmp_path / "data"))
    layouts.put_system_folders(monkeypatch)
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


def test_ls_says_how_many_images_of_a_set_that_is_not_complete_are_there(root: Path) -> None:
    layouts.write_idx(root / "mnist", pixels(3, channels=1), pixels(2, channels=1))
    assert "5 of 70,000" in run("ls").output


def test_ls_names_the_file_that_a_folder_lacks(root: Path) -> None:
    layouts.write_idx(root / "mnist", pixels(3, channels=1), pixels(2, channels=1))
    (root / "mnist/t10k-labels-idx1-ubyte").unlink()
    words = " ".join(run("ls").output.split())
    assert "lacks t10k-labels-idx1-ubyte; missing: fedarena data get mnist" in words


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
    assert answer.exit_code == FAILED
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
def test_what_cannot_be_done_is_one_sentence_and_the_exit_code_of_the_other_commands(
    root: Path, words: tuple[str, ...], sentence: str
) -> None:
    answer = run(*words)
    assert answer.exit_code == BAD_INPUT
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("name", ["mnist", "digits", "synthetic"])
def test_clients_are_not_imported_under_the_name_of_a_published_set(root: Path, tmp_path: Path, name: str) -> None:
    answer = run("import", name, "--from", str(layouts.Clients(2).write(tmp_path / "from")))
    assert answer.exit_code == BAD_INPUT
    assert f"must not have the name of another data set, but got '{name}'; choose one of your own" in answer.stderr
    assert not root.exists()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[]", "config.json must hold an object, but holds list"),
        (
            '{"num_clients": 100000000000}',
            "num_clients must be the number of files train/<k>.npz, 2, but got 100000000000",
        ),
        ('{"num_clients": "2"}', "num_clients must be the number of files train/<k>.npz, 2, but got '2'"),
        ('{"num_classes": 100000000000}', "num_classes must be a whole number from 1 to 100000, but got 100000000000"),
        ('{"num_classes": null}', "num_classes must be a whole number from 1 to 100000, but got None"),
        ("[" * 100_000, "config.json is not JSON"),
    ],
    ids=["list", "clients", "text", "classes", "null", "deep"],
)
def test_what_is_wrong_with_the_config_of_a_client_folder_is_named(
    root: Path, tmp_path: Path, config: str, words: str
) -> None:
    folder = layouts.Clients(2).write(tmp_path / "from")
    (folder / "config.json").write_text(config)
    answer = run("import", "mine", "--from", str(folder))
    assert answer.exit_code == BAD_INPUT
    assert words in answer.stderr


def test_what_is_there_already_is_replaced_only_with_the_option(root: Path, tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "from", pixels(3, channels=1), pixels(2, channels=1))
    words = ("import", "mnist", "--from", str(tmp_path / "from"))
    assert run(*words).exit_code == 0
    answer = run(*words)
    assert answer.exit_code == BAD_INPUT
    assert "is already there; give --replace" in answer.stderr
    assert run(*words, "--replace").exit_code == 0


def test_a_set_that_cannot_be_fetched_comes_with_the_command_for_a_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Remote("a.zip", ("http://127.0.0.1:9/a.zip",), packed=True)
    monkeypatch.setitem(REGISTRY, "tiny-imagenet", replace(REGISTRY["tiny-imagenet"], remotes=(nowhere,)))
    answer = run("get", "tiny-imagenet")
    assert answer.exit_code == FAILED
    assert "import them with: fedarena data import tiny-imagenet --from FOLDER" in answer.stderr
