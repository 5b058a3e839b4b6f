"""What a spec would cost, before anything is stored."""

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from app.api.services import SPEC_BODY, PostedSpec, Services, Using
from app.errors import Errors
from app.rehearsals import client_of, unless_gone
from app.store import pace
from engine import catalogue
from engine.catalogue import Estimate
from engine.spec.experiment import ExperimentSpec

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
    seconds_once: float = Field(description="To start, and for the opening")
    seconds: float = Field(description="The start, the opening and all rounds, one after the other on one worker")
    basis: Literal["measured", "scaled", "rate", "guess"] = Field(
        description="measured: rounds of equal specs; scaled: another setting of the same method, data set and models; "
        "rate: FLOPs a second of other experiments; guess: no round yet"
    )
    experiments: int = Field(description="How many experiments the seconds come from")


class Estimated(BaseModel):
    """Null where the cost cannot be told in advance."""

    estimate: CostEstimate | None
    reason: str | None = Field(description="Why there is no estimate; null where there is one")


@router.post(
    "/estimate",
    openapi_extra=SPEC_BODY,
    responses={429: {"model": Errors, "description": "Too many wait, or a newer one of this client took the place"}},
)
async def estimate(request: Request, use: Using, spec: PostedSpec) -> Estimated:
    """Bytes, FLOPs and time of a spec, found by rehearsing two rounds with a few clients. Nothing is stored.

    One is rehearsed at a time, and at most one of each client waits. Who hangs up is not waited for.
    """
    await run_in_threadpool(catalogue.check, catalogue.priced(spec), use.settings.data_root)
    answer = await unless_gone(request, use.rehearsals.estimate(spec, client_of(request)))
    if answer.estimate is None:
        return Estimated(estimate=None, reason=answer.reason)
    return await run_in_threadpool(_priced, use, spec, answer.estimate)


def _priced(use: Services, spec: ExperimentSpec, found: Estimate) -> Estimated:
    with use.database.read() as session:
        known = pace.read(session, [(spec.algorithm.name, spec.dataset.name)])
    plain = spec.canonical()
    timing = known.known(plain) or known.rated(plain, found.round.client_flops, found.opening.client_flops)
    one, opening = Cost(**asdict(found.round)), Cost(**asdict(found.opening))
    total = {key: value * spec.rounds + getattr(opening, key) for key, value in one.model_dump().items()}
    return Estimated(
        estimate=CostEstimate(
            round=one,
            opening=opening,
            total=Cost(**total),
            seconds_per_round=timing.a_round,
            seconds_once=timing.startup + timing.opening,
            seconds=timing.whole(spec.rounds),
            basis=timing.basis,
            experiments=timing.experiments,
        ),
        reason=None,
    )
