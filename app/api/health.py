"""Is the process there, and can it do its work?"""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.services import Using
from app.errors import Errors
from app.store import queue, workers
from app.store.trouble import Trouble

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """The store answers too."""

    status: str = "ok"
    slots: int = Field(description="Experiments that the workers seen lately can run at once")
    due: int = Field(description="Experiments waiting for a worker")


@router.get("/healthz")
async def healthz() -> Health:
    """Answers while the process lives; looks at nothing else."""
    return Health()


NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Errors, "description": f"The store refuses; `value` says why: {', '.join(Trouble)}"}
}


@router.get("/readyz", responses=NOT_READY)
def readyz(use: Using) -> Readiness:
    """Answers when requests can be served. Workers and broker may be missing: experiments then wait."""
    use.database.try_writing()
    with use.database.read() as session:
        slots = workers.live_slots(session, use.settings.silent_seconds)
        return Readiness(slots=slots, due=queue.due(session))
