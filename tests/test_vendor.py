"""The vendored browser libraries are the ones that were fetched."""

import json
from pathlib import Path
from runpy import run_path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest

from tests.source import ROOT

vendor = SimpleNamespace(**run_path(str(ROOT / "scripts" / "vendor.py")))


FOLDERS = [(vendor.VENDOR, vendor.PACKAGES), (vendor.TEST_VENDOR, vendor.TEST_PACKAGES)]


@pytest.mark.parametrize(("folder", "packages"), FOLDERS, ids=["pages", "tests"])
def test_every_vendored_file_is_as_recorded(folder: Path, packages: tuple[Any, ...]) -> None:
    assert vendor.problems(folder) == []


@pytest.mark.parametrize(("folder", "packages"), FOLDERS, ids=["pages", "tests"])
def test_the_manifest_names_every_package_with_its_version_and_licence(folder: Path, packages: tuple[Any, ...]) -> None:
    manifest = json.loads((folder / vendor.MANIFEST).read_text(encoding="utf-8"))
    told = [(item["name"], item["version"], item["licence"]) for item in manifest]
    assert told == [(package.name, package.version, package.licence) for package in packages]
    assert all((folder / item["name"] / "LICENSE").is_file() for item in manifest)


@pytest.mark.parametrize("change", ["edited", "deleted", "added"])
def test_a_changed_file_is_noticed(tmp_path: Path, change: str) -> None:
    folder = Path(copytree(vendor.VENDOR, tmp_path / "vendor"))
    victim = folder / "uplot" / "uPlot.min.css"
    if change == "edited":
        victim.write_text("body {}", encoding="utf-8")
    elif change == "deleted":
        victim.unlink()
    else:
        (folder / "stranger.js").write_text("", encoding="utf-8")
    assert len(vendor.problems(folder)) == 1
