"""A worker: a Celery process with a slot for each experiment it may run at once, known to the store while it lives."""

import logging
import os
import secrets
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from celery import signals
from celery.platforms import SecurityWarning
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app import disk
from app.config import Settings
from app.queue import QUEUE, Queue
from app.store import orphans, queue, workers
from app.store.database import Database
from app.store.migrate import migrate
from workers import machine
from workers.device import DeviceTrouble, DeviceUnusable, require_device
from workers.drain import Drain
from workers.job import SLOTS_VARIABLE
from workers.patience import patiently, write
from workers.watchdog import Pace, Watchdog, delete_old_pulses, is_alive
from workers.watcher import Watcher

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the store is asked for cancels that a child does not obey."""


def work(settings: Settings, slots: int) -> int:
    """Run until SIGTERM or Ctrl-C; returns the exit code. Open rounds may end within the grace period.

    DeviceUnusable: it could not compute anything.
    """
    require_device(settings.device)
    settings.prepare_home()
    worker = Presence(settings, slots)
    # the children are started anew, not forked: what they must know travels in the environment
    os.environ.update(settings.environment())
    os.environ[SLOTS_VARIABLE] = str(slots)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    hints = Queue(settings)
    drain = Drain(settings, worker.name)
    drain.clear()

    def ask_children_to_stop(**_: Any) -> None:
        drain.ask()

    def keep_logging(**_: Any) -> None:
        """Celery leaves logging alone when somebody listens to this signal."""

    signals.worker_shutting_down.connect(ask_children_to_stop, weak=False)
    signals.setup_logging.connect(keep_logging, weak=False)
    # about root and pickle; our messages are JSON without content
    warnings.simplefilter("ignore", SecurityWarning)
    worker.start()
    hints.send(min(slots, worker.due()))
    arguments = ["--quiet", "worker", f"--hostname={worker.name}", f"--concurrency={slots}", f"--queues={QUEUE}"]
    arguments += ["--pool=prefork", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    try:
        hints.celery.worker_main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        worker.stop()
        drain.clear()
    return 0


class Presence:
    """The worker's row in the store, renewed by a thread with what it has to report."""

    def __init__(self, settings: Settings, slots: int) -> None:
        self._settings = settings
        self._slots = slots
        self._host = socket.gethostname()
        # the random part keeps containers apart that have one host name and one process number
        self.name = f"worker-{os.getpid()}-{secrets.token_hex(3)}@{self._host}"
        self._database = Database(settings.database, wal_checkpoints=False)
        self._watchdog = Watchdog(settings, self.name)
        self._trouble = DeviceTrouble(settings, self.name)
        self._pace = Pace(time.monotonic())
        self._seen = time.monotonic()
        self._watcher = Watcher("presence", self._renew, min(LOOK_SECONDS, settings.heartbeat_seconds))

    def start(self) -> None:
        # a frozen process may hold the database just now; whoever is to take over from it must not give up
        patiently(lambda: migrate(self._database))
        delete_old_pulses(self._settings)
        disk.Ballast(self._settings).make()
        write(self._database, self._bury_the_dead)
        write(self._database, self._register)
        self._watchdog.start()
        self._watcher.start()

    def due(self) -> int:
        with self._database.read() as session:
            return queue.due(session, self._settings.lease_seconds)

    def stop(self) -> None:
        self._watcher.end()
        self._watchdog.stop()
        self._watcher.stop(10)
        try:
            with self._database.write() as session:
                workers.remove(session, self.name)
        except SQLAlchemyError as error:
            log.warning("could not sign off: %s", str(error).splitlines()[0])
        self._trouble.clear()
        self._database.close()

    def report(self) -> dict[str, Any]:
        """What the dashboard shows of this worker."""
        held = self._watchdog.holdings()
        on_device = next((holding.device_memory for holding in held if holding.device_memory), None)
        here = machine.memory()
        return {
            "memory_free": here and here[0],
            "memory_total": here and here[1],
            "device_memory_free": on_device and on_device[0],
            "device_memory_total": on_device and on_device[1],
            "experiments": sorted(holding.experiment for holding in held),
            "rounds_per_minute": round(self._pace.after(time.monotonic(), self._watchdog.rounds()), 2),
            "shortage": self._trouble.reason() or disk.shortage(self._settings),
            "versions": machine.versions(),
        }

    def _register(self, session: Session) -> None:
        workers.register(
            session,
            name=self.name,
            host=self._host,
            pid=os.getpid(),
            machine=machine.identity(),
            device=self._device(),
            slots=self._slots,
        )
        workers.seen(session, self.name, self.report())

    def _device(self) -> str:
        """A guess without torch; a job corrects it when it knows better."""
        if self._settings.device != "auto":
            return self._settings.device
        return "cuda" if Path("/dev/nvidia0").exists() else "cpu"

    def _renew(self) -> None:
        self._watchdog.settle(self._database)
        if time.monotonic() - self._seen < self._settings.heartbeat_seconds:
            return
        self._seen = time.monotonic()
        with self._database.write() as session:
            if not workers.seen(session, self.name, self.report()):
                self._register(session)
        disk.Ballast(self._settings).make()

    def _bury_the_dead(self, session: Session) -> None:
        """Workers of this machine whose process is gone: what they held can be claimed before the lease ends."""
        here = machine.identity()
        for row in workers.known(session):
            if row.machine == here and not is_alive(row.pid):
                orphans.expire_leases(session, row.name)
                workers.remove(session, row.name)


def main() -> int:
    """`python -m workers.launch`: the worker of `fedarena serve`, set up by the environment alone."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("alembic", "celery", "kombu"):
        logging.getLogger(noisy).setLevel("WARNING")
    try:
        return work(settings, int(os.environ.get(SLOTS_VARIABLE, "1")))
    except DeviceUnusable as reason:
        log.error("%s", reason)
        return 2


if __name__ == "__main__":
    sys.exit(main())
