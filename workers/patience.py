"""Waiting for a store or storage that is locked, restarting or out of reach, so that no experiment fails for it."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlmodel import Session

from app import disk
from app.store.database import Database

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
SIGNS = ("locked", "busy", "timeout", "connection", "starting up", "shutting down", "recovery", "deadlock", "terminat")

Result = TypeVar("Result")


def passes(error: DBAPIError) -> bool:
    """Waiting helps: the database is locked, restarting, out of reach, or the connection was cut."""
    if error.connection_invalidated or _never_arrived(error):
        return True
    return any(sign in str(error.orig).lower() for sign in SIGNS)


def _never_arrived(error: DBAPIError) -> bool:
    """PostgreSQL gives every error of its own a code; psycopg's have none: no such host, no answer, a cut."""
    return isinstance(error, OperationalError) and getattr(error.orig, "sqlstate", "") is None


def patiently(step: Callable[[], Result], helps: Callable[[DBAPIError], bool] = passes) -> Result:
    """Try the step until the store takes it. It must be safe to repeat: a commit may arrive without its answer."""
    wait = FIRST_WAIT
    while True:
        try:
            return step()
        except DBAPIError as error:
            if not helps(error):
                raise
            log.warning("the store is busy, trying again: %s", first_line(error))
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def write(
    database: Database, work: Callable[[Session], Result], helps: Callable[[DBAPIError], bool] = passes
) -> Result:
    """One transaction, tried again while waiting helps.

    Safe to repeat: if the first commit did arrive, the second finds the round stored, or the claim gone.
    """

    def transaction() -> Result:
        with database.write() as session:
            return work(session)

    return patiently(transaction, helps)


def read(database: Database, look: Callable[[Session], Result]) -> Result:
    def transaction() -> Result:
        with database.read() as session:
            return look(session)

    return patiently(transaction)


def wait_for_storage(step: Callable[[], Result], seconds: float, should_stop: Callable[[], bool]) -> Result:
    """Try the step until the storage takes it, or raise its OSError when so many seconds have passed.

    On a full disk waiting does not help, and whoever is asked to stop does not wait.
    """
    wait, end = FIRST_WAIT, time.monotonic() + seconds
    while True:
        try:
            return step()
        except OSError as error:
            if disk.is_full(error) or should_stop() or time.monotonic() + wait > end:
                raise
            log.warning("the storage is out of reach, trying again: %s", error)
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def first_line(error: DBAPIError) -> str:
    return (str(error.orig).splitlines() or [type(error.orig).__name__])[0]
