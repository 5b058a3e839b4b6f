"""The reconciler: makes good what a lost hint, a dead worker or a dead broker left undone. It never takes ownership."""

import logging
import os
import socket
import threading
import time

from sqlalchemy.exc import SQLAlchemyError

from app import disk
from app.config import Settings
from app.queue import Queue
from app.storage import CHECKPOINTS, Storage
from app.store import artifacts, experiments, idempotency, leases, orphans, queue, steering, workers
from app.store.database import Database
from app.store.ids import new_id

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
CANCEL_SECONDS = 180.0
"""A worker that has not obeyed a cancel by then is shut out."""
SPARE_HINTS = 2
FORGET_WORKERS_SECONDS = 3600.0
TIDY_SECONDS = 3600.0
REMNANT_SECONDS = 3600.0
"""A file that no row names is left alone for so long: its row may not be there yet."""
ROOM_SECONDS, SHORTAGE_SECONDS = 30.0, 300.0
FOLDERS = (CHECKPOINTS, "artifacts")
"""Folders of the storage that hold one folder for each experiment."""


class Reconciler:
    """A thread of the web process; where there are several, the one with the lease acts."""

    def __init__(self, settings: Settings, database: Database, queue: Queue) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue
        self._name = f"web-{os.getpid()}@{socket.gethostname()}-{new_id()}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._last: dict[str, float] = {}

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
        lease = self._settings.lease_seconds
        with self._database.write() as session:
            if not leases.acquire(session, "reconciler", self._name, 3 * PERIOD_SECONDS):
                return 0
            cancelled = orphans.expire_cancelling(session, CANCEL_SECONDS, lease)
            failed = orphans.fail_hopeless(session, lease)
            settled = orphans.settle(session, lease)
            artifacts.fail_hopeless(session, lease)
        for experiment in cancelled:
            log.info("experiment %s: cancelled without its worker", experiment)
        for experiment in failed:
            log.warning("experiment %s: failed, its workers died too often", experiment)
        for experiment in settled:
            log.info("experiment %s: given back without its worker", experiment)
        if self._is_time("tidy", TIDY_SECONDS):
            self._tidy()
        if (shortage := disk.shortage(self._settings)) is not None:
            if self._is_time("shortage", SHORTAGE_SECONDS):
                log.warning("no work is given out: %s", shortage)
            return 0
        if self._is_time("room", ROOM_SECONDS):
            self._use_room()
        return self._hint()

    def _hint(self) -> int:
        with self._database.read() as session:
            lease = self._settings.lease_seconds
            due = queue.due(session, lease) + artifacts.due(session, lease)
            slots = workers.live_slots(session, self._settings.silent_seconds)
        if not due:
            return 0
        outstanding = self._queue.outstanding()
        if outstanding is None:
            return 0
        missing = min(due, slots + SPARE_HINTS) - outstanding
        if missing <= 0 or not self._queue.send(missing):
            return 0
        return missing

    def _use_room(self) -> None:
        """There is room on the disk: put the ballast back and let go on what waited for it."""
        disk.Ballast(self._settings).make()
        with self._database.write() as session:
            resumed = steering.resume_held(session, disk.HOLD)
        for experiment in resumed:
            log.info("experiment %s: queued again, there is room on the disk", experiment)

    def _tidy(self) -> None:
        """Forget what nobody needs: silent workers, old keys, deleted experiments, files that no row names."""
        with self._database.write() as session:
            workers.forget_silent(session, FORGET_WORKERS_SECONDS)
            idempotency.forget_old(session)
        storage = Storage(self._settings.storage)
        with self._database.read() as session:
            removable = steering.removable(session)
        for experiment in removable:
            # the files first: should this process die in between, the row brings it back here
            for folder in FOLDERS:
                storage.remove_folder(f"{folder}/{experiment}")
            self._remove_weights(storage, experiment)
            with self._database.write() as session:
                steering.remove(session, experiment)
            log.info("experiment %s: removed a day after it was deleted", experiment)
        storage.remove_remnants(time.time() - REMNANT_SECONDS)
        folders = {name.rpartition("/")[2]: name for name in storage.folders(CHECKPOINTS)}
        with self._database.read() as session:
            unknown = set(folders) - experiments.ids_with_deleted(session, list(folders))
        for experiment in sorted(unknown):
            if storage.modified(folders[experiment]) < time.time() - REMNANT_SECONDS:
                log.info("removing the checkpoints of %s, which is not in the store", experiment)
                storage.remove_folder(folders[experiment])

    def _remove_weights(self, storage: Storage, experiment: str) -> None:
        """Those of its networks that nothing else names. One written just now is another artifact's to be."""
        with self._database.read() as session:
            files = artifacts.last_weights(session, experiment)
        for file in files:
            if storage.exists(file) and storage.modified(file) < time.time() - REMNANT_SECONDS:
                storage.remove(file)
                log.info("removed %s with %s, the last experiment that named it", file, experiment)

    def _is_time(self, what: str, period: float) -> bool:
        """At the first tick, and then once a period."""
        last = self._last.get(what)
        if last is not None and time.monotonic() - last < period:
            return False
        self._last[what] = time.monotonic()
        return True

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.tick()
            except SQLAlchemyError as error:
                log.warning("the store is out of reach, trying again: %s", str(error).splitlines()[0])
            except OSError as error:
                log.warning("the storage is out of reach, trying again: %s", error)
            except Exception:  # whatever it is: without this thread nobody repairs anything until the morning
                log.exception("the reconciler continues after an error")
