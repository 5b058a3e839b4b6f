"""What every format answers with, and one way in which a data set lies on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import DataDamaged

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


def quiet(done: int, total: int) -> None:
    """Progress that nobody watches."""


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


def lacking(needed: Callable[[Path], Sequence[Path]]) -> Callable[[Path], tuple[str, ...]]:
    """The names of the needed files that are missing; none where the folder has none of them."""

    def lacks(folder: Path) -> tuple[str, ...]:
        paths = needed(folder)
        missing = tuple(path.name for path in paths if not path.exists())
        return missing if len(missing) < len(paths) else ()

    return lacks


def with_names(files: Callable[[Path], list[Path]], *names: str) -> Callable[[Path], list[Path]]:
    """The same files and, where they are there, those with the class names."""
    return lambda folder: [*files(folder), *(folder / name for name in names if (folder / name).is_file())]


def all_there(files: Callable[[Path], list[Path]]) -> Callable[[Path], bool]:
    return lambda folder: all(path.is_file() for path in files(folder))


def checked_labels(labels: NDArray[np.uint8], classes: int, folder: Path) -> NDArray[np.int64]:
    if len(labels) == 0 or labels.max() >= classes:
        largest = int(labels.max()) if len(labels) else "none"
        raise DataDamaged(f"{folder} must hold classes 0..{classes - 1}, but the largest is {largest}; fetch it again")
    return labels.astype(np.int64)


def behind_training(train: int, count: int) -> NDArray[np.bool_]:
    """The marks of an official test part that follows the training part."""
    return np.arange(count) >= train


def describe(value: Any) -> str:
    return f"an array {value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
