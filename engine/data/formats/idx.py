"""IDX files, the format of MNIST: a header of lengths, then bytes."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.data.download import Remote
from engine.data.errors import DataDamaged
from engine.data.formats.layout import Contents, Layout, Progress, behind_training, checked_labels, lacking

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
        labels = checked_labels(np.concatenate([train_labels, test_labels]), 10, folder)

        def fill(out: NDArray[np.uint8], progress: Progress) -> None:
            out[: len(train), :, :, 0] = train
            out[len(train) :, :, :, 0] = test
            progress(len(out), len(out))

        return Contents(
            (len(labels), *train.shape[1:], 1), labels, 10, behind_training(len(train), len(labels)), fill, class_names
        )

    return read


def _pairs(paths: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    return zip(paths[::2], paths[1::2], strict=True)


def idx_layout(title: str, folders: tuple[str, ...], class_names: tuple[str, ...]) -> Layout:
    return Layout(
        title,
        folders,
        lambda folder: len(_idx_files(folder)) == len(_IDX_PARTS),
        _idx_files,
        _idx_reader(class_names),
        _count_idx,
        lacking(_idx_needed),
    )


def idx_remotes(mirrors: Sequence[str], *sums: str) -> tuple[Remote, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        Remote(f"{name}-ubyte.gz", tuple(f"{mirror}/{name}-ubyte.gz" for mirror in mirrors), f"md5:{digest}")
        for name, digest in zip(names, sums, strict=True)
    )
