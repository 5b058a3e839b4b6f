"""Copy browser libraries from their npm packages into the vendor folders, and check that the copies are unchanged."""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "static" / "vendor"
TEST_VENDOR = ROOT / "tests" / "browser" / "vendor"
MANIFEST = "vendor.json"


@dataclass(frozen=True)
class Package:
    """One npm package and the files that are taken from it."""

    name: str
    version: str
    licence: str
    files: tuple[str, ...]


PACKAGES = (
    Package("uplot", "1.6.32", "MIT", ("LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css")),
    Package("js-yaml", "5.5.0", "MIT", ("LICENSE", "dist/browser/js-yaml.esm.min.mjs")),
    Package("echarts", "6.1.0", "Apache-2.0", ("LICENSE", "NOTICE", "licenses/LICENSE-d3", "dist/echarts.esm.min.mjs")),
)
TEST_PACKAGES = (Package("axe-core", "4.14.0", "MPL-2.0", ("LICENSE", "LICENSE-3RD-PARTY.txt", "axe.min.js")),)
"""Served to nobody: the accessibility tests load it into the pages."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def problems(folder: Path = VENDOR) -> list[str]:
    """What differs between the folder and its manifest; empty when all is as recorded."""
    manifest: list[dict[str, Any]] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    found: list[str] = []
    known = {MANIFEST}
    for package in manifest:
        for entry in package["files"]:
            known.add(entry["file"])
            path = folder / entry["file"]
            if not path.is_file():
                found.append(f"{entry['file']} is missing; run `python scripts/vendor.py update`")
            elif digest(path) != entry["sha256"]:
                found.append(f"{entry['file']} has sha256 {digest(path)}, but the manifest says {entry['sha256']}")
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    found.extend(f"{name} is not in the manifest" for name in sorted(present - known))
    return found


def update(folder: Path = VENDOR, packages: tuple[Package, ...] = PACKAGES) -> None:
    """Fetch every package with `npm pack` and write the wanted files and the manifest."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is needed to fetch packages, but was not found; it is not needed to run FedArena")
    manifest: list[dict[str, Any]] = []
    for package in packages:
        with tempfile.TemporaryDirectory() as temporary:
            wanted = f"{package.name}@{package.version}"
            subprocess.run(
                [npm, "pack", "--silent", "--pack-destination", temporary, wanted],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            archive = next(Path(temporary).glob("*.tgz"))
            entries = []
            with tarfile.open(archive) as tar:
                for member in package.files:
                    content = tar.extractfile(f"package/{member}")
                    if content is None:
                        raise SystemExit(f"{wanted} holds no file {member}")
                    target = folder / package.name / Path(member).name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
                    entries.append(
                        {"file": target.relative_to(folder).as_posix(), "source": member, "sha256": digest(target)}
                    )
        manifest.append(
            {"name": package.name, "version": package.version, "licence": package.licence, "files": entries}
        )
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=("update", "verify"), default="update")
    if parser.parse_args().command == "update":
        update()
        update(TEST_VENDOR, TEST_PACKAGES)
    found = [*problems(), *problems(TEST_VENDOR)]
    for line in found:
        sys.stderr.write(line + "\n")
    if not found:
        sys.stdout.write("every vendored file is as recorded\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
