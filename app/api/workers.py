"""The workers seen lately."""

from fastapi import APIRouter
from pydantic import BaseModel

from app.api.services import Using
from app.store import workers
from app.views.workers import WorkerView, worker_view

router = APIRouter(tags=["workers"])


class Workers(BaseModel):
    """By name."""

    items: list[WorkerView]


@router.get("/workers")
def list_workers(use: Using) -> Workers:
    """Who can run experiments now, with what each said of itself when it was last seen."""
    with use.database.read() as session:
        rows = workers.live(session, use.settings.silent_seconds)
        return Workers(items=[worker_view(row) for row in rows])
