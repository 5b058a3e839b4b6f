"""Read the folders in which published data sets lie on people's disks."""

import gzip
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.data.errors import DataDamaged
from engine.data.unpickle import unpickle

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"})
SIDE = 64  # height and width of every set that is published as image files

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Contents:
    """A data set on disk whose labels are known and whose pixels are read by `fill`."""

    shape: tuple[int, int, int, int]  # (n, H, W, C)
    labels: NDArray[np.int64]
    classes: int
    official_test: NDArray[np.bool_]
    fill: Callable[[NDArray[np.uint8], Progress], None]
    class_names: tuple[str, ...] = ()
    coarse: NDArray[np.int64] | None = None
    coarse_names: tuple[str, ...] = ()
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies on disk."""

    title: str
    folders: tuple[str, ...]  # where it is looked for, below the data folder
    match: Callable[[Path], bool]  # cheap: is this the folder?
    files: Callable[[Path], list[Path]]  # every file that is read, in a fixed order
    read: Callable[[Path], Contents]
    count: Callable[[Path], int | None] = lambda _folder: None  # images; None: only decoding them all would tell
    lacks: Callable[[Path], tuple[str, ...]] = lambda _folder: ()  # files that miss where others of the layout are


def _lacking(needed: Callable[[Path], Sequence[Path]]) -> Callable[[Path], tuple[str, ...]]:
    """The names of the needed files that are missing; none where the folder has none of them."""

    def lacks(folder: Path) -> tuple[str, ...]:
        paths = needed(folder)
        missing = tuple(path.name for path in paths if not path.exists())
        return missing if len(missing) < len(paths) else ()

    return lacks


def quiet(done: int, total: int) -> None:
    """Progress that nobody watches."""


# --- IDX files: mnist, fmnist ------------------------------------------------------------------------------------

_IDX_PARTS = (
    ("train-images", "idx3"),
    ("train-labels", "idx1"),
    ("t10k-images", "idx3"),
    ("t10k-labels", "idx1"),
)


def _idx_file(folder: Path, stem: str, kind: str) -> Path | None:
    for name in (f"{stem}-{kind}-ubyte", f"{stem}.{kind}-ubyte"):
        for suffix in ("", ".gz"):
            if (path := folder / f"{name}{suffix}").is_file():
                return path
    return None


def _idx_files(folder: Path) -> list[Path]:
    found = [_idx_file(folder, stem, kind) for stem, kind in _IDX_PARTS]
    return [path for path in found if path is not None]


def _idx_needed(folder: Path) -> list[Path]:
    return [_idx_file(folder, stem, kind) or folder / f"{stem}-{kind}-ubyte" for stem, kind in _IDX_PARTS]


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    header = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(header)
            magic = (8 << 8) | dimensions  # 8 = unsigned bytes
            if len(head) < header or int.from_bytes(head[:4], "big") != magic:
                raise DataDamaged(
                    f"{path} must begin with the IDX number {magic:#010x} and {dimensions} lengths, "
                    f"but begins with 0x{head[:4].hex()}"
                )
            shape = [int.from_bytes(head[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
            expected = int(np.prod(shape, dtype=object))
            if expected > 1 << 32:
                raise DataDamaged(f"{path} announces {expected:,} bytes, more than any file of this kind has")
            body = file.read(expected + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataDamaged(f"{path} is cut off or not a gzip file ({error}); fetch it again") from error
    if len(body) != expected:
        more = "more" if len(body) > expected else f"{len(body):,}"
        raise DataDamaged(f"{path} must hold {expected:,} bytes after its header, but holds {more}; fetch it again")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _count_idx(folder: Path) -> int | None:
    """By the first length in the headers of both image files."""
    total = 0
    for path, _ in _pairs(_idx_files(folder)):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                total += int.from_bytes(file.read(8)[4:], "big")
        except (OSError, EOFError, zlib.error):
            return None  # reading it will say what is wrong
    return total


def _idx_reader(class_names: tuple[str, ...]) -> Callable[[Path], Contents]:
    def read(folder: Path) -> Contents:
        parts = []
        for images_path, labels_path in _pairs(_idx_files(folder)):
            images, numbers = _read_idx(images_path, 3), _read_idx(labels_path, 1)
            if len(images) != len(numbers):
                raise DataDamaged(
                    f"{images_path} has {len(images):,} images, but {labels_path} {len(numbers):,} labels"
                )
            parts.append((images, numbers))
        (train, train_labels), (test, test_labels) = parts
        if train.shape[1:] != test.shape[1:]:
            raise DataDamaged(f"{folder} has training images of {train.shape[1:]}, but test images of {test.shape[1:]}")
        labels = _checked(np.concatenate([train_labels, test_labels]), 10, folder)

        def fill(out: NDArray[np.uint8], progress: Progress) -> None:
            out[: len(train), :, :, 0] = train
            out[len(train) :, :, :, 0] = test
            progress(len(out), len(out))

        return Contents(
            (len(labels), *train.shape[1:], 1), labels, 10, _test_after(len(train), len(labels)), fill, class_names
        )

    return read


def _pairs(paths: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    return zip(paths[::2], paths[1::2], strict=True)


def _idx_layout(title: str, folders: tuple[str, ...], class_names: tuple[str, ...]) -> Layout:
    return Layout(
        title,
        folders,
        lambda folder: len(_idx_files(folder)) == len(_IDX_PARTS),
        _idx_files,
        _idx_reader(class_names),
        _count_idx,
        _lacking(_idx_needed),
    )


# --- CIFAR -------------------------------------------------------------------------------------------------------

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Cifar:
    """The four forms of CIFAR differ in file names and in where a record keeps its labels."""

    train: tuple[str, ...]
    test: str
    names: str  # file with the class names
    label_bytes: int  # binary: labels before the pixels, the fine one last
    keys: tuple[str, ...]  # pickle: keys of the labels, the fine one last
    name_keys: tuple[str, ...]
    classes: tuple[int, ...]


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10 = _Cifar(_BATCHES, "test_batch", "batches.meta", 1, ("labels",), ("label_names",), (10,))
_CIFAR100 = _Cifar(
    ("train",), "test", "meta", 2, ("coarse_labels", "fine_labels"),
    ("coarse_label_names", "fine_label_names"), (20, 100),
)  # fmt: skip


def _binary_files(form: _Cifar) -> Callable[[Path], list[Path]]:
    def files(folder: Path) -> list[Path]:
        return [folder / f"{name}.bin" for name in (*form.train, form.test)]

    return files


def _count_binary(form: _Cifar) -> Callable[[Path], int]:
    record = form.label_bytes + _PIXELS
    return lambda folder: sum(path.stat().st_size // record for path in _binary_files(form)(folder))


def _pickle_files(form: _Cifar) -> Callable[[Path], list[Path]]:
    def files(folder: Path) -> list[Path]:
        return [folder / name for name in (*form.train, form.test)]

    return files


def _with_names(files: Callable[[Path], list[Path]], *names: str) -> Callable[[Path], list[Path]]:
    """The same files and, where they are there, those with the class names."""
    return lambda folder: [*files(folder), *(folder / name for name in names if (folder / name).is_file())]


def _all_there(files: Callable[[Path], list[Path]]) -> Callable[[Path], bool]:
    return lambda folder: all(path.is_file() for path in files(folder))


def _read_binary(path: Path, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    record = label_bytes + _PIXELS
    size = path.stat().st_size
    if size == 0 or size % record:
        raise DataDamaged(
            f"{path} must hold whole records of {record:,} bytes, but its {size:,} bytes are {size / record:.2f} "
            "records; fetch it again"
        )
    records = np.memmap(path, np.uint8, mode="r").reshape(-1, record)
    return records[:, label_bytes:], np.asarray(records[:, :label_bytes])


def _read_pickle(path: Path, keys: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    content = unpickle(path.read_bytes(), path)
    if not isinstance(content, dict) or not {"data", *keys} <= content.keys():
        raise DataDamaged(f"{path} must hold a dict with data and {' and '.join(keys)}")
    pixels = content["data"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise DataDamaged(f"{path} must hold images of {_PIXELS:,} bytes under data, but holds {_describe(pixels)}")
    labels = [np.asarray(content[key]) for key in keys]
    for key, column in zip(keys, labels, strict=True):
        if column.shape != (len(pixels),) or column.dtype.kind not in "iu" or column.min() < 0 or column.max() > 255:
            raise DataDamaged(f"{path} must hold {len(pixels):,} class ids under {key}, but holds {_describe(column)}")
    return pixels, np.stack(labels, axis=1).astype(np.uint8)


def _describe(value: Any) -> str:
    return f"an array {value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _cifar_contents(
    parts: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]],
    form: _Cifar,
    folder: Path,
    names: Sequence[tuple[str, ...]],
) -> Contents:
    raw = np.concatenate([labels for _, labels in parts])  # (n, 1 or 2)
    columns = [_checked(raw[:, i], count, folder) for i, count in enumerate(form.classes)]
    count, train = len(raw), sum(len(pixels) for pixels, _ in parts[:-1])

    def fill(out: NDArray[np.uint8], progress: Progress) -> None:
        start = 0
        for pixels, _ in parts:
            stop = start + len(pixels)
            out[start:stop] = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            progress(stop, count)
            start = stop

    coarse = columns[0] if len(columns) == 2 else None
    return Contents(
        (count, 32, 32, 3),
        columns[-1],
        form.classes[-1],
        _test_after(train, count),
        fill,
        names[-1],
        coarse,
        names[0] if coarse is not None else (),
    )


def _binary_reader(form: _Cifar, name_files: tuple[str, ...]) -> Callable[[Path], Contents]:
    def read(folder: Path) -> Contents:
        parts = [_read_binary(path, form.label_bytes) for path in _binary_files(form)(folder)]
        names = [_name_lines(folder / name, count) for name, count in zip(name_files, form.classes, strict=True)]
        return _cifar_contents(parts, form, folder, names)

    return read


def _name_lines(path: Path, count: int) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    lines = tuple(line.strip() for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip())
    return lines if len(lines) == count else ()


def _pickle_reader(form: _Cifar) -> Callable[[Path], Contents]:
    def read(folder: Path) -> Contents:
        parts = [_read_pickle(path, form.keys) for path in _pickle_files(form)(folder)]
        names: list[tuple[str, ...]] = [() for _ in form.classes]
        if (meta := folder / form.names).is_file():
            content = unpickle(meta.read_bytes(), meta)
            if isinstance(content, dict):
                given = [content.get(key, ()) for key in form.name_keys]
                names = [tuple(str(name) for name in part) for part in given]
        return _cifar_contents(parts, form, folder, names)

    return read


# --- Image files -------------------------------------------------------------------------------------------------


def _images_in(folder: Path) -> list[Path]:
    """Image files directly in the folder, by name."""
    with os.scandir(folder) as entries:
        names = [
            entry.name for entry in entries if entry.is_file() and Path(entry.name).suffix.lower() in IMAGE_SUFFIXES
        ]
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _subfolders(folder: Path) -> list[str]:
    """Names of the folders in it; numbers in numeric order, as in Flowers-102."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]
    return sorted(names, key=(lambda name: (int(name), name)) if all(name.isdigit() for name in names) else None)


def _class_images(folder: Path) -> list[Path]:
    """The images of one class: in the folder itself or, as in Tiny-ImageNet, in its `images`."""
    return _images_in(folder) or (_images_in(folder / "images") if (folder / "images").is_dir() else [])


def _decode(path: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as image:
            small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataDamaged(f"{path} is not a whole image ({error}); fetch the data set again") from error
    return np.asarray(small)


def _image_fill(paths: Sequence[Path]) -> Callable[[NDArray[np.uint8], Progress], None]:
    """Decode and resize (bilinear with antialiasing, as torchvision's Resize) with a few threads."""

    def fill(out: NDArray[np.uint8], progress: Progress) -> None:
        def one(position: int) -> None:
            out[position] = _decode(paths[position])

        block = 256
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for start in range(0, len(paths), block):
                stop = min(start + block, len(paths))
                list(pool.map(one, range(start, stop)))
                progress(stop, len(paths))

    return fill


def _image_contents(
    rows: Sequence[tuple[Path, int, bool, int]], class_names: Sequence[str], domain_names: Sequence[str], folder: Path
) -> Contents:
    """Rows are (file, class, in the official test part, domain)."""
    if not rows:
        raise DataDamaged(f"{folder} holds class folders but no image")
    paths, labels, test, domains = zip(*rows, strict=True)
    return Contents(
        (len(rows), SIDE, SIDE, 3),
        np.array(labels, np.int64),
        len(class_names),
        np.array(test, np.bool_),
        _image_fill(paths),
        tuple(class_names),
        domains=np.array(domains, np.int64) if domain_names else None,
        domain_names=tuple(domain_names),
    )


def _folder_of_classes(parts: Iterable[tuple[Path, bool]], folder: Path) -> Contents:
    """ImageFolder: parts are (folder of class folders, is it the official test part)."""
    listed = [(part, test, _subfolders(part)) for part, test in parts]
    names = _in_order({name for _, _, inside in listed for name in inside})
    number = {name: position for position, name in enumerate(names)}
    rows = [
        (path, number[name], test, 0)
        for part, test, inside in listed
        for name in inside
        for path in _class_images(part / name)
    ]
    return _image_contents(rows, names, (), folder)


def _in_order(names: Iterable[str]) -> list[str]:
    names = list(names)
    return sorted(names, key=(lambda name: (int(name), name)) if all(name.isdigit() for name in names) else None)


def _count_images(files: Callable[[Path], list[Path]]) -> Callable[[Path], int]:
    """For layouts whose files are the images and a few lists."""
    return lambda folder: sum(path.suffix.lower() in IMAGE_SUFFIXES for path in files(folder))


# Flowers-102: torchvision's layout


def _flowers_image(folder: Path, number: int) -> Path:
    return folder / "jpg" / f"image_{number:05d}.jpg"


def _flowers_files(folder: Path) -> list[Path]:
    return [folder / "imagelabels.mat", folder / "setid.mat", *_images_in(folder / "jpg")]


def _flowers_match(folder: Path) -> bool:
    return (folder / "jpg").is_dir() and all((folder / name).is_file() for name in ("imagelabels.mat", "setid.mat"))


def _read_flowers(folder: Path) -> Contents:
    labels = _matlab(folder / "imagelabels.mat", "labels")
    parts = {key: _matlab(folder / "setid.mat", key) for key in ("trnid", "valid", "tstid")}
    numbers = np.sort(np.concatenate(list(parts.values())))
    if len(np.unique(numbers)) != len(numbers) or numbers[0] < 1 or numbers[-1] > len(labels):
        raise DataDamaged(f"{folder / 'setid.mat'} must name every image of 1..{len(labels):,} at most once")
    if labels.min() < 1 or labels.max() > 102:
        raise DataDamaged(
            f"{folder / 'imagelabels.mat'} must hold classes 1..102, but holds {labels.min()}..{labels.max()}"
        )
    test = set(parts["tstid"].tolist())
    rows = [(_flowers_image(folder, n), int(labels[n - 1]) - 1, n in test, 0) for n in numbers.tolist()]
    there = {path.name for path in _images_in(folder / "jpg")}
    missing = [path.name for path, *_ in rows if path.name not in there]
    if missing:
        raise DataDamaged(f"{folder / 'jpg'} lacks {len(missing):,} of {len(rows):,} images, first {missing[0]}")
    return _image_contents(rows, [str(number) for number in range(1, 103)], (), folder)


def _matlab(path: Path, key: str) -> NDArray[np.int64]:
    from scipy.io import loadmat  # imported here: slow and rarely needed

    try:
        values = loadmat(path, variable_names=[key])[key]
        return np.asarray(values).reshape(-1).astype(np.int64)
    except Exception as error:  # scipy raises many kinds on a damaged file
        raise DataDamaged(f"{path} is not a MATLAB file with {key} ({type(error).__name__}: {error})") from error


# Flowers-102 and Tiny-ImageNet: class folders

_VALIDATION = ("val", "valid", "validation")


def _split_parts(folder: Path) -> list[tuple[Path, bool]]:
    parts = [(folder / name, name == "test") for name in ("train", *_VALIDATION, "test") if (folder / name).is_dir()]
    return parts if parts and parts[0][0].name == "train" else [(folder, False)]


def _split_files(folder: Path) -> list[Path]:
    return [
        path for part, _ in _split_parts(folder) for name in _subfolders(part) for path in _class_images(part / name)
    ]


def _has_class_images(folder: Path) -> bool:
    return any(_class_images(folder / name) for name in _subfolders(folder)[:3])


def _tiny_files(folder: Path) -> list[Path]:
    words = [folder / "words.txt"] if (folder / "words.txt").is_file() else []
    train = folder / "train"
    return [*words, *(path for name in _subfolders(train) for path in _class_images(train / name))]


def _read_tiny(folder: Path) -> Contents:
    contents = _folder_of_classes([(folder / "train", False)], folder)
    if not (folder / "words.txt").is_file():
        return contents
    lines = (line.partition("\t") for line in (folder / "words.txt").read_text("utf-8", errors="replace").splitlines())
    words = {wnid: text.split(",")[0].strip() for wnid, _, text in lines if text}
    fields = {name: getattr(contents, name) for name in contents.__dataclass_fields__}
    return Contents(**{**fields, "class_names": tuple(words.get(name, name) for name in contents.class_names)})


# PACS and DomainNet: a folder per domain, in it one per class

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
DOMAINNET_DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def _domain_layout(title: str, folders: tuple[str, ...], domains: tuple[str, ...]) -> Layout:
    def match(folder: Path) -> bool:
        return any(_has_class_images(folder / domain) for domain in domains)

    def present(folder: Path) -> list[str]:
        return [domain for domain in domains if (folder / domain).is_dir()]

    def lists(folder: Path) -> list[Path]:
        """The publisher's lists of test images, where they lie beside the images."""
        places = [base / f"{d}_test.txt" for d in present(folder) for base in (folder, folder / "splits")]
        return [path for path in places if path.is_file()]

    def files(folder: Path) -> list[Path]:
        images = [
            path
            for domain in present(folder)
            for name in _subfolders(folder / domain)
            for path in _images_in(folder / domain / name)
        ]
        return [*lists(folder), *images]

    def read(folder: Path) -> Contents:
        found = present(folder)
        names = _in_order({name for domain in found for name in _subfolders(folder / domain)})
        number = {name: position for position, name in enumerate(names)}
        test = {
            line.rpartition(" ")[0].strip()
            for path in lists(folder)
            for line in path.read_text("utf-8", errors="replace").splitlines()
        }
        rows = [
            (path, number[name], f"{domain}/{name}/{path.name}" in test, position)
            for position, domain in enumerate(found)
            for name in _subfolders(folder / domain)
            for path in _images_in(folder / domain / name)
        ]
        return _image_contents(rows, names, found, folder)

    return Layout(title, folders, match, files, read, _count_images(files))


# --- shared ------------------------------------------------------------------------------------------------------


def _checked(labels: NDArray[np.uint8], classes: int, folder: Path) -> NDArray[np.int64]:
    if len(labels) == 0 or labels.max() >= classes:
        largest = int(labels.max()) if len(labels) else "none"
        raise DataDamaged(f"{folder} must hold classes 0..{classes - 1}, but the largest is {largest}; fetch it again")
    return labels.astype(np.int64)


def _test_after(train: int, count: int) -> NDArray[np.bool_]:
    return np.arange(count) >= train


def _cifar_layouts(form: _Cifar, binary: str, pickled: str, name_files: tuple[str, ...]) -> tuple[Layout, Layout]:
    binaries, pickles = _binary_files(form), _pickle_files(form)
    return (
        Layout(
            binary,
            (binary,),
            _all_there(binaries),
            _with_names(binaries, *name_files),
            _binary_reader(form, name_files),
            _count_binary(form),
            _lacking(binaries),
        ),
        Layout(
            pickled,
            (pickled,),
            _all_there(pickles),
            _with_names(pickles, form.names),
            _pickle_reader(form),
            lacks=_lacking(pickles),
        ),
    )


LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "mnist": (_idx_layout("IDX files", ("MNIST/raw", "mnist/raw", "MNIST"), tuple("0123456789")),),
    "fmnist": (
        _idx_layout(
            "IDX files",
            ("FashionMNIST/raw", "fashion-mnist", "FashionMNIST", "fashion_mnist", "dataset-fashion-mnist"),
            FASHION_CLASSES,
        ),
    ),
    "cifar10": _cifar_layouts(_CIFAR10, "cifar-10-batches-bin", "cifar-10-batches-py", ("batches.meta.txt",)),
    "cifar100": _cifar_layouts(
        _CIFAR100, "cifar-100-binary", "cifar-100-python", ("coarse_label_names.txt", "fine_label_names.txt")
    ),
    "flowers102": (
        Layout(
            "flowers-102",
            ("flowers-102",),
            _flowers_match,
            _flowers_files,
            _read_flowers,
            _count_images(_flowers_files),
            _lacking(lambda folder: [folder / name for name in ("jpg", "imagelabels.mat", "setid.mat")]),
        ),
        Layout(
            "class folders",
            ("flowers-102", "Flowers102", "flower_data", "oxford-102-flowers"),
            # one class alone is a folder of images without their labels, such as jpg/
            lambda folder: any(
                len(_subfolders(part)) > 1 and _has_class_images(part) for part, _ in _split_parts(folder)
            ),
            _split_files,
            lambda folder: _folder_of_classes(_split_parts(folder), folder),
            _count_images(_split_files),
        ),
    ),
    "tiny-imagenet": (
        Layout(
            "tiny-imagenet-200",
            ("tiny-imagenet-200",),
            lambda folder: _has_class_images(folder / "train"),
            _tiny_files,
            _read_tiny,
            _count_images(_tiny_files),
        ),
    ),
    "pacs": (_domain_layout("domain and class folders", ("PACS", "PACS/kfold", "pacs/kfold"), PACS_DOMAINS),),
    "domainnet": (
        _domain_layout("domain and class folders", ("DomainNet", "domain_net", "DomainNet/rawdata"), DOMAINNET_DOMAINS),
    ),
}

SYSTEM_FOLDERS: dict[str, tuple[Path, ...]] = {
    # the Debian package dataset-fashion-mnist
    "fmnist": (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist")),
}


def folders_to_search(name: str, layout: Layout, root: Path | None) -> list[Path]:
    """Where a data set may lie: root/<name>, root/<layout's folder>, root itself if it is that folder, the system's."""
    places: list[Path] = []
    if root is not None:
        places.append(root / name)
        for folder in layout.folders:
            parts = Path(folder).parts
            places += [root / name / folder, root / folder]
            for length in range(len(parts), 0, -1):
                if root.parts[-length:] == parts[:length]:
                    places.append(root.joinpath(*parts[length:]))
        if root.name == name:
            places.append(root)
    return list(dict.fromkeys([*places, *SYSTEM_FOLDERS.get(name, ())]))


def find(name: str, root: Path | None) -> tuple[Layout, Path] | None:
    """The first folder that holds the data set in a known layout; nothing is decoded."""
    for layout in LAYOUTS[name]:
        for folder in folders_to_search(name, layout, root):
            if folder.is_dir() and layout.match(folder):
                return layout, folder
    return None


def find_part(name: str, root: Path | None) -> tuple[Path, tuple[str, ...]] | None:
    """A folder that holds some files of a layout, and those that it lacks; asked when `find` has found nothing."""
    for layout in LAYOUTS[name]:
        for folder in folders_to_search(name, layout, root):
            if folder.is_dir() and (missing := layout.lacks(folder)):
                return folder, missing
    return None


def find_below(name: str, folder: Path) -> tuple[Layout, Path] | None:
    """The same in a folder that somebody says holds this data set, whatever the folder is called."""
    for layout in LAYOUTS[name]:
        for place in (folder, *(folder / inner for inner in layout.folders)):
            if place.is_dir() and layout.match(place):
                return layout, place
    return None


# --- a folder of PFLlib or HtFLlib --------------------------------------------------------------------------------


MOST_CLASSES = 100_000


@dataclass(frozen=True, eq=False)
class ClientFolder:
    """What `config.json`, `train/<k>.npz` and `test/<k>.npz` hold, client after client."""

    parts: tuple[NDArray[Any], ...]  # (n, H, W, C) each: training, then test images of client 0, of client 1 …
    kind: type[np.uint8] | type[np.float32]
    labels: NDArray[np.int64]  # of all parts, in their order
    classes: int
    ranges: tuple[tuple[int, int, int], ...]  # per client: first training sample, first test sample, end


def is_client_folder(folder: Path) -> bool:
    return all((folder / part).exists() for part in ("config.json", "train/0.npz", "test/0.npz"))


def read_client_folder(folder: Path, progress: Progress = quiet) -> ClientFolder:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataDamaged(f"{folder / 'config.json'} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise DataDamaged(f"{folder / 'config.json'} must hold an object, but holds {type(config).__name__}")
    clients = _consecutive(folder / "train")
    if (said := config.get("num_clients", clients)) != clients:
        raise DataDamaged(
            f"{folder / 'config.json'}: num_clients must be the number of files train/<k>.npz, {clients}, "
            f"but got {said!r}"
        )
    if _consecutive(folder / "test") != clients:
        raise DataDamaged(f"{folder} must hold test/<k>.npz for the same clients 0..{clients - 1} as train/<k>.npz")
    images: list[NDArray[Any]] = []
    labels: list[NDArray[np.int64]] = []
    ranges: list[tuple[int, int, int]] = []
    end = 0
    for client in range(clients):
        bounds = [end]
        for part in ("train", "test"):
            x, y = _read_client_file(folder / part / f"{client}.npz")
            if images and x.shape[1:] != images[0].shape[1:]:
                raise DataDamaged(
                    f"{folder / part / f'{client}.npz'} holds images of {x.shape[1:]}, the first file of "
                    f"{images[0].shape[1:]} (height, width, channels)"
                )
            images.append(x)
            labels.append(y)
            end += len(y)
            bounds.append(end)
        ranges.append((bounds[0], bounds[1], bounds[2]))
        progress(client + 1, clients)
    every = np.concatenate(labels)
    if len(every) == 0:
        raise DataDamaged(f"{folder} holds no sample")
    classes = config.get("num_classes", int(every.max()) + 1)
    if not isinstance(classes, int) or isinstance(classes, bool) or not 1 <= classes <= MOST_CLASSES:
        raise DataDamaged(
            f"{folder / 'config.json'}: num_classes must be a whole number from 1 to {MOST_CLASSES}, "
            f"but got {classes!r}"
        )
    if every.min() < 0 or every.max() >= classes:
        raise DataDamaged(
            f"{folder / 'config.json'} says num_classes {classes}, but the labels are {every.min()}..{every.max()}"
        )
    whole = all(x.dtype == np.uint8 for x in images)
    return ClientFolder(tuple(images), np.uint8 if whole else np.float32, every, classes, tuple(ranges))


def _consecutive(folder: Path) -> int:
    numbers = sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())
    if numbers != list(range(len(numbers))):
        raise DataDamaged(
            f"{folder} must hold 0.npz, 1.npz … without a gap, but {len(numbers)} files end at {numbers[-1]}"
        )
    return len(numbers)


def _read_client_file(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    content = _npz_object(path, "data")
    if not isinstance(content, dict) or not {"x", "y"} <= content.keys():
        raise DataDamaged(f"{path} must hold a dict with x and y under data")
    x, y = np.asarray(content["x"]), np.asarray(content["y"]).reshape(-1)
    if x.ndim == 3:  # grey images without a channel
        x = x[:, None]
    if x.ndim != 4 or x.dtype.kind not in "fiu" or len(x) != len(y):
        raise DataDamaged(
            f"{path} must hold images x (n, channels, height, width) and n labels y, "
            f"but holds {_describe(x)} and {_describe(y)}"
        )
    if y.dtype.kind not in "iu" and not (y.dtype.kind == "f" and np.array_equal(y, np.floor(y))):
        raise DataDamaged(f"{path} must hold class ids under y, but holds {_describe(y)}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataDamaged(f"{path} holds pixels that are not numbers")
    return x.transpose(0, 2, 3, 1), y.astype(np.int64)


_MOST_BYTES_OF_CLIENT = 8 << 30


def _npz_object(path: Path, key: str) -> Any:
    """The pickled object in an npz file. numpy would unpickle anything, so only its header reader is used."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{key}.npy")
            if member.file_size > _MOST_BYTES_OF_CLIENT:
                raise DataDamaged(
                    f"{path} announces {member.file_size:,} bytes, more than the {_MOST_BYTES_OF_CLIENT:,} allowed"
                )
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, kind = header(file)
                if not kind.hasobject or shape != ():
                    raise DataDamaged(f"{path} must hold one object under {key}, but holds {kind}{list(shape)}")
                return unpickle(file.read(), path)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error) as error:
        raise DataDamaged(f"{path} is not a whole npz file with an array {key} ({error})") from error
