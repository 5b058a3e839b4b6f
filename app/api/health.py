"""Is the process there, and can it do its work?"""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.services import Using
from app.errors import Errors
from app.store import experiments, workers

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


@router.get("/readyz", responses={503: {"model": Errors, "description": "The store is out of reach"}})
def readyz(use: Using) -> Readiness:
    """Answers when requests can be served. Workers and broker may be missing: experiments then wait."""
    with use.database.read() as session:
        slots = workers.live_slots(session, use.settings.silent_seconds)
        return Readiness(slots=slots, due=experiments.due(session))
