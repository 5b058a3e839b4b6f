"""A worker: a Celery process with a slot for each experiment it may run at once, known to the store while it lives."""

import logging
import os
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from celery import signals
from celery.platforms import SecurityWarning
from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.queue import QUEUE, Queue
from app.store import experiments, workers
from app.store.database import Database
from app.store.migrate import migrate
from workers.drain import Drain
from workers.job import SLOTS_VARIABLE

log = logging.getLogger(__name__)


def work(settings: Settings, slots: int) -> int:
    """Run until SIGTERM or Ctrl-C; returns the exit code. Open rounds may end within the grace period."""
    settings.prepare_home()
    worker = Presence(settings, slots)
    # the children are started anew, not forked: what they must know travels in the environment
    os.environ.update(settings.environment())
    os.environ[SLOTS_VARIABLE] = str(slots)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    queue = Queue(settings)
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
    queue.send(min(slots, worker.due()))
    arguments = ["--quiet", "worker", f"--hostname={worker.name}", f"--concurrency={slots}", f"--queues={QUEUE}"]
    arguments += ["--pool=prefork", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    try:
        queue.celery.worker_main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        worker.stop()
        drain.clear()
    return 0


class Presence:
    """The worker's row in the store, renewed by a thread."""

    def __init__(self, settings: Settings, slots: int) -> None:
        self._settings = settings
        self._slots = slots
        self._host = socket.gethostname()
        self.name = f"worker-{os.getpid()}@{self._host}"
        self._database = Database(settings.database, checkpoints=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="presence", daemon=True)

    def start(self) -> None:
        migrate(self._database)
        self._bury_the_dead()
        self._register()
        self._thread.start()

    def due(self) -> int:
        with self._database.read() as session:
            return experiments.due(session)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        try:
            with self._database.write() as session:
                workers.remove(session, self.name)
        except SQLAlchemyError as error:
            log.warning("could not sign off: %s", str(error).splitlines()[0])
        self._database.close()

    def _register(self) -> None:
        with self._database.write() as session:
            workers.register(
                session,
                name=self.name,
                host=self._host,
                pid=os.getpid(),
                device=self._device(),
                slots=self._slots,
            )

    def _device(self) -> str:
        """A guess without torch; a job corrects it when it knows better."""
        if self._settings.device != "auto":
            return self._settings.device
        return "cuda" if Path("/dev/nvidia0").exists() else "cpu"

    def _renew(self) -> None:
        while not self._stop.wait(self._settings.heartbeat_seconds):
            try:
                with self._database.write() as session:
                    known = workers.seen(session, self.name)
                if not known:
                    self._register()
            except SQLAlchemyError as error:
                log.warning("cannot report to the store: %s", str(error).splitlines()[0])

    def _bury_the_dead(self) -> None:
        """Workers of this machine whose process is gone: what they held can be claimed before the lease ends."""
        with self._database.write() as session:
            for row in workers.known(session):
                if row.host == self._host and not _is_alive(row.pid):
                    experiments.expire_leases(session, row.name)
                    workers.remove(session, row.name)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> int:
    """`python -m workers.launch`: the worker of `fedarena serve`, set up by the environment alone."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("alembic", "celery", "kombu"):
        logging.getLogger(noisy).setLevel("WARNING")
    return work(settings, int(os.environ.get(SLOTS_VARIABLE, "1")))


if __name__ == "__main__":
    sys.exit(main())
