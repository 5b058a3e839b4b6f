"""How the outside sees a sweep: where it stands, its table of cells, and when it will be done."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from app.store import changes, deliveries, pace, progress, sweeps, workers
from app.store.progress import DELETED, Progress
from app.store.sound import sound_spec
from app.store.states import State
from app.store.sweeps import Member
from app.store.tables import Delivery, Experiment, Sweep
from app.views.choices import Choices, Spread, choices, spread
from app.views.experiments import iso, not_converged
from engine.records import HeadlineRule, conditions, headline_rule


class RunView(BaseModel):
    """One experiment of a sweep."""

    model_config = ConfigDict(use_enum_values=True)

    experiment: str
    seed: int
    state: State
    rounds: int
    next_round: int
    best_accuracy: float | None = Field(description="So far, while it runs")
    final_accuracy: float | None
    no_convergence: bool = Field(description="It finished at most 0.02 above the majority share")
    seconds: float
    reused: bool = Field(description="It was there before the sweep")
    retry_of: str | None
    reason: str | None = Field(description="Why it ended badly, or cannot be applied")


class CellView(BaseModel):
    """One combination of swept values with all its seeds."""

    values: dict[str, Any]
    best: Spread | None
    final: Spread | None
    headline_rule: HeadlineRule = Field(description="Which of the two counts: C final, A and B best")
    conditions: str | None = Field(description="Equal where data, models, budget and evaluation are; null without runs")
    runs: list[RunView]


class TimeLeft(BaseModel):
    """How long it will take, as far as that is known."""

    seconds: float | None = Field(description="With the workers there are; null: no worker, or nothing is known")
    unknown: int = Field(description="Experiments without any measurement; not contained in the seconds")
    slots: int = Field(description="Experiments that run at once")


class DeliveryView(BaseModel):
    """A message to the webhook."""

    event: str
    experiment: str | None
    attempts: int
    delivered_at: str | None
    next_try: str | None = Field(description="Null: it arrived, or was given up")
    error: str | None


class SweepSummary(BaseModel):
    """One line of the list of sweeps."""

    id: str
    name: str | None
    notes: str
    tags: list[str]
    state: str = Field(description="running, queued, paused; when all have ended: finished, failed or cancelled")
    created_at: str
    experiments: int
    reused: int
    counts: dict[str, int] = Field(description="Experiments by state")
    rounds_done: int
    rounds_total: int
    paths: list[str] = Field(description="The swept fields")
    seeds: list[int]


class SweepView(SweepSummary):
    """A sweep with everything about it."""

    document: dict[str, Any] = Field(description="What was submitted")
    cells: list[CellView]
    choices: Choices | None = Field(description="Settings chosen from groups of cells; null: not asked for")
    comparable: bool = Field(description="Whether the best cell under equal conditions may be named")
    time_left: TimeLeft
    webhook: str | None
    deliveries: list[DeliveryView]
    seq: int = Field(description="Number of the last change contained; events after it are new")


def swept_paths(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys(path for cell in sweep.cells for path in cell))


def _about(sweep: Sweep, reached: Progress, seeds: Sequence[int]) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "notes": sweep.notes,
        "tags": _listed(sweep, "tags", str),
        "state": reached.state,
        "created_at": iso(sweep.created_at),
        "experiments": sum(reached.counts.values()),
        "reused": len(sweep.reused),
        "counts": reached.counts,
        "rounds_done": reached.rounds_done,
        "rounds_total": reached.rounds_total,
        "paths": swept_paths(sweep),
        "seeds": list(seeds),
    }


def summaries(session: Session, rows: Sequence[Sweep]) -> list[SweepSummary]:
    """For a page of the list."""
    found = progress.of_sweeps(session, rows)
    return [SweepSummary(**_about(sweep, found[sweep.id], _listed(sweep, "seeds", int))) for sweep in rows]


def _listed(sweep: Sweep, name: str, kind: type) -> list[Any]:
    """A list of the document, as far as it is one."""
    values = sweep.document.get(name)
    return [value for value in values if isinstance(value, kind)] if isinstance(values, list) else []


def sweep_view(session: Session, sweep: Sweep, silent_seconds: float) -> SweepView:
    """Everything about a sweep as it stands now; a worker silent for so long does not count."""
    seq = changes.current(session)
    found = sweeps.members(session, sweep)
    rows = [member.experiment for member in found]
    gone = [DELETED] * len(sweeps.deleted(session, sweep))
    reached = Progress.of([*((row.state, row.rounds, row.next_round) for row in rows), *gone])
    by_cell: list[list[Member]] = [[] for _ in sweep.cells]
    order = {seed: number for number, seed in enumerate(dict.fromkeys(_seeds(sweep, found)))}
    for member in sorted(found, key=lambda member: order[member.seed]):
        by_cell[member.cell].append(member)
    return SweepView(
        **_about(sweep, reached, list(order)),
        document=sweep.document,
        cells=[_cell(values, runs) for values, runs in zip(sweep.cells, by_cell, strict=True)],
        choices=choices(sweep.document, sweep.cells, [[member.experiment for member in runs] for runs in by_cell]),
        comparable=_comparable(rows),
        time_left=time_left(session, rows, workers.live_slots(session, silent_seconds)),
        webhook=sweep.webhook,
        deliveries=[_delivery(row) for row in deliveries.of_sweep(session, sweep.id)],
        seq=seq,
    )


def _seeds(sweep: Sweep, found: Sequence[Member]) -> list[int]:
    return [*_listed(sweep, "seeds", int), *sorted({member.seed for member in found})]


def _cell(values: dict[str, Any], runs: Sequence[Member]) -> CellView:
    finished = [member.experiment for member in runs if member.experiment.state is State.FINISHED]
    spec = sound_spec(runs[0].experiment.spec) if runs else None
    return CellView(
        values=values,
        best=spread([row.best_accuracy for row in finished]),
        final=spread([row.final_accuracy for row in finished]),
        headline_rule="best" if spec is None else headline_rule(spec),
        conditions=None if spec is None else conditions(spec),
        runs=[
            RunView(
                experiment=member.experiment.id,
                seed=member.seed,
                state=member.experiment.state,
                rounds=member.experiment.rounds,
                next_round=member.experiment.next_round,
                best_accuracy=member.experiment.best_accuracy,
                final_accuracy=member.experiment.final_accuracy,
                no_convergence=not_converged(member.experiment, sound_spec(member.experiment.spec)),
                seconds=member.experiment.seconds,
                reused=not member.own,
                retry_of=member.experiment.retry_of,
                reason=member.experiment.error_reason,
            )
            for member in runs
        ],
    )


def _comparable(rows: Sequence[Experiment]) -> bool:
    """One protocol, no method alone under its conditions, and no run that a stop rule ended before the others.

    The page that compares experiments says the same in words, in static/js/series.js.
    """
    able = [row for row in rows if row.state is not State.NOT_APPLICABLE]
    specs = [sound_spec(row.spec) for row in able]
    methods: dict[str, set[str]] = {}
    for row, spec in zip(able, specs, strict=True):
        methods.setdefault(conditions(spec), set()).add(row.algorithm)
    several = len(set().union(*methods.values())) > 1
    finished = [row for row in able if row.state is State.FINISHED]
    cut_short = any(row.next_round <= row.rounds for row in finished) and len({row.next_round for row in finished}) > 1
    one_protocol = len({spec["evaluation"].get("protocol") for spec in specs}) <= 1
    return one_protocol and not cut_short and not (several and any(len(found) < 2 for found in methods.values()))


def time_left(session: Session, rows: Sequence[Experiment], slots: int) -> TimeLeft:
    """By the experiment's own rounds, or by what similar ones took; never less than the longest one alone."""
    open_rows = [row for row in rows if not row.state.is_finished()]
    if not open_rows:
        return TimeLeft(seconds=0.0, unknown=0, slots=slots)
    known = pace.read(session, rows=open_rows)
    found = [(row, known.of(row)) for row in open_rows]
    spans = [pace.left(row, timing) for row, timing in found if timing is not None]
    seconds = max(sum(spans) / slots, max(spans)) if spans and slots else None
    return TimeLeft(seconds=seconds, unknown=len(open_rows) - len(spans), slots=slots)


def _delivery(row: Delivery) -> DeliveryView:
    return DeliveryView(
        event=row.event,
        experiment=row.experiment,
        attempts=row.attempts,
        delivered_at=None if row.delivered_at is None else iso(row.delivered_at),
        next_try=None if row.next_try is None else iso(row.next_try),
        error=row.error,
    )
