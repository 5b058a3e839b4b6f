"""What a spec would cost, before anything is stored."""

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from app.api.services import SPEC_BODY, PostedSpec, Services, Using
from app.store import timings
from engine import catalogue
from engine.spec import ExperimentSpec

router = APIRouter(tags=["catalogue"])


class Cost(BaseModel):
    """Sums over the clients that take part."""

    bytes_up: int
    bytes_down: int
    client_flops: int


class CostEstimate(BaseModel):
    """An average round, the opening, and how long a round takes on the workers of this store."""

    round: Cost
    opening: Cost = Field(description="Once before round 1, all clients")
    total: Cost = Field(description="All rounds and the opening")
    seconds_per_round: float
    seconds: float = Field(description="All rounds, one after the other on one worker")
    basis: Literal["measured", "rate", "guess"] = Field(
        description="measured: rounds of equal specs; rate: FLOPs a second of other experiments; guess: no round yet"
    )
    experiments: int = Field(description="How many experiments the seconds come from")


class Estimated(BaseModel):
    """Null where the cost cannot be told in advance."""

    estimate: CostEstimate | None


@router.post("/estimate", openapi_extra=SPEC_BODY)
async def estimate(use: Using, spec: PostedSpec) -> Estimated:
    """Bytes, FLOPs and time of a spec, found by rehearsing two rounds with a few clients. Nothing is stored."""
    return await run_in_threadpool(_estimate, use, spec)


def _estimate(use: Services, spec: ExperimentSpec) -> Estimated:
    found = catalogue.estimate(spec, use.settings.data_root)
    if found is None:
        return Estimated(estimate=None)
    with use.database.read() as session:
        timing = timings.seconds_per_round(session, spec.canonical(), found.round.client_flops)
    one, opening = Cost(**asdict(found.round)), Cost(**asdict(found.opening))
    total = {key: value * spec.rounds + getattr(opening, key) for key, value in one.model_dump().items()}
    return Estimated(
        estimate=CostEstimate(
            round=one,
            opening=opening,
            total=Cost(**total),
            seconds_per_round=timing.seconds,
            seconds=timing.seconds * spec.rounds,
            basis=timing.basis,
            experiments=timing.experiments,
        )
    )
