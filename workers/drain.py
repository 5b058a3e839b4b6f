"""The drain flag: a file by which a stopping worker tells its children to end after the current round."""

import hashlib
from pathlib import Path

from app.config import Settings


class Drain:
    """One worker's flag. A file needs no database, which may be locked just then."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._path: Path = settings.drain_folder / hashlib.sha256(worker.encode()).hexdigest()[:32]

    def ask(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.touch()

    def is_asked(self) -> bool:
        return self._path.exists()

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
