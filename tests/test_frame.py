"""The project's frame: dependencies, documentation, make targets and the bootstrap script say what is true."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from tests.source import PACKAGES, ROOT, files, imports, modules, shown, tree

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name, maxsplit=1)[0]).lower()


def declared(*extras: str) -> set[str]:
    lists = [
        PROJECT["project"]["dependencies"],
        *(PROJECT["project"]["optional-dependencies"][extra] for extra in extras),
    ]
    names = {canonical(requirement) for requirements in lists for requirement in requirements}
    return names | {"pydantic-core"}  # half of pydantic, which pins it exactly


def foreign(paths: list[Path]) -> dict[str, str]:
    """Top-level names that are neither ours nor Python's own, with a file that imports each."""
    ours = {*PACKAGES, "tests", "scripts"}
    names = {name.split(".")[0]: shown(path) for path in paths for name in imports(path)}
    return {name: where for name, where in names.items() if name not in ours and name not in sys.stdlib_module_names}


def missing(used: dict[str, str], allowed: set[str]) -> list[str]:
    owners = packages_distributions()
    return [
        f"{where} imports {name}"
        for name, where in used.items()
        if not {canonical(owner) for owner in owners.get(name, [name])} & allowed
    ]


def run_bootstrap(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script in a checkout of its own, with nothing but these variables and ordinary commands."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "bootstrap", folder / "scripts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return subprocess.run(
        [folder / "scripts" / "bootstrap"],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def stand_in(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_everything_the_packages_import_is_a_declared_dependency() -> None:
    assert missing(foreign(list(modules().values())), declared("postgres")) == []


def test_everything_tests_and_scripts_import_is_declared_for_developers() -> None:
    paths = [*files(".py", under="tests"), *files(".py", under="scripts")]
    assert missing(foreign(paths), declared("postgres", "dev")) == []


def test_torch_and_torchvision_are_pinned_exactly_and_nowhere_else_asked_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = [*PROJECT["project"]["dependencies"], *(requirement for extra in extras for requirement in extra)]
    assert [r for r in asked if r.startswith("torch")] == ["torch==2.13.0", "torchvision==0.28.0"]


def test_the_image_installs_the_same_torch_as_the_project() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    pins = [r for r in PROJECT["project"]["dependencies"] if r.startswith("torch")]
    assert [pin for pin in pins if not re.search(rf"{re.escape(pin)}(\s|$)", text)] == []


def test_every_dependency_has_an_upper_bound() -> None:
    open_ended = [r for r in PROJECT["project"]["dependencies"] if "<" not in r and "==" not in r.split(";")[0]]
    assert open_ended == []


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["project"]["version"]
    assert f"image: fedarena:{version}" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in Settings.model_fields if f"`FEDARENA_{name.upper()}`" not in page] == []


def test_the_tables_of_the_documentation_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_links_between_the_documents_lead_somewhere() -> None:
    dead = [
        f"{shown(page)}: {target}"
        for page in files(".md")
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert dead == []


def test_the_first_screen_of_the_readme_says_how_to_start_and_how_to_test() -> None:
    first = (ROOT / "README.md").read_text().partition("\n## ")[0]
    for command in ("make run", "make test"):
        assert re.search(rf"^{command} +#.*(minute|second)", first, re.MULTILINE), f"{command}: what it does, how long"
    for needed in ("git", "make", "Python 3.11", "Chromium"):
        assert needed in first


def test_files_named_by_the_documents_exist() -> None:
    """`engine/vision.py` in a text must be a file: names rot faster than links."""
    path = re.compile(r"`((?:engine|app|workers|tests|scripts|docs|templates|static)/[\w./-]+\.\w+)`")
    dead = [
        f"{shown(page)}: {name}"
        for page in files(".md")
        for name in path.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert dead == []


def test_every_make_target_that_runs_a_script_finds_it() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"scripts/[\w.]+", text) if not (ROOT / name).exists()] == []


def make(*arguments: str) -> str:
    program = shutil.which("make")
    if program is None:
        pytest.skip("make is not installed")
    return subprocess.run([program, "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout


def targets() -> list[str]:
    line = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return line[1].split() if line else []


def test_make_alone_lists_every_target() -> None:
    listed = make()
    assert [target for target in targets() if f"make {target} " not in listed] == []


@pytest.mark.parametrize("target", targets())
def test_every_make_target_knows_what_it_would_do(target: str) -> None:
    assert make("--dry-run", target)


def test_a_wheel_carries_pages_scripts_and_migrations(tmp_path: Path) -> None:
    source = tmp_path / "source"
    unneeded = shutil.ignore_patterns("__pycache__", ".*", "tests", "docs", "*.egg-info", "build")
    shutil.copytree(ROOT, source, ignore=unneeded)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, source],
        check=True,
        capture_output=True,
    )
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    wanted = {
        shown(path)
        for folder in ("templates", "static", *PACKAGES)
        for path in files(under=folder)
        if path.name != ".gitkeep"
    }
    assert sorted(wanted - names) == []


def test_python_files_name_no_test_or_fixture_twice() -> None:
    """A second function of one name hides the first: it would never run."""
    twice = []
    for path in files(".py", under="tests"):
        names = [node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        twice += [f"{shown(path)}: {name}" for name in sorted(set(names)) if names.count(name) > 1]
    assert twice == []


def test_bootstrap_says_in_one_line_that_python_is_missing(tmp_path: Path) -> None:
    done = run_bootstrap(tmp_path / "checkout", PYTHON=str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert re.fullmatch(r"fedarena: Python 3\.11 or newer is needed, but .*nowhere does not run; .*\n", done.stderr)


def test_bootstrap_says_in_one_line_that_python_is_too_old(tmp_path: Path) -> None:
    old = 'case "$*" in -V) echo Python 3.9.2;; *version_info*) exit 1;; esac'
    done = run_bootstrap(tmp_path / "checkout", PYTHON=stand_in(tmp_path / "python3.9", old))
    assert done.returncode == 1
    assert re.fullmatch(r"fedarena: Python 3\.11 or newer is needed, but .* is Python 3\.9\.2; .*\n", done.stderr)


def test_bootstrap_says_in_one_line_that_the_venv_module_is_missing(tmp_path: Path) -> None:
    bare = f'case "$*" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"'
    done = run_bootstrap(tmp_path / "checkout", PYTHON=stand_in(tmp_path / "python3", bare))
    assert done.returncode == 1
    assert re.fullmatch(r"fedarena: .* has no venv module; .*apt-get install python3-venv\n", done.stderr)


def test_bootstrap_says_in_one_line_that_there_is_no_network(tmp_path: Path) -> None:
    done = run_bootstrap(
        tmp_path / "checkout",
        PYTHON=sys.executable,
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="0",
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"fedarena: the installation failed: no package index could be reached, check the network \(.*\); "
        r"all of it is in \.venv/install\.log\n",
        done.stderr,
    )
    assert not list((tmp_path / "checkout" / ".venv").glob(".installed*"))


def test_bootstrap_does_nothing_when_all_is_installed(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    commands = checkout / ".venv" / "bin"
    commands.mkdir(parents=True)
    stand_in(commands / "fedarena", "exit 0")
    checksum = subprocess.run(
        ["cksum"], stdin=(ROOT / "pyproject.toml").open("rb"), capture_output=True, text=True, check=True
    )
    (checkout / ".venv" / ".installed-run").write_text(f"{checkout / '.venv'} {checksum.stdout}", encoding="utf-8")
    done = run_bootstrap(checkout, PYTHON=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
