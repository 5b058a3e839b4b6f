"""How the outside sees an experiment."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.store.experiments import full_spec
from app.store.plan import clock_text
from app.store.rounds import headline_of
from app.store.sound import sound_spec
from app.store.states import State
from app.store.tables import Experiment
from engine.records import Headline, HeadlineRule, conditions, headline_rule, no_convergence

FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC).timestamp()
LAST_MOMENT = datetime(9999, 12, 30, tzinfo=UTC).timestamp()


class ErrorView(BaseModel):
    """Why an experiment ended badly."""

    reason: str = Field(description="One sentence for people")
    detail: str | None = Field(description="The traceback, where there was one")


class TotalsView(BaseModel):
    """Sums over the rounds stored so far."""

    bytes_up: int
    bytes_down: int
    client_flops: int


class WindowView(BaseModel):
    """Times of the day, UTC; `to` before `from` leads over midnight."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    begin: str = Field(alias="from", description="HH:MM")
    end: str = Field(alias="to", description="HH:MM, the first minute outside")
    zone: Literal["UTC"] = "UTC"


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
    bit_identical: bool = Field(description="False: a recomputed round differed, on a GPU or in another environment")
    rounds: int = Field(description="Rounds T of the spec; round 0 is the opening")
    next_round: int = Field(description="The first round that is not stored yet")
    headline: Headline | None
    headline_rule: HeadlineRule = Field(description="Which of its accuracies counts: C final, A and B best")
    majority_share: float | None = Field(
        description="Mean share of the most frequent class in the clients' test sets; known once it runs"
    )
    no_convergence: bool = Field(
        description="It finished, and the accuracy that counts is at most 0.02 above the majority share"
    )
    conditions: str = Field(
        description="Equal where data, models, budget and evaluation are: such results can be ranked"
    )
    error: ErrorView | None
    created_at: str = Field(description="ISO 8601, UTC")
    started_at: str | None
    finished_at: str | None
    seconds: float = Field(description="Sum of the rounds' wall time")
    owner: str | None = Field(description="The worker that runs it now")
    attempts: int = Field(description="How often a worker took it")
    priority: int = Field(description="Higher ones are taken first")
    position: int | None = Field(description="How many wait before it; known when one queued experiment is asked for")
    start_after: str | None = Field(description="Not before this moment; ISO 8601, UTC")
    window: WindowView | None = Field(description="Part of every day in which it may run")
    pause: bool = Field(description="Its worker was asked to pause it and has not done so yet")
    hold: str | None = Field(description="Why it is paused, or about to be: asked, or a reason that passes by itself")
    stop: dict[str, Any] | None = Field(description="The rule that may end it early: target, patience, min_gain")
    stopped_by: str | None = Field(description="How that rule ended it; null: it did not")
    sweep: str | None = Field(description="The sweep it belongs to")
    cell: dict[str, Any] | None = Field(description="The swept fields and their values, the seed apart")
    retry_of: str | None = Field(description="The experiment that it tries again")
    continues: str | None = Field(
        description="The experiment with another number of rounds whose first rounds it took over"
    )
    taken_over: int = Field(description="How many rounds it took over, the opening among them")
    deleted_at: str | None = Field(description="Since then it is hidden; a day later it is removed")
    has_checkpoint: bool = Field(description="Its state after some round can be downloaded")
    seq: int = Field(description="Number of its last change")
    totals: TotalsView


def judged(row: Experiment, spec: Mapping[str, Any]) -> float | None:
    """The accuracy that the experiment is judged by."""
    return headline_of(row).judged(headline_rule(spec))


def not_converged(row: Experiment, spec: Mapping[str, Any]) -> bool:
    """A mark for readers; its state stays finished."""
    return row.state is State.FINISHED and no_convergence(judged(row, spec), row.majority_share)


def experiment_view(row: Experiment, position: int | None = None) -> ExperimentView:
    spec = sound_spec(full_spec(row))
    return ExperimentView(
        id=row.id,
        name=row.name,
        tags=row.tags,
        notes=row.notes,
        state=row.state,
        spec=spec,
        fingerprint=row.fingerprint,
        partition_fingerprint=row.partition_fingerprint,
        environment=row.environment,
        bit_identical=row.bit_identical,
        rounds=row.rounds,
        next_round=row.next_round,
        headline=None if row.best_round is None else headline_of(row),
        headline_rule=headline_rule(spec),
        majority_share=row.majority_share,
        no_convergence=not_converged(row, spec),
        conditions=conditions(spec),
        error=None if row.error_reason is None else ErrorView(reason=row.error_reason, detail=row.error_detail),
        created_at=iso(row.created_at),
        started_at=_iso(row.started_at),
        finished_at=_iso(row.finished_at),
        seconds=row.seconds,
        owner=row.owner,
        attempts=row.attempts,
        priority=row.priority,
        position=position,
        start_after=_iso(row.start_after or None),
        window=_window(row),
        pause=row.pause,
        hold=row.hold,
        stop=row.stop,
        stopped_by=row.stopped_by,
        sweep=row.sweep,
        cell=row.cell,
        retry_of=row.retry_of,
        continues=row.continues,
        taken_over=row.taken_over,
        deleted_at=_iso(row.deleted_at),
        has_checkpoint=row.checkpoint is not None,
        seq=row.seq,
        totals=TotalsView(**row.totals),
    )


def _window(row: Experiment) -> WindowView | None:
    if row.window_from is None or row.window_to is None:
        return None
    return WindowView(begin=clock_text(row.window_from), end=clock_text(row.window_to))


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def iso(seconds: float) -> str:
    """A moment outside the calendar becomes its first or last one, a day inside so that every time zone can show it."""
    seconds = min(max(seconds, FIRST_MOMENT), LAST_MOMENT)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
