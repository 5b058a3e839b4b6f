"""Which data sets are there, and each as one tensor: loaded once per process from the data folder, or made."""

import hashlib
import json
import logging
import os
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data import files, search
from engine.data.dataset import Dataset, tensor
from engine.data.errors import DataDamaged, DataError, DataMissing, Remedy
from engine.data.formats.layout import Contents, Layout, Progress, quiet
from engine.data.imported import IMPORTED, imported_files, load_imported
from engine.data.sets import REGISTRY
from engine.data.spec import DatasetSpec, ImportedSet

__all__ = [
    "Availability",
    "DataDamaged",
    "DataError",
    "DataMissing",
    "Dataset",
    "available",
    "load",
    "require",
]

log = logging.getLogger("fedarena.data")

CACHE = ".cache"
_DECODER = 1  # raise it when a reader's output changes: every cache is then made again
_KEPT = 4  # data sets that stay loaded in a process although nobody uses them


@dataclass(frozen=True)
class Availability:
    """A known data set, and whether it is there."""

    name: str  # the name in a spec; for an imported set the name it was given
    title: str
    shape: tuple[int, int, int]
    classes: int
    images: int
    available: bool
    location: str  # folder or file; empty for a missing set, "built in" for one without files
    imported: bool = False
    clients: int = 0  # of an imported set
    found: int | None = None  # images that lie there, where they were counted
    lacks: str = ""  # of a missing set: which of its files miss in which folder, where some are there
    remedy: Remedy | None = None  # of a missing set

    @property
    def incomplete(self) -> bool:
        """Fewer images lie there than were published."""
        return self.found is not None and self.found < self.images


def available(root: Path | None, *, count: bool = False) -> tuple[Availability, ...]:
    """Every known data set and whether it is there; nothing is decoded. `count` looks at every image file's name."""
    rows = []
    for entry in REGISTRY.values():
        place = None if entry.bundled else search.find(entry.name, root)
        location = "built in" if entry.bundled else "" if place is None else str(place[1])
        rows.append(
            Availability(
                entry.name,
                entry.title,
                entry.shape,
                entry.classes,
                entry.images,
                bool(location),
                location,
                found=place[0].count(place[1]) if count and place is not None else None,
                lacks="" if location else _lacks(entry.name, root),
                remedy=None if location else entry.remedy,
            )
        )
    for name, path in sorted(imported_files(root).items()):
        try:
            tensors, notes = files.read_tensors(path, full_check=False)
            number, height, width, channels = tensors["images"].shape
            about = json.loads(notes["about"])
            classes, clients = int(about["classes"]), len(about["ranges"])
        except (DataDamaged, KeyError, ValueError) as error:
            log.warning("the imported set %s cannot be read: %s", name, error)
            continue
        rows.append(
            Availability(
                name, f"{name} (imported)", (channels, height, width), classes, number, True, str(path), True, clients
            )
        )
    return tuple(rows)


def require(spec: DatasetSpec, root: Path | None) -> None:
    """Raise DataMissing if the spec's data set is not there; nothing is decoded."""
    _locate(spec, root)


def _locate(spec: DatasetSpec, root: Path | None) -> tuple[Layout, Path] | Path | None:
    """Layout and folder of a published set, file of an imported one, None for a set without files."""
    if isinstance(spec, ImportedSet):
        # the name is compared with what is there, it never becomes part of a path
        path = imported_files(root).get(spec.set)
        if path is None:
            raise DataMissing(
                f"the imported data set {spec.set!r} is missing: it was looked for in "
                f"{'no folder' if root is None else root / IMPORTED}",
                Remedy(spec.set, "import"),
            )
        return path
    if REGISTRY[spec.name].bundled:
        return None
    found = search.find(spec.name, root)
    if found is None:
        raise missing(spec.name, root)
    return found


def missing(name: str, root: Path | None) -> DataMissing:
    """What to raise where `find` has found nothing."""
    places = dict.fromkeys(
        str(folder) for layout in REGISTRY[name].layouts for folder in search.folders_to_search(name, layout, root)
    )
    where = ", ".join(places) or "no folder: no data folder is set"
    part = f"; {lacks}" if (lacks := _lacks(name, root)) else ""
    return DataMissing(f"the data set {name} is missing: it was looked for in {where}{part}", REGISTRY[name].remedy)


def _lacks(name: str, root: Path | None) -> str:
    """`/data/cifar-10-batches-bin lacks data_batch_3.bin`; empty where none of its files is there."""
    part = search.find_part(name, root)
    return f"{part[0]} lacks {', '.join(part[1])}" if part else ""


_in_use: "weakref.WeakValueDictionary[tuple[str, ...], Dataset]" = weakref.WeakValueDictionary()
_recent: OrderedDict[tuple[str, ...], Dataset] = OrderedDict()
_decoding: "weakref.WeakValueDictionary[tuple[str, ...], threading.Lock]" = weakref.WeakValueDictionary()
_lock = threading.Lock()
"""Of the three above. Decoding takes minutes, so it holds the lock of its own files instead."""


def load(spec: DatasetSpec, root: Path | None, progress: Progress | None = None) -> Dataset:
    """The data set of the spec; within a process the same object as long as its folder does not change."""
    place = _locate(spec, root)
    where: tuple[str, ...] = ()
    if place is not None:
        path = place[1] if isinstance(place, tuple) else place
        where = (str(path), str(path.stat().st_mtime_ns), str(root))
    key = (spec.model_dump_json(exclude={"transform"}), *where)
    with _lock:
        decoding = _decoding.setdefault(where or key, threading.Lock())
    with decoding:
        with _lock:
            dataset = _in_use.get(key)
        if dataset is None:
            dataset = _load(spec, place, root, progress or quiet)
        with _lock:
            _in_use[key] = dataset
            _recent[key] = dataset
            _recent.move_to_end(key)
            while len(_recent) > _KEPT:
                _recent.popitem(last=False)
    return dataset


def _load(
    spec: DatasetSpec, place: tuple[Layout, Path] | Path | None, root: Path | None, progress: Progress
) -> Dataset:
    if isinstance(place, Path):
        return load_imported(place)
    card = REGISTRY[spec.name]
    if card.make is not None:
        return card.make(spec)
    assert place is not None  # only a set that is made lies nowhere
    tensors, about = decoded(spec.name, place, root, progress)
    coarse = card.coarse_classes if spec.labels == "coarse" else None
    if (count := len(tensors["labels"])) != card.images:
        log.warning("%s: %s holds %d of the %d published images", spec.name, place[1], count, card.images)
    return Dataset(
        spec.name,
        tensor(tensors["images"]),
        tensor(tensors["coarse" if coarse else "labels"]),
        coarse or about["classes"],
        tensor(tensors["official_test"]),
        tensor(tensors["domains"]) if "domains" in tensors else None,
        tuple(about["domain_names"]),
        tuple(about["coarse_names" if coarse else "class_names"]),
    )


def decoded(
    name: str, place: tuple[Layout, Path], root: Path | None, progress: Progress, *, again: bool = False
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors of a published set from the cache, or decoded now and cached if the data folder can be written.

    `again` reads the source files even if the cache has them.
    """
    layout, folder = place
    path = None if root is None else root / CACHE / f"{name}-{_fingerprint(name, layout, folder)}.safetensors"
    if path is not None and path.is_file() and not again:
        try:
            tensors, notes = files.read_tensors(path)
            return tensors, json.loads(notes["about"])
        except (DataDamaged, KeyError, ValueError, FileNotFoundError) as error:
            log.warning("%s; the data set is decoded again", error)
    contents = layout.read(folder)
    small, about = _small_tensors(contents)
    if path is not None and _writable(path.parent):
        try:
            files.write_tensors(
                path,
                small,
                {"about": json.dumps(about)},
                large=("images", contents.shape, np.uint8, lambda out: contents.fill(out, progress)),
            )
        except OSError as error:
            log.warning("%s cannot be written (%s); the data set is kept in memory", path, error)
        else:
            files.delete_others(path.parent, name, path)
            return files.read_tensors(path, full_check=False)[0], about
    images = np.empty(contents.shape, np.uint8)
    contents.fill(images, progress)
    return {**small, "images": images}, about


def _small_tensors(contents: Contents) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    small: dict[str, NDArray[Any]] = {"labels": contents.labels, "official_test": contents.official_test}
    if contents.coarse is not None:
        small["coarse"] = contents.coarse
    if contents.domains is not None:
        small["domains"] = contents.domains
    about = {
        "classes": contents.classes,
        "class_names": contents.class_names,
        "coarse_names": contents.coarse_names,
        "domain_names": contents.domain_names,
    }
    return small, about


def _fingerprint(name: str, layout: Layout, folder: Path) -> str:
    """Names, sizes and times of all source files: any change gives another cache file."""
    digest = hashlib.sha256(f"{_DECODER}\0{name}\0{layout.title}\0".encode())
    for path in layout.files(folder):
        status = path.stat()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:32]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.info("%s cannot be made (%s); decoded data sets stay in memory", folder, error)
        return False
    return os.access(folder, os.W_OK)
