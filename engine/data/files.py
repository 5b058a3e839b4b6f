"""Decoded data sets as safetensors files: written whole or not at all, read through a memory map, checked."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import DataDamaged

_TYPES: dict[str, str] = {"U8": "u1", "I64": "<i8", "F32": "<f4", "BOOL": "?"}
_ALIGN = 64
_NO_DIGEST = "0" * 64
_BLOCK = 1 << 22
_LARGEST_HEADER = 16 << 20
FULL_CHECK = 1 << 30
"""A file up to this size is checked byte by byte when it is opened, a larger one when it is verified."""


def write_tensors(
    path: Path,
    tensors: Mapping[str, NDArray[Any]],
    notes: Mapping[str, str],
    *,
    large: tuple[str, tuple[int, ...], Any, Callable[[NDArray[Any]], None]] | None = None,
) -> None:
    """Write to a temporary name, sync, rename, sync the folder.

    `large` is one more tensor (name, shape, dtype, fill): it is filled in the mapped file and never held in memory.
    """
    shapes = {name: (tuple(array.shape), array.dtype) for name, array in tensors.items()}
    if large is not None:
        shapes[large[0]] = (large[1], np.dtype(large[2]))
    # items of 8 bytes first, so that every tensor lies at a multiple of its item's size and no gap is needed
    order = sorted(shapes, key=lambda name: (-shapes[name][1].itemsize, name))
    header, start = _header(order, shapes, notes, _NO_DIGEST)
    size = start + sum(_length(*shapes[name]) for name in order)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w+b") as file:
            file.write(header)
            file.flush()
            # reserved, not left as a hole: a full disk is then an error here instead of a crash in the mapped file
            _reserve(file.fileno(), size)
            offset = start
            for name in order:
                shape, kind = shapes[name]
                if _length(shape, kind):
                    room = np.memmap(file, kind, mode="r+", offset=offset, shape=shape)
                    if large is not None and name == large[0]:
                        large[3](room)
                    else:
                        room[...] = tensors[name]
                    room.flush()
                    del room
                offset += _length(shape, kind)
            header, _ = _header(order, shapes, notes, _digest(header, file))
            file.seek(0)
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        if temporary.stat().st_size != size:
            raise OSError(f"{temporary} has {temporary.stat().st_size:,} bytes instead of {size:,}")
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path, *, full_check: bool | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Map the file; DataDamaged when its length, header or content is not what was written."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size, _LARGEST_HEADER):
                raise ValueError("its header has no sensible length")
            start = 8 + length
            text = file.read(length)
            header = json.loads(text)
            notes = header.pop("__metadata__")
            blank = length.to_bytes(8, "little") + text.replace(notes["sha256"].encode(), _NO_DIGEST.encode())
            kinds = {name: np.dtype(_TYPES[entry["dtype"]]) for name, entry in header.items()}
            for name, entry in header.items():
                if entry["data_offsets"][1] - entry["data_offsets"][0] != _length(entry["shape"], kinds[name]):
                    raise ValueError(f"the length of {name} does not fit its shape")
            if size != start + max((entry["data_offsets"][1] for entry in header.values()), default=0):
                raise ValueError(f"it has {size:,} bytes, other than its header says")
            checked = size <= FULL_CHECK if full_check is None else full_check
            if checked and _digest(blank, file) != notes["sha256"]:
                raise ValueError("its content does not have the checksum it was written with")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataDamaged(f"{path} is damaged: {error}") from error
    tensors: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        shape, kind = tuple(entry["shape"]), kinds[name]
        # a private mapping: the pages are shared by all processes, and nobody can write into the file
        tensors[name] = (
            np.memmap(path, kind, mode="c", offset=start + entry["data_offsets"][0], shape=shape)
            if _length(shape, kind)
            else np.empty(shape, kind)
        )
    return tensors, notes


def _header(order: list[str], shapes: Mapping[str, Any], notes: Mapping[str, str], digest: str) -> tuple[bytes, int]:
    entries: dict[str, Any] = {"__metadata__": {**notes, "sha256": digest}}
    offset = 0
    for name in order:
        shape, kind = shapes[name]
        end = offset + _length(shape, kind)
        code = next(code for code, known in _TYPES.items() if np.dtype(known) == kind)
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGN)
    return len(text).to_bytes(8, "little") + text, len(text) + 8


def _length(shape: Any, kind: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=object)) * kind.itemsize


def _reserve(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (AttributeError, OSError) as error:
        # neither every system nor every file system knows how to reserve
        if isinstance(error, OSError) and error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        os.ftruncate(descriptor, size)


def _digest(header: bytes, file: Any) -> str:
    """Of the header, as it is before it holds this digest, and of all that follows it."""
    digest = hashlib.sha256(header)
    file.seek(len(header))
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_others(folder: Path, prefix: str, keep: Path) -> None:
    """Remove what other versions of this file, and writers that died more than an hour ago, left behind."""
    for path in folder.glob(f"{prefix}-*"):
        stale = not path.name.endswith(".tmp") or path.stat().st_mtime < time.time() - 3600
        if path != keep and stale:
            with contextlib.suppress(FileNotFoundError):  # somebody else deleted it
                path.unlink()


@contextmanager
def staging(root: Path, name: str) -> Iterator[Path]:
    """A folder inside the data folder in which something is made ready; gone afterwards unless it was renamed."""
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
