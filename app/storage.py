"""The storage: files that workers on several hosts share, in a folder or in an object store."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

CHECKPOINTS = "checkpoints"
"""The folder with one folder for each experiment that was ever checkpointed."""
BLOCK_BYTES = 1 << 20
_MANIFEST = re.compile(r"/manifest-round-(\d+)-")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Storage:
    """Whole files under names like `artifacts/ID/features.json`; a file is there completely or not at all.

    A storage that is out of reach raises OSError, whatever its library calls it.
    """

    def __init__(self, url: str) -> None:
        """A path, or a URL that fsspec knows: `s3://bucket/folder` with s3fs installed."""
        self._files, self._root = url_to_fs(url)
        self._is_local = isinstance(self._files, LocalFileSystem)

    def write(self, name: str, content: bytes) -> str:
        """Returns the content's sha256."""
        path = self._path(name)
        if self._is_local:
            _write_synced(Path(path), content)
        else:
            with _errors_of_the_system():
                self._files.pipe_file(path, content)  # one put: an object store shows it whole or not at all
        return hashlib.sha256(content).hexdigest()

    def read(self, name: str) -> bytes:
        """FileNotFoundError: there is no such file."""
        path = self._path(name)
        with _errors_of_the_system():
            content: bytes = self._files.cat_file(path)
        return content

    def blocks(self, name: str) -> Iterator[bytes]:
        """The file piece by piece; FileNotFoundError comes at once."""
        path = self._path(name)
        with _errors_of_the_system():
            file = self._files.open(path, "rb")
        return _blocks(file)

    def exists(self, name: str) -> bool:
        return bool(self._files.isfile(self._path(name)))

    def remove(self, name: str) -> None:
        """Nothing happens where there is no such file."""
        if self.exists(name):
            with _errors_of_the_system():
                self._files.rm_file(self._path(name))

    def names(self, folder: str) -> list[str]:
        """The files directly inside a folder, in order; empty where there is no such folder."""
        path = self._path(folder)
        with _errors_of_the_system():
            if not self._files.isdir(path):
                return []
            self._files.invalidate_cache(path)
            found = self._files.ls(path, detail=True)
        files = [Path(entry["name"]).name for entry in found if entry["type"] == "file"]
        return sorted(f"{folder}/{name}" for name in files if not name.endswith(".tmp"))

    def folders(self, folder: str) -> list[str]:
        """The folders directly inside a folder, in order."""
        path = self._path(folder)
        if not self._files.isdir(path):
            return []
        self._files.invalidate_cache(path)
        found = self._files.ls(path, detail=True)
        return sorted(f"{folder}/{Path(entry['name']).name}" for entry in found if entry["type"] == "directory")

    def remove_folder(self, folder: str) -> None:
        """With everything in it; nothing happens where there is no such folder."""
        path = self._path(folder)
        if self._files.isdir(path):
            self._files.rm(path, recursive=True)

    def modified(self, name: str) -> float:
        """When a file, or one directly inside a folder, was last written; now where that is not known."""
        path = self._path(name)
        if self._files.isfile(path):
            return Path(path).stat().st_mtime if self._is_local else float(self._files.modified(path).timestamp())
        if self._is_local:
            paths = [Path(path), *Path(path).iterdir()]
            return max(found.stat().st_mtime for found in paths if found.exists())
        moments = [self._files.modified(self._path(inside)).timestamp() for inside in self.names(name)]
        return max(moments, default=time.time())

    def local(self, name: str) -> Path | None:
        """Where a file or folder lies on this machine; None: it is somewhere else."""
        return Path(self._path(name)) if self._is_local else None

    def remove_remnants(self, older_than: float) -> int:
        """Temporary files that a killed writer left before this moment; an object store has none."""
        if not self._is_local:
            return 0
        old = [path for path in Path(self._root).rglob("*.tmp") if _is_older(path, older_than)]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def _path(self, name: str) -> str:
        """No name leads out of the storage: parts are plain words."""
        for part in name.split("/"):
            if not _PART.fullmatch(part):
                raise ValueError(
                    f"a name in the storage is made of letters, digits, '.', '_' and '-', but got {name!r}"
                )
        return f"{self._root}/{name}"


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file, _errors_of_the_system():
        while block := file.read(BLOCK_BYTES):
            yield block


@contextmanager
def _errors_of_the_system() -> Iterator[None]:
    """Every library for object stores has names of its own for a lost connection or a refused key."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def files_of_checkpoint(manifest: bytes) -> list[dict[str, Any]]:
    """What a checkpoint's manifest names: file, sha256 and bytes of each. ValueError: it is no manifest."""
    try:
        data = json.loads(manifest)
        return [data["server"], *data["clients"].values()]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the manifest of a checkpoint: {error!r}") from None


def checkpoints_after(storage: Storage, experiment: str) -> list[int]:
    """After which rounds there are checkpoints of an experiment, as their names tell."""
    found = (_MANIFEST.search(name) for name in storage.names(f"{CHECKPOINTS}/{experiment}"))
    return sorted({int(match[1]) for match in found if match})


def find_weights(storage: Storage, sha256: str) -> bytes:
    """A weights file, which lies under its own checksum; KeyError: there is none."""
    try:
        return storage.read(f"weights/{sha256}.safetensors")
    except FileNotFoundError:
        raise KeyError(sha256) from None


def _is_older(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:  # finished meanwhile
        return False


def _write_synced(path: Path, content: bytes) -> None:
    """Temporary name, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
