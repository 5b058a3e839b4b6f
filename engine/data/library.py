"""List, fetch, bring in and check data sets, with progress reported to a callback."""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.data import files, search
from engine.data.archives import unpack
from engine.data.datasets import Availability, available, decoded, missing
from engine.data.download import Remote, checksum, fetch
from engine.data.errors import DataDamaged, DataMissing, DataPresent
from engine.data.formats import client_folders
from engine.data.imported import imported_path, store_imported
from engine.data.sets import REGISTRY, published

Report = Callable[[str, int, int | None], None]
"""Called with (what is being done, done so far, in all if known)."""


def list_sets(root: Path | None) -> tuple[Availability, ...]:
    return available(root, count=True)


def _published(name: str) -> None:
    if name not in published():
        bundled = name in REGISTRY
        raise DataMissing(
            f"{name} is built in, there is nothing to fetch"
            if bundled
            else f"unknown data set {name!r}; known: {', '.join(published())}"
        )


def get(name: str, root: Path, report: Report, remotes: Sequence[Remote] | None = None) -> Path:
    """Fetch a published data set into root/<name>; the folder that holds it, also if it was there already."""
    _published(name)
    if (found := search.find(name, root)) is not None:
        return found[1]
    sources = REGISTRY[name].remotes if remotes is None else remotes
    if not sources:
        raise DataMissing(f"{name} has no direct address", REGISTRY[name].remedy)
    target = root / name
    if target.exists():
        raise DataDamaged(f"{target} is there but holds no complete {name}; move it away first")
    downloads = root / ".downloads" / name
    paths = [fetch(source, downloads, _download_report(report, source.file)) for source in sources]
    with files.staging(root, name) as stage:
        made = stage / name
        made.mkdir()
        for source, path in zip(sources, paths, strict=True):
            if source.packed:
                unpack(path, made, _unpack_report(report, source.file))
            else:
                shutil.copy2(path, made / source.file)
        if search.find_below(name, made) is None:
            raise DataDamaged(f"what was fetched for {name} is not in a known layout; the files are in {downloads}")
        made.replace(target)
        files.sync_folder(root)
    shutil.rmtree(downloads)
    found = search.find(name, root)
    if found is None:
        raise DataDamaged(f"{target} was written but is not found")
    return found[1]


def _download_report(report: Report, file: str) -> Callable[[int, int | None], None]:
    return lambda done, total: report(f"fetching {file}", done, total)


def _unpack_report(report: Report, file: str) -> Callable[[int], None]:
    return lambda done: report(f"unpacking {file}", done, None)


@dataclass(frozen=True)
class Imported:
    """What `import_folder` made."""

    location: Path
    images: int
    classes: int
    clients: int  # 0 for a published set
    dataset: str  # what a spec says to use it


def import_folder(
    name: str, source: Path, root: Path, report: Report, *, link: bool = False, replace: bool = False
) -> Imported:
    """Bring in a folder: a published set in one of its layouts, or the clients of a PFLlib or HtFLlib folder."""
    if not source.is_dir():
        raise DataMissing(f"{source} is not a folder")
    if client_folders.is_client_folder(source):
        return _import_clients(name, source, root, report, replace=replace)
    if name not in published():
        raise DataMissing(
            f"{source} is not a folder of PFLlib or HtFLlib (config.json, train/0.npz, test/0.npz), and {name!r} is no "
            f"published data set; known: {', '.join(published())}"
        )
    found = search.find_below(name, source)
    if found is None:
        layouts = ", ".join(dict.fromkeys(folder for layout in REGISTRY[name].layouts for folder in layout.folders))
        raise DataMissing(f"{source} does not hold {name} in a known layout ({layouts})")
    layout, folder = found
    contents = layout.read(folder)  # raises where a file is cut off or a label is impossible
    target = root / name
    if target.exists() or target.is_symlink():
        if not replace:
            raise DataPresent(f"{target} is already there")
        if target.resolve() == folder.resolve():
            raise DataDamaged(f"{target} is the folder to be brought in")
    with files.staging(root, name) as stage:
        made = stage / name
        if link:
            made.symlink_to(folder.resolve(), target_is_directory=True)
        else:
            _copy(layout.files(folder), folder, made, report)
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            target.replace(stage / "old")
        made.replace(target)
        files.sync_folder(root)
    return Imported(target, len(contents.labels), contents.classes, 0, f"{{name: {name}}}")


def _copy(paths: Sequence[Path], source: Path, target: Path, report: Report) -> None:
    """Only the files of the layout: nothing else that lies in the folder, and no links out of it."""
    for number, path in enumerate(paths, 1):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
        if number % 64 == 0 or number == len(paths):
            report("copying", number, len(paths))


def _import_clients(name: str, source: Path, root: Path, report: Report, *, replace: bool) -> Imported:
    if name in REGISTRY:
        raise DataDamaged(
            f"{source} is a folder of clients, which must not have the name of another data set, but got {name!r}; "
            f"choose one of your own, such as my-{name}"
        )
    path = imported_path(name, root)
    if path.exists() and not replace:
        raise DataPresent(f"an imported set {name!r} is already there ({path})")
    folder = client_folders.read_client_folder(source, lambda done, total: report("reading clients", done, total))
    store_imported(name, folder, root)
    return Imported(path, len(folder.labels), folder.classes, len(folder.ranges), f"{{name: imported, set: {name}}}")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    passed: bool
    detail: str


def verify(name: str, root: Path | None, report: Report) -> tuple[Check, ...]:
    """Read the whole data set and compare it with what its publisher published."""
    if name not in published():
        return _verify_imported(name, root)
    found = search.find(name, root)
    if found is None:
        raise missing(name, root)
    card, (layout, folder) = REGISTRY[name], found
    checks = [Check("found", True, f"{folder} ({layout.title})")]
    for path in layout.files(folder):
        known = card.file_sums.get(path.name)
        if known is not None:
            report(f"checking {path.name}", 0, None)
            same = checksum(path, known.partition(":")[0]) == known
            checks.append(Check(path.name, same, known if same else f"has another checksum than the published {known}"))
    try:
        tensors, about = decoded(name, found, root, lambda done, total: report("decoding", done, total), again=True)
    except DataDamaged as error:
        return (*checks, Check("readable", False, str(error)))
    images = len(tensors["labels"])
    checks.append(Check("images", images == card.images, f"{images:,} of {card.images:,}"))
    checks.append(Check("classes", about["classes"] == card.classes, f"{about['classes']} of {card.classes}"))
    if card.content_sum is not None:
        report("checking content", 0, None)
        same = content_sum(tensors) == card.content_sum
        checks.append(Check("content", same, "as published" if same else "differs from the published images or labels"))
    return tuple(checks)


def _verify_imported(name: str, root: Path | None) -> tuple[Check, ...]:
    imported = {row.name: row for row in available(root) if row.imported}
    if name not in imported:
        known = ", ".join([*published(), *imported])
        raise DataMissing(f"there is no data set {name!r} to verify; known: {known}")
    row = imported[name]
    try:
        files.read_tensors(Path(row.location), full_check=True)
    except DataDamaged as error:
        return (Check("checksum", False, str(error)),)
    return (
        Check("found", True, row.location),
        Check("checksum", True, f"{row.images:,} images, {row.classes} classes, {row.clients} clients as imported"),
    )


def content_sum(tensors: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for key in ("images", "labels", "official_test"):
        array = np.asarray(tensors[key])
        for start in range(0, len(array), 4096):
            digest.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return digest.hexdigest()
