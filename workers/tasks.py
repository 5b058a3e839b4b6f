"""The one task: somebody said that there is work."""

import logging
import sys
from typing import Any
from urllib.parse import urlsplit

from celery import Task, shared_task, signals
from sqlalchemy.exc import DBAPIError

from app.config import Settings
from app.queue import TASK
from workers.fleet import ask_for_sigterm
from workers.job import run_due
from workers.log_lines import log_as_set
from workers.patience import first_line, passes

log = logging.getLogger(__name__)


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def let_the_round_end(**_: Any) -> None:
    """Celery has the kernel kill a child whose parent dies, and to the kernel the thread that started it is the parent.

    With hints in files that thread ends as soon as the worker is asked to stop, in the middle of a round. There the
    child asks for the polite signal instead, and `Job` looks whether the parent is really gone.
    """
    if sys.platform == "linux" and urlsplit(Settings().broker).scheme == "filesystem":
        ask_for_sigterm()


@shared_task(name=TASK, bind=True)  # type: ignore[untyped-decorator]
def look(self: Task) -> None:
    """Takes no data: what to do is in the store."""
    settings = Settings()
    log_as_set(settings.log_level)
    try:
        run_due(settings, owner=self.request.hostname)
    except DBAPIError as error:
        if not passes(error):
            raise
        log.warning("the store is out of reach, another hint will come: %s", first_line(error))
