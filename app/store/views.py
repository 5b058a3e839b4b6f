"""How the outside sees an experiment and a round: the same shape in REST, events and the Python client."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.store.states import State
from app.store.tables import Experiment, Round
from engine.records import Headline

ROUND_FIELDS = (
    "round",
    "accuracy",
    "loss",
    "scalars_up",
    "scalars_down",
    "bytes_up",
    "bytes_down",
    "client_flops",
    "server_flops",
    "eval_flops",
    "seconds",
    "client_seconds",
    "server_seconds",
    "cohort",
    "client_accuracy",
    "traces",
)
"""The fields of engine.records.RoundRecord, in its order."""


class ErrorView(BaseModel):
    """Why an experiment ended badly."""

    reason: str = Field(description="One sentence for people")
    detail: str | None = Field(description="The traceback, where there was one")


class TotalsView(BaseModel):
    """Sums over the rounds stored so far."""

    bytes_up: int
    bytes_down: int
    client_flops: int


class ExperimentView(BaseModel):
    """One experiment as the API shows it."""

    model_config = ConfigDict(use_enum_values=True)

    id: str = Field(description="ULID")
    name: str | None
    tags: list[str]
    notes: str
    state: State
    spec: dict[str, Any] = Field(description="The complete spec")
    fingerprint: str = Field(description="sha256 of the spec without name, tags and notes")
    partition_fingerprint: str | None = Field(description="sha256 of who holds which samples; known once it runs")
    environment: dict[str, Any] | None = Field(description="Where the first round was computed")
    bit_identical: bool = Field(description="False: a recomputed round differed after the environment had changed")
    rounds: int = Field(description="Rounds T of the spec; round 0 is the opening")
    next_round: int = Field(description="The first round that is not stored yet")
    headline: Headline | None
    error: ErrorView | None
    created_at: str = Field(description="ISO 8601, UTC")
    started_at: str | None
    finished_at: str | None
    seconds: float = Field(description="Sum of the rounds' wall time")
    owner: str | None = Field(description="The worker that runs it now")
    attempts: int = Field(description="How often a worker took it")
    seq: int = Field(description="Number of its last change")
    totals: TotalsView


def experiment_view(row: Experiment) -> ExperimentView:
    tested = row.best_round is not None
    return ExperimentView(
        id=row.id,
        name=row.name,
        tags=row.tags,
        notes=row.notes,
        state=row.state,
        spec=row.spec,
        fingerprint=row.fingerprint,
        partition_fingerprint=row.partition_fingerprint,
        environment=row.environment,
        bit_identical=row.bit_identical,
        rounds=row.rounds,
        next_round=row.next_round,
        headline=Headline(best_accuracy=row.best_accuracy, best_round=row.best_round, final_accuracy=row.final_accuracy)
        if tested
        else None,
        error=None if row.error_reason is None else ErrorView(reason=row.error_reason, detail=row.error_detail),
        created_at=iso(row.created_at),
        started_at=None if row.started_at is None else iso(row.started_at),
        finished_at=None if row.finished_at is None else iso(row.finished_at),
        seconds=row.seconds,
        owner=row.owner,
        attempts=row.attempts,
        seq=row.seq,
        totals=TotalsView(**row.totals),
    )


def round_view(row: Round) -> dict[str, Any]:
    """The record as it came from the engine."""
    return {name: getattr(row, name) for name in ROUND_FIELDS}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
