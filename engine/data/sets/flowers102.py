"""Flowers-102: 8,189 photographs of flowers, as published or as class folders (Nilsback and Zisserman)."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.data.card import DataCard
from engine.data.download import Remote
from engine.data.errors import DataDamaged
from engine.data.formats.image_folders import (
    count_images,
    folder_of_classes,
    has_class_images,
    image_contents,
    images_in,
    split_files,
    split_parts,
    subfolders,
)
from engine.data.formats.layout import Contents, Layout, lacking
from engine.data.normalisation import IMAGENET

PUBLISHER = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
LABELS_SUM = "md5:e0620be6f572b9609742df49c70aed4d"
PARTS_SUM = "md5:a5357ecc9cb78c4bef273ce3793fc85c"


def _image(folder: Path, number: int) -> Path:
    return folder / "jpg" / f"image_{number:05d}.jpg"


def _files(folder: Path) -> list[Path]:
    return [folder / "imagelabels.mat", folder / "setid.mat", *images_in(folder / "jpg")]


def _match(folder: Path) -> bool:
    return (folder / "jpg").is_dir() and all((folder / name).is_file() for name in ("imagelabels.mat", "setid.mat"))


def _read(folder: Path) -> Contents:
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
    rows = [(_image(folder, n), int(labels[n - 1]) - 1, n in test, 0) for n in numbers.tolist()]
    there = {path.name for path in images_in(folder / "jpg")}
    missing = [path.name for path, *_ in rows if path.name not in there]
    if missing:
        raise DataDamaged(f"{folder / 'jpg'} lacks {len(missing):,} of {len(rows):,} images, first {missing[0]}")
    return image_contents(rows, [str(number) for number in range(1, 103)], (), folder)


def _matlab(path: Path, key: str) -> NDArray[np.int64]:
    from scipy.io import loadmat  # imported here: slow and rarely needed

    try:
        values = loadmat(path, variable_names=[key])[key]
        return np.asarray(values).reshape(-1).astype(np.int64)
    except Exception as error:  # scipy raises many kinds on a damaged file
        raise DataDamaged(f"{path} is not a MATLAB file with {key} ({type(error).__name__}: {error})") from error


def _has_classes(folder: Path) -> bool:
    """One class alone is a folder of images without their labels, such as jpg/."""
    return any(len(subfolders(part)) > 1 and has_class_images(part) for part, _ in split_parts(folder))


CARD = DataCard(
    name="flowers102",
    title="Flowers-102",
    shape=(3, 64, 64),
    classes=102,
    images=8_189,
    normalisation=IMAGENET,
    layouts=(
        Layout(
            "flowers-102",
            ("flowers-102",),
            _match,
            _files,
            _read,
            count_images(_files),
            lacking(lambda folder: [folder / name for name in ("jpg", "imagelabels.mat", "setid.mat")]),
        ),
        Layout(
            "class folders",
            ("flowers-102", "Flowers102", "flower_data", "oxford-102-flowers"),
            _has_classes,
            split_files,
            lambda folder: folder_of_classes(split_parts(folder), folder),
            count_images(split_files),
        ),
    ),
    remotes=(
        Remote("102flowers.tgz", (f"{PUBLISHER}/102flowers.tgz",), "md5:52808999861908f626f3c1f4e79d11fa", packed=True),
        Remote("imagelabels.mat", (f"{PUBLISHER}/imagelabels.mat",), LABELS_SUM),
        Remote("setid.mat", (f"{PUBLISHER}/setid.mat",), PARTS_SUM),
    ),
    file_sums={"imagelabels.mat": LABELS_SUM, "setid.mat": PARTS_SUM},
)
