"""The one task: somebody said that there is work."""

import logging

from celery import Task, shared_task
from sqlalchemy.exc import DBAPIError

from app.config import Settings
from app.queue import TASK
from workers.job import run_due
from workers.log_lines import log_as_set
from workers.patience import first_line, passes

log = logging.getLogger(__name__)


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
