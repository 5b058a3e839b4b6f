"""The reconciler: makes good what a lost hint, a dead worker or a dead broker left undone. It never takes ownership."""

import logging
import os
import socket
import threading
import time

from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.queue import Queue
from app.store import artifacts, experiments, idempotency, leases, workers
from app.store.database import Database
from app.store.ids import new_id

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
CANCEL_SECONDS = 180.0
"""A worker that has not obeyed a cancel by then is shut out."""
SPARE_HINTS = 2
FORGET_WORKERS_SECONDS = 3600.0
TIDY_SECONDS = 3600.0


class Reconciler:
    """A thread of the web process; where there are several, the one with the lease acts."""

    def __init__(self, settings: Settings, database: Database, queue: Queue) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue
        self._name = f"web-{os.getpid()}@{socket.gethostname()}-{new_id()}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._tidied = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        try:
            with self._database.write() as session:
                leases.give_up(session, "reconciler", self._name)
        except SQLAlchemyError as error:
            log.debug("could not give up the reconciler's lease: %s", error)

    def tick(self) -> int:
        """One look at the store; returns how many hints were sent."""
        with self._database.write() as session:
            if not leases.acquire(session, "reconciler", self._name, 3 * PERIOD_SECONDS):
                return 0
            cancelled = experiments.expire_cancelling(session, CANCEL_SECONDS)
            failed = experiments.fail_hopeless(session)
            artifacts.fail_hopeless(session)
        for experiment in cancelled:
            log.info("experiment %s: cancelled without its worker", experiment)
        for experiment in failed:
            log.warning("experiment %s: failed, its workers died too often", experiment)
        if time.monotonic() - self._tidied > TIDY_SECONDS or not self._tidied:
            self._tidied = time.monotonic()
            with self._database.write() as session:
                workers.forget_silent(session, FORGET_WORKERS_SECONDS)
                idempotency.forget_old(session)
        with self._database.read() as session:
            due = experiments.due(session) + artifacts.due(session)
            slots = workers.live_slots(session, 3 * self._settings.heartbeat_seconds)
        if not due:
            return 0
        outstanding = self._queue.outstanding()
        if outstanding is None:
            return 0
        missing = min(due, slots + SPARE_HINTS) - outstanding
        if missing <= 0 or not self._queue.send(missing):
            return 0
        return missing

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.tick()
            except SQLAlchemyError as error:
                log.warning("the store is out of reach, trying again: %s", str(error).splitlines()[0])
