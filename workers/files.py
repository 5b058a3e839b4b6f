"""Checkpoints in the storage, where a worker on another host finds what a dead one left."""

import os
import tempfile
from pathlib import Path

from app.config import Settings
from app.storage import Storage

FOLDER = "checkpoints"


def folder_of(experiment: str) -> str:
    return f"{FOLDER}/{experiment}"


class StoredFiles:
    """engine.checkpoint.Files over a folder of the storage."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def write(self, name: str, content: bytes) -> object:
        return self._storage.write(self._name(name), content)

    def read(self, name: str) -> bytes:
        return self._storage.read(self._name(name))

    def names(self) -> list[str]:
        return [name.rpartition("/")[2] for name in self._storage.names(self._folder)]

    def remove(self, name: str) -> None:
        self._storage.remove(self._name(name))

    def fetch(self, name: str, content: bytes, /) -> Path:
        """The stored file itself, or a copy that goes with this object."""
        here = self._storage.local(self._name(name))
        if here is not None:
            return here
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="fedarena-checkpoint-")
        path = Path(self._scratch.name) / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return path

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"


def checkpoint_files(settings: Settings, experiment: str) -> StoredFiles:
    """Where the state of one experiment lies between two workers."""
    return StoredFiles(Storage(settings.storage), folder_of(experiment))
