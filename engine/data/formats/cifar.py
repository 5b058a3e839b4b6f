"""The batches of CIFAR, as binary records and as pickles of Python 2."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import DataDamaged
from engine.data.formats.layout import (
    Contents,
    Layout,
    Progress,
    all_there,
    behind_training,
    checked_labels,
    describe,
    lacking,
    with_names,
)
from engine.data.unpickle import unpickle

PUBLISHER = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarForm:
    """The four forms of CIFAR differ in file names and in where a record keeps its labels."""

    train: tuple[str, ...]
    test: str
    names: str  # file with the class names
    label_bytes: int  # binary: labels before the pixels, the fine one last
    keys: tuple[str, ...]  # pickle: keys of the labels, the fine one last
    name_keys: tuple[str, ...]
    classes: tuple[int, ...]


def _binary_files(form: CifarForm) -> Callable[[Path], list[Path]]:
    def files(folder: Path) -> list[Path]:
        return [folder / f"{name}.bin" for name in (*form.train, form.test)]

    return files


def _count_binary(form: CifarForm) -> Callable[[Path], int]:
    record = form.label_bytes + _PIXELS
    return lambda folder: sum(path.stat().st_size // record for path in _binary_files(form)(folder))


def _pickle_files(form: CifarForm) -> Callable[[Path], list[Path]]:
    def files(folder: Path) -> list[Path]:
        return [folder / name for name in (*form.train, form.test)]

    return files


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
        raise DataDamaged(f"{path} must hold images of {_PIXELS:,} bytes under data, but holds {describe(pixels)}")
    labels = [np.asarray(content[key]) for key in keys]
    for key, column in zip(keys, labels, strict=True):
        if column.shape != (len(pixels),) or column.dtype.kind not in "iu" or column.min() < 0 or column.max() > 255:
            raise DataDamaged(f"{path} must hold {len(pixels):,} class ids under {key}, but holds {describe(column)}")
    return pixels, np.stack(labels, axis=1).astype(np.uint8)


def _cifar_contents(
    parts: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]],
    form: CifarForm,
    folder: Path,
    names: Sequence[tuple[str, ...]],
) -> Contents:
    raw = np.concatenate([labels for _, labels in parts])  # (n, 1 or 2)
    columns = [checked_labels(raw[:, i], count, folder) for i, count in enumerate(form.classes)]
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
        behind_training(train, count),
        fill,
        names[-1],
        coarse,
        names[0] if coarse is not None else (),
    )


def _binary_reader(form: CifarForm, name_files: tuple[str, ...]) -> Callable[[Path], Contents]:
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


def _pickle_reader(form: CifarForm) -> Callable[[Path], Contents]:
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


def cifar_layouts(form: CifarForm, binary: str, pickled: str, name_files: tuple[str, ...]) -> tuple[Layout, Layout]:
    binaries, pickles = _binary_files(form), _pickle_files(form)
    return (
        Layout(
            binary,
            (binary,),
            all_there(binaries),
            with_names(binaries, *name_files),
            _binary_reader(form, name_files),
            _count_binary(form),
            lacking(binaries),
        ),
        Layout(
            pickled,
            (pickled,),
            all_there(pickles),
            with_names(pickles, form.names),
            _pickle_reader(form),
            lacks=lacking(pickles),
        ),
    )
