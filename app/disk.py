"""Room on the disk: when to stop taking work, and a ballast file that is given up in need."""

import errno
import logging
import os
import shutil
from pathlib import Path

from app.config import Settings
from app.storage import CHECKPOINTS, Storage
from app.store.trouble import Trouble, diagnose

log = logging.getLogger(__name__)

HOLD = "disk full"
"""How the hold of an experiment begins that goes on by itself when there is room."""
BALLAST_BYTES = 64 * 1024 * 1024
MEGABYTE = 1_000_000
LARGEST_RESERVE = 10
"""The share of the disk that must stay free is at most this many times the fixed amount."""


def shortage(settings: Settings) -> str | None:
    """Why no new work should be taken, in words; None: there is room."""
    storage = Storage(settings.storage).local(CHECKPOINTS)
    for folder in (settings.home, *(() if storage is None else (storage,))):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if folder == settings.home and not os.access(there, os.W_OK):
            return f"{there} cannot be written"
        usage = shutil.disk_usage(there)
        fixed = settings.disk_low_mb * MEGABYTE
        needed = max(fixed, min(usage.total * settings.disk_low_percent / 100, LARGEST_RESERVE * fixed))
        if usage.free < needed:
            return f"{usage.free / 1e9:.2f} GB free at {there}, but {needed / 1e9:.2f} GB must stay free"
    return None


def is_full(error: BaseException) -> bool:
    """The error says that something did not fit on a disk: a file, SQLite's or PostgreSQL's."""
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return True
    return diagnose(error) is Trouble.FULL


class Ballast:
    """A file that only takes up room, so that there is some to give when the disk is full."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.path: Path = settings.home / "ballast"

    def give_up(self) -> bool:
        """False: it was given up before."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        log.warning("the disk is full; %s was deleted to make room for what must still be written", self.path)
        return True

    def make(self) -> bool:
        """Make it where there is room and it is not there."""
        if self.path.exists() or shortage(self._settings) is not None:
            return False
        temporary = self.path.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
            temporary.rename(self.path)
        except (OSError, AttributeError) as error:  # not every system and file system can
            temporary.unlink(missing_ok=True)
            log.debug("no ballast: %s", error)
            return False
        return True
