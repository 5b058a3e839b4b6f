"""What is wrong with the store when it refuses: a reason for programs, a sentence for people."""

from enum import StrEnum

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class Trouble(StrEnum):
    """Why nothing can be read or written."""

    FULL = "full"
    READ_ONLY = "read-only"
    DAMAGED = "damaged"
    LOCKED = "locked"
    AWAY = "away"

    @property
    def sentence(self) -> str:
        return SENTENCES[self]

    @property
    def wait_seconds(self) -> int:
        """When it may be worth another try."""
        return 5 if self in {Trouble.LOCKED, Trouble.AWAY} else 60

    @property
    def passes(self) -> bool:
        """It needs nobody to do something."""
        return self in {Trouble.LOCKED, Trouble.AWAY}


SENTENCES = {
    Trouble.FULL: "the disk of the store is full, so nothing can be stored; make room on it",
    Trouble.READ_ONLY: "the store cannot be written: its folder or file is read-only, or no longer there",
    Trouble.DAMAGED: "the store is damaged; stop FedArena, then restore a backup or move the file away to start empty",
    Trouble.LOCKED: "the store is busy; try again in a few seconds",
    Trouble.AWAY: "the store is out of reach; try again in a few seconds",
}
SIGNS = {
    Trouble.FULL: ("database or disk is full", "no space left on device", "disk full", "could not extend file"),
    Trouble.READ_ONLY: ("readonly database", "read-only", "unable to open database file"),
    Trouble.DAMAGED: ("malformed", "not a database", "could not decode to utf-8", "invalid page in block"),
    Trouble.LOCKED: ("locked", "busy", "lock timeout", "deadlock"),
}
"""Words of SQLite and PostgreSQL."""


def diagnose(error: BaseException) -> Trouble | None:
    """None: nothing is wrong with the store; the program asked for something wrong."""
    if isinstance(error, PoolTimeout):
        return Trouble.LOCKED
    text = str(error.orig if isinstance(error, DBAPIError) else error).lower()
    for trouble, signs in SIGNS.items():
        if any(sign in text for sign in signs):
            return trouble
    return Trouble.AWAY if isinstance(error, OperationalError) else None
