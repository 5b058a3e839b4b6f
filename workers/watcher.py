"""Threads that look again and again: one mechanism for all of them, because one that died unseen seems to be at work.

An error never ends such a thread. It is logged once, with its traceback unless the store or the disk is to blame, and
the next look comes as if nothing had happened. Who cannot do without the looks for long says so, and is told.
"""

import logging
import math
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from workers.patience import first_line

log = logging.getLogger(__name__)


class Watcher:
    """One look every `period` seconds, until it is ended. The first one comes after the first period."""

    def __init__(
        self,
        name: str,
        look: Callable[[], None],
        period: float,
        *,
        patience: float = math.inf,
        blind: Callable[[], None] = lambda: None,
    ) -> None:
        """`blind` is called when every look failed for more than `patience` seconds, and again after each further one.

        A store that is out of reach does not count: then nobody else can look at it either.
        """
        self._name = name
        self._look = look
        self._period = period
        self._patience = patience
        self._blind = blind
        self._failing_since: float | None = None
        self._trouble: type[Exception] | None = None  # what the last look failed with, and was logged
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """RuntimeError: there can be no more threads."""
        self._thread.start()

    def end(self) -> None:
        """After the present look. Also from inside one."""
        self._end.set()

    def stop(self, seconds: float) -> None:
        """End and wait so long for the last look; also where it could not start."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout=seconds)

    def _run(self) -> None:
        while not self._end.wait(self._period):
            try:
                self._look()
            except Exception as error:  # whatever it is: nobody would notice that this thread is gone
                self._note(error)
            else:
                self._failing_since = self._trouble = None

    def _note(self, error: Exception) -> None:
        is_new, self._trouble = type(error) is not self._trouble, type(error)
        level = logging.WARNING if is_new else logging.DEBUG  # a store may be away all night: one line is enough
        if isinstance(error, DBAPIError):
            log.log(level, "%s: cannot look at the store: %s", self._name, first_line(error))
            return
        if isinstance(error, OSError):
            log.log(level, "%s: cannot look: %s", self._name, error)
        else:
            log.log(
                logging.ERROR if is_new else logging.DEBUG, "%s: tries again after an error", self._name, exc_info=error
            )
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since > self._patience:
            self._blind()
