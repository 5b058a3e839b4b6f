"""Checkpoints in the storage, where a worker on another host finds what a dead one left."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from app.config import Settings
from app.storage import CHECKPOINTS, Storage

if TYPE_CHECKING:
    from engine.runtime.checkpoint import Files


def folder_of(experiment: str) -> str:
    return f"{CHECKPOINTS}/{experiment}"


class StoredFiles:
    """A folder of an object store."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def write(self, name: str, content: bytes) -> object:
        return self._storage.write(self._name(name), content)

    def settle(self) -> None:
        """A put counts at once."""

    def read(self, name: str) -> bytes:
        return self._storage.read(self._name(name))

    def names(self) -> list[str]:
        return [name.rpartition("/")[2] for name in self._storage.names(self._folder)]

    def remove(self, name: str) -> None:
        self._storage.remove(self._name(name))

    def fetch(self, name: str, content: bytes, /) -> Path:
        """A copy that goes with this object."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="fedarena-checkpoint-")
        path = Path(self._scratch.name) / name
        path.write_bytes(content)
        return path

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"


def checkpoint_files(settings: Settings, experiment: str) -> "Files":
    """Where the state of one experiment lies between two workers: a folder, or objects in a store."""
    from engine.runtime.checkpoint import LocalFiles  # only now: it brings torch

    storage, folder = Storage(settings.storage), folder_of(experiment)
    here = storage.local(folder)
    return StoredFiles(storage, folder) if here is None else LocalFiles(here)
