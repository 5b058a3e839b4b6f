"""The one task: somebody said that there is work."""

from celery import Task, shared_task

from app.config import Settings
from app.queue import TASK
from workers.job import run_due
from workers.log_lines import log_as_set


@shared_task(name=TASK, bind=True)  # type: ignore[untyped-decorator]
def look(self: Task) -> None:
    """Takes no data: what to do is in the store."""
    settings = Settings()
    log_as_set(settings.log_level)
    run_due(settings, owner=self.request.hostname)
