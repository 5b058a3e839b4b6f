"""How the outside sees workers and what they say."""

from typing import Any

from pydantic import BaseModel, Field

from app.store.tables import LogLine, Worker
from app.views.experiments import iso


class LogLineView(BaseModel):
    """One line of a worker's log."""

    number: int
    at: str = Field(description="ISO 8601, UTC")
    level: str
    text: str


def log_line_view(row: LogLine) -> LogLineView:
    return LogLineView(number=row.number, at=iso(row.at), level=row.level, text=row.text)


class WorkerView(BaseModel):
    """A process that runs experiments."""

    name: str
    host: str
    device: str
    slots: int = Field(description="Experiments that it may run at once")
    started_at: str = Field(description="ISO 8601, UTC")
    last_seen: str
    report: dict[str, Any] | None = Field(description="Memory, experiments, rounds a minute, versions")


def worker_view(row: Worker) -> WorkerView:
    return WorkerView(
        name=row.name,
        host=row.host,
        device=row.device,
        slots=row.slots,
        started_at=iso(row.started_at),
        last_seen=iso(row.last_seen),
        report=row.report,
    )
