"""The one task: somebody said that there is work."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Task, shared_task
from sqlalchemy.exc import DBAPIError

from app.config import Settings
from app.queue import TASK
from workers.drain import Drain
from workers.job import run_due
from workers.log_lines import log_as_set
from workers.patience import first_line, passes

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


@shared_task(name=TASK, bind=True)  # type: ignore[untyped-decorator]
def look(self: Task) -> None:
    """Takes no data: what to do is in the store."""
    settings = Settings()
    log_as_set(settings.log_level)
    with drained_when_alone(settings, self.request.hostname):
        try:
            run_due(settings, owner=self.request.hostname)
        except DBAPIError as error:
            if not passes(error):
                raise
            log.warning("the store is out of reach, another hint will come: %s", first_line(error))


@contextmanager
def drained_when_alone(settings: Settings, owner: str) -> Iterator[None]:
    """Without its worker nobody watches this process, and a new worker has its slot: it stops after the round."""
    parent, done = os.getppid(), threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_SECONDS):
            if os.getppid() != parent:
                log.warning("worker %s is gone; its experiment is given back after this round", owner)
                Drain(settings, owner).ask()
                return

    threading.Thread(target=watch, name="parent", daemon=True).start()
    try:
        yield
    finally:
        done.set()
