"""What `fedarena data` does: list, fetch, bring in and check data sets, with progress told to a callback."""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.data import datasets, files, readers
from engine.data.archives import unpack
from engine.data.datasets import PUBLISHED, Availability, available
from engine.data.download import Remote, checksum, fetch
from engine.data.errors import DataDamaged, DataMissing

Report = Callable[[str, int, int | None], None]
"""Called with (what is being done, done so far, in all if known)."""

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_OXFORD = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
_BOSTON = "https://csr.bu.edu/ftp/visda/2019/multi-source"


def _idx(mirrors: Sequence[str], *sums: str) -> tuple[Remote, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        Remote(f"{name}-ubyte.gz", tuple(f"{mirror}/{name}-ubyte.gz" for mirror in mirrors), f"md5:{digest}")
        for name, digest in zip(names, sums, strict=True)
    )


def _domainnet() -> tuple[Remote, ...]:
    """No checksum is published; a zip archive carries one for each of its files."""
    cleaned = {"clipart", "painting"}  # the publisher's version without duplicates
    archives = (
        Remote(f"{d}.zip", (f"{_BOSTON}/{'groundtruth/' if d in cleaned else ''}{d}.zip",), packed=True)
        for d in readers.DOMAINNET_DOMAINS
    )
    lists = (Remote(f"{d}_test.txt", (f"{_BOSTON}/domainnet/txt/{d}_test.txt",)) for d in readers.DOMAINNET_DOMAINS)
    return (*archives, *lists)


REMOTES: Mapping[str, tuple[Remote, ...]] = {
    "mnist": _idx(
        ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fmnist": _idx(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            (f"{_TORONTO}/cifar-10-python.tar.gz",),
            "md5:c58f30108f718f92721af3b95e74349a",
            packed=True,
        ),
    ),
    "cifar100": (
        Remote(
            "cifar-100-python.tar.gz",
            (f"{_TORONTO}/cifar-100-python.tar.gz",),
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
            packed=True,
        ),
    ),
    "flowers102": (
        Remote("102flowers.tgz", (f"{_OXFORD}/102flowers.tgz",), "md5:52808999861908f626f3c1f4e79d11fa", packed=True),
        Remote("imagelabels.mat", (f"{_OXFORD}/imagelabels.mat",), "md5:e0620be6f572b9609742df49c70aed4d"),
        Remote("setid.mat", (f"{_OXFORD}/setid.mat",), "md5:a5357ecc9cb78c4bef273ce3793fc85c"),
    ),
    "tiny-imagenet": (
        Remote(
            "tiny-imagenet-200.zip",
            ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
            "md5:90528d7ca1a48142e341f4ef8d21d0de",
            packed=True,
        ),
    ),
    "domainnet": _domainnet(),
}
"""The publishers' own addresses and checksums. PACS is published on a page without a direct address."""

PACS_PAGE = "https://sketchx.eecs.qmul.ac.uk/"

FILE_SUMS: Mapping[str, Mapping[str, str]] = {
    "cifar100": {
        "train": "md5:16019d7e3df5f24257cddd939b257f8d",
        "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    "flowers102": {
        "imagelabels.mat": "md5:e0620be6f572b9609742df49c70aed4d",
        "setid.mat": "md5:a5357ecc9cb78c4bef273ce3793fc85c",
    },
}
"""Published sums of single files, by file name."""

CONTENT_SUMS: Mapping[str, str] = {
    "mnist": "ce9872250c0067044ac3d7ef44de3c2969db066251c76092937ac6e59b9cfcd7",
    "fmnist": "d572008488220983a52dc4dd2a0866a78f5424ec3496d6c70ea34ddb6832d07d",
    "cifar10": "c62c88aebf649e5dd89e06e8b14ae89305ac9697112bb92b59f9386bfa6736ff",
}
"""SHA-256 of images, labels and test marks as decoded: the same for every layout and compression."""


def list_sets(root: Path | None) -> tuple[Availability, ...]:
    return available(root, count=True)


def _published(name: str) -> None:
    if name not in readers.LAYOUTS:
        bundled = name in PUBLISHED
        raise DataMissing(
            f"{name} is built in, there is nothing to fetch"
            if bundled
            else f"unknown data set {name!r}; known: {', '.join(readers.LAYOUTS)}"
        )


def get(name: str, root: Path, report: Report, remotes: Sequence[Remote] | None = None) -> Path:
    """Fetch a published data set into root/<name>; the folder that holds it, also if it was there already."""
    _published(name)
    if (found := readers.find(name, root)) is not None:
        return found[1]
    sources = REMOTES.get(name) if remotes is None else remotes
    if sources is None:
        raise DataMissing(
            f"{name} has no direct address: get it from its publisher ({PACS_PAGE}), unpack it, and use: "
            f"fedarena data import {name} --from FOLDER"
        )
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
        if readers.find_below(name, made) is None:
            raise DataDamaged(f"what was fetched for {name} is not in a known layout; the files are in {downloads}")
        made.replace(target)
        files.sync_folder(root)
    shutil.rmtree(downloads)
    found = readers.find(name, root)
    if found is None:
        raise DataDamaged(f"{target} was written but is not found")
    return found[1]


def _download_report(report: Report, file: str) -> Callable[[int, int | None], None]:
    return lambda done, total: report(f"fetching {file}", done, total)


def _unpack_report(report: Report, file: str) -> Callable[[int], None]:
    return lambda done: report(f"unpacking {file}", done, None)


@dataclass(frozen=True)
class Imported:
    """What `fedarena data import` made."""

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
    if readers.is_client_folder(source):
        return _import_clients(name, source, root, report, replace=replace)
    if name not in readers.LAYOUTS:
        raise DataMissing(
            f"{source} is not a folder of PFLlib or HtFLlib (config.json, train/0.npz, test/0.npz), and {name!r} is no "
            f"published data set; known: {', '.join(readers.LAYOUTS)}"
        )
    found = readers.find_below(name, source)
    if found is None:
        layouts = ", ".join(dict.fromkeys(folder for layout in readers.LAYOUTS[name] for folder in layout.folders))
        raise DataMissing(f"{source} does not hold {name} in a known layout ({layouts})")
    layout, folder = found
    contents = layout.read(folder)  # raises where a file is cut off or a label is impossible
    target = root / name
    if target.exists() or target.is_symlink():
        if not replace:
            raise DataDamaged(f"{target} is already there; give --replace to put the new one in its place")
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
    if name in PUBLISHED:
        raise DataDamaged(
            f"{source} is a folder of clients, which must not have the name of another data set, but got {name!r}; "
            f"choose one of your own, such as my-{name}"
        )
    path = datasets.imported_path(name, root)
    if path.exists() and not replace:
        raise DataDamaged(f"an imported set {name!r} is already there ({path}); give --replace to replace it")
    folder = readers.read_client_folder(source, lambda done, total: report("reading clients", done, total))
    datasets.store_imported(name, folder, root)
    return Imported(path, len(folder.labels), folder.classes, len(folder.ranges), f"{{name: imported, set: {name}}}")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    passed: bool
    detail: str


def verify(name: str, root: Path | None, report: Report) -> tuple[Check, ...]:
    """Read the whole data set and compare it with what its publisher published."""
    if name not in readers.LAYOUTS:
        return _verify_imported(name, root)
    found = readers.find(name, root)
    if found is None:
        raise DataMissing(datasets.missing_message(name, root))
    layout, folder = found
    checks = [Check("found", True, f"{folder} ({layout.title})")]
    for path in layout.files(folder):
        known = FILE_SUMS.get(name, {}).get(path.name)
        if known is not None:
            report(f"checking {path.name}", 0, None)
            same = checksum(path, known.partition(":")[0]) == known
            checks.append(Check(path.name, same, known if same else f"has another checksum than the published {known}"))
    try:
        tensors, about = datasets.decoded(
            name, found, root, lambda done, total: report("decoding", done, total), again=True
        )
    except DataDamaged as error:
        return (*checks, Check("readable", False, str(error)))
    images, published = len(tensors["labels"]), PUBLISHED[name]
    checks.append(Check("images", images == published.images, f"{images:,} of {published.images:,}"))
    checks.append(Check("classes", about["classes"] == published.classes, f"{about['classes']} of {published.classes}"))
    if name in CONTENT_SUMS:
        report("checking content", 0, None)
        same = content_sum(tensors) == CONTENT_SUMS[name]
        checks.append(Check("content", same, "as published" if same else "differs from the published images or labels"))
    return tuple(checks)


def _verify_imported(name: str, root: Path | None) -> tuple[Check, ...]:
    rows = [row for row in available(root) if row.imported and row.name == name]
    if not rows:
        raise DataMissing(f"there is no data set {name!r} to verify; `fedarena data ls` shows what is there")
    row = rows[0]
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
