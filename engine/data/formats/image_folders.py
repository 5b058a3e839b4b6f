"""Image files in a folder for each class."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.data.errors import DataDamaged
from engine.data.formats.layout import Contents, Progress

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"})
SIDE = 64  # height and width of every set that is published as image files


def images_in(folder: Path) -> list[Path]:
    """Image files directly in the folder, by name."""
    with os.scandir(folder) as entries:
        names = [
            entry.name for entry in entries if entry.is_file() and Path(entry.name).suffix.lower() in IMAGE_SUFFIXES
        ]
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in it; numbers in numeric order, as in Flowers-102."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]
    return in_order(names)


def class_images(folder: Path) -> list[Path]:
    """The images of one class: in the folder itself or, as in Tiny-ImageNet, in its `images`."""
    return images_in(folder) or (images_in(folder / "images") if (folder / "images").is_dir() else [])


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


def image_contents(
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


def folder_of_classes(parts: Iterable[tuple[Path, bool]], folder: Path) -> Contents:
    """ImageFolder: parts are (folder of class folders, is it the official test part)."""
    listed = [(part, test, subfolders(part)) for part, test in parts]
    names = in_order({name for _, _, inside in listed for name in inside})
    number = {name: position for position, name in enumerate(names)}
    rows = [
        (path, number[name], test, 0)
        for part, test, inside in listed
        for name in inside
        for path in class_images(part / name)
    ]
    return image_contents(rows, names, (), folder)


def in_order(names: Iterable[str]) -> list[str]:
    names = list(names)
    return sorted(names, key=(lambda name: (int(name), name)) if all(name.isdigit() for name in names) else None)


def count_images(files: Callable[[Path], list[Path]]) -> Callable[[Path], int]:
    """For layouts whose files are the images and a few lists."""
    return lambda folder: sum(path.suffix.lower() in IMAGE_SUFFIXES for path in files(folder))


_VALIDATION = ("val", "valid", "validation")


def split_parts(folder: Path) -> list[tuple[Path, bool]]:
    parts = [(folder / name, name == "test") for name in ("train", *_VALIDATION, "test") if (folder / name).is_dir()]
    return parts if parts and parts[0][0].name == "train" else [(folder, False)]


def split_files(folder: Path) -> list[Path]:
    return [path for part, _ in split_parts(folder) for name in subfolders(part) for path in class_images(part / name)]


def has_class_images(folder: Path) -> bool:
    return any(class_images(folder / name) for name in subfolders(folder)[:3])
