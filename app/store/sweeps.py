"""Sweeps: many experiments stored in one transaction, where they stand, and what is asked of all of them."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlmodel import Session, col

from app.store import changes, experiments
from app.store.claims import Locked, lock
from app.store.clock import read_clock
from app.store.ids import in_chunks, new_id
from app.store.plan import Plan
from app.store.sound import sound_spec
from app.store.states import RETRIED, AlreadyFinished, State
from app.store.tables import Experiment, Sweep

_KEPT = ("priority", "window_from", "window_to", "stop")
"""Of the plan in a retry: somebody asks for it, so it waits for no first moment."""
_PREFERRED = (State.FINISHED, State.RUNNING, State.QUEUED)
"""Of several experiments that could be reused, the one that is furthest."""


class NotEnded(Exception):
    """Some of the sweep's experiments still wait or run."""


@dataclass(frozen=True)
class NewRun:
    """One experiment that a sweep asks for."""

    cell: int
    seed: int
    spec: Mapping[str, Any]
    fingerprint: str
    reason: str | None = None
    """Why it cannot be applied; None: it can run."""


@dataclass(frozen=True)
class Member:
    """The place of one experiment in a sweep: a cell and a seed."""

    cell: int
    seed: int
    experiment: Experiment
    own: bool
    """False: it was there before and belongs to somebody else."""


def visible() -> Select[Sweep]:
    """The start of every query: the sweeps that are not deleted."""
    return select(Sweep).where(col(Sweep.deleted_at).is_(None))


def waiting(session: Session) -> int:
    """How many sweeps have experiments that wait or run."""
    open_states = [state for state in State if not state.is_finished()]
    query = experiments.visible(func.count(col(Experiment.sweep).distinct())).where(
        col(Experiment.state).in_(open_states)
    )
    return int(session.execute(query).scalar_one())


def reusable(session: Session, fingerprints: Collection[str], plan: Plan) -> dict[str, tuple[str, State]]:
    """Experiments by fingerprint that give the same result, and not later than one under this plan would."""
    columns, time = plan.columns(), read_clock(session)
    found: dict[str, tuple[int, str, State]] = {}
    wanted = list(fingerprints)
    for chunk in in_chunks(wanted):
        query = experiments.visible(
            col(Experiment.fingerprint),
            col(Experiment.id),
            col(Experiment.state),
            col(Experiment.stop),
            col(Experiment.stopped_by),
            col(Experiment.start_after),
            col(Experiment.window_from),
            col(Experiment.window_to),
        ).where(
            col(Experiment.fingerprint).in_(chunk),
            col(Experiment.state).in_(_PREFERRED),
            col(Experiment.cancel).is_(False),
            col(Experiment.pause).is_(False),
        )
        for fingerprint, key, state, stop, stopped_by, start_after, *window in session.execute(query):
            complete = state is State.FINISHED and stopped_by is None
            if not complete and stop != columns["stop"]:
                continue
            waits_longer = start_after > max(columns["start_after"], time) or (
                window != [None, None] and window != [columns["window_from"], columns["window_to"]]
            )
            if state is not State.FINISHED and waits_longer:
                continue
            rank = (_PREFERRED.index(state), key, state)
            if fingerprint not in found or rank < found[fingerprint]:
                found[fingerprint] = rank
    return {fingerprint: (key, state) for fingerprint, (_, key, state) in found.items()}


def submit(
    session: Session,
    *,
    name: str | None,
    notes: str,
    document: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    runs: Iterable[NewRun],
    plan: Plan,
    reuse: bool,
    webhook: str | None = None,
) -> Sweep:
    """The sweep and all its experiments, in the order given; the transaction stores all of them or none."""
    runs = list(runs)
    columns = plan.columns()
    known = reusable(session, [run.fingerprint for run in runs if run.reason is None], plan) if reuse else {}
    sweep = Sweep(
        id=new_id(),
        name=name,
        notes=notes,
        document=dict(document),
        cells=[dict(cell) for cell in cells],
        reused=[
            {"experiment": known[run.fingerprint][0], "cell": run.cell, "seed": run.seed}
            for run in runs
            if run.fingerprint in known
        ],
        webhook=webhook,
        created_at=read_clock(session),
    )
    session.add(sweep)
    session.flush()
    made = experiments.write_rows(
        session,
        [
            {
                "spec": run.spec,
                "fingerprint": run.fingerprint,
                "sweep": sweep.id,
                "cell": dict(cells[run.cell]),
                **columns,
                **_not_applicable(run, sweep.created_at),
            }
            for run in runs
            if run.fingerprint not in known
        ],
    )
    _raise_priority(session, [key for key, state in known.values() if not state.is_finished()], plan.priority)
    changes.number_new(session, made)
    return sweep


def _raise_priority(session: Session, ids: Sequence[str], priority: int) -> None:
    """Reused experiments wait no longer than the sweep's own would."""
    rows = [row for row in _locked(session, ids) if row.priority < priority and not row.state.is_finished()]
    for row in rows:
        row.priority = priority
        changes.touch(session, row)


def _locked(session: Session, ids: Iterable[str]) -> list[Locked]:
    """The rows as they are now, locked until the commit; by id, so that two cannot wait for each other."""
    ordered, found = sorted(ids), list[Locked]()
    for chunk in in_chunks(ordered):
        query = experiments.visible().where(col(Experiment.id).in_(chunk))
        found += lock(session, query.order_by(col(Experiment.id)))
    return found


def _not_applicable(run: NewRun, time: float) -> dict[str, Any]:
    if run.reason is None:
        return {}
    return {"state": State.NOT_APPLICABLE, "error_reason": run.reason, "finished_at": time}


def get(session: Session, sweep: str) -> Sweep | None:
    """None: there is no such sweep, or it was deleted."""
    return session.scalars(visible().where(col(Sweep.id) == sweep)).first()


def page(session: Session, *, limit: int = 50, before: str | None = None) -> tuple[list[Sweep], str | None]:
    """Newest first; the second value is the `before` of the next page."""
    query = visible().order_by(col(Sweep.id).desc()).limit(limit + 1)
    if before is not None:
        query = query.where(col(Sweep.id) < before)
    rows = list(session.scalars(query))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def members(session: Session, sweep: Sweep) -> list[Member]:
    """Who stands where: a retry takes the place of what it repeats, an own experiment that of a reused one."""
    numbers = {_text(cell): number for number, cell in enumerate(sweep.cells)}
    found: dict[tuple[int, int], Member] = {}
    taken = {entry["experiment"]: (entry["cell"], entry["seed"]) for entry in reused(sweep)}
    for row in _rows(session, list(taken)):
        cell, seed = taken[row.id]
        found[cell, seed] = Member(cell, seed, row, False)
    query = experiments.visible().where(col(Experiment.sweep) == sweep.id).order_by(col(Experiment.id))
    for row in session.scalars(query):
        number = numbers.get(_text(row.cell or {}))
        if number is not None:
            seed = sound_spec(row.spec)["seed"]
            found[number, seed] = Member(number, seed, row, True)
    return [found[key] for key in sorted(found)]


def reused(sweep: Sweep) -> list[dict[str, Any]]:
    """Those entries that can be understood."""
    return [
        entry
        for entry in sweep.reused
        if isinstance(entry.get("experiment"), str)
        and isinstance(entry.get("seed"), int)
        and isinstance(cell := entry.get("cell"), int)
        and 0 <= cell < len(sweep.cells)
    ]


def first(session: Session, sweep: Sweep) -> str:
    """The id of one of its experiments; there is always one."""
    ids = experiments.with_deleted(col(Experiment.id)).where(col(Experiment.sweep) == sweep.id)
    own: str | None = session.scalars(ids.order_by(col(Experiment.id)).limit(1)).first()
    return own or str(sweep.reused[0]["experiment"])


def deleted(session: Session, sweep: Sweep) -> dict[tuple[int, int], str]:
    """Reused experiments that were deleted since, by cell and seed, unless one of the sweep's own took the place."""
    there = {(member.cell, member.seed) for member in members(session, sweep)}
    places = {(entry["cell"], entry["seed"]): entry["experiment"] for entry in reused(sweep)}
    return {place: experiment for place, experiment in places.items() if place not in there}


def _rows(session: Session, ids: Sequence[str]) -> Iterable[Experiment]:
    for chunk in in_chunks(ids):
        yield from session.scalars(experiments.visible().where(col(Experiment.id).in_(chunk)))


def _text(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def _lock(session: Session, sweep: Sweep) -> set[str]:
    """Lock the sweep and all its experiments until the commit; returns their ids.

    Every row before the first change: a change takes a number from the counter, and whoever then waits for a row
    may wait for a worker that waits for the counter. The sweep comes first, so that two requests about it come one
    after the other.
    """
    session.execute(visible().where(col(Sweep.id) == sweep.id).with_for_update())
    return {row.id for row in _locked(session, [member.experiment.id for member in members(session, sweep)])}


def for_each(session: Session, sweep: Sweep, change: Callable[[Session, str], object]) -> int:
    """Do the same with all its own experiments that have not ended; reused ones are somebody else's."""
    locked = _lock(session, sweep)
    changed = 0
    for member in members(session, sweep):
        row = member.experiment
        if not member.own or row.id not in locked or row.state.is_finished():
            continue
        try:
            change(session, row.id)
        except AlreadyFinished:
            continue  # it is being cancelled
        changed += 1
    return changed


def retry(session: Session, sweep: Sweep, cell: int | None = None, anew: Sequence[NewRun] = ()) -> list[str]:
    """New experiments in the place of those, of all or of one cell, that failed, diverged or were cancelled.

    Of a reused one that was deleted nothing is left to repeat; `anew` says what the document asks for in its place.
    NotUnderstood: one of them could not run.
    """
    _lock(session, sweep)
    own_plan = _plan(sweep).columns()
    again = [
        member
        for member in members(session, sweep)
        if member.experiment.state in RETRIED and (cell is None or member.cell == cell)
    ]
    for member in again:
        experiments.stored_spec(member.experiment)
    entries = [
        {
            "sweep": sweep.id,
            "cell": sweep.cells[member.cell],
            "retry_of": member.experiment.id,
            "spec": experiments.full_spec(member.experiment),
            "fingerprint": member.experiment.fingerprint,
            **{name: getattr(member.experiment, name) if member.own else own_plan[name] for name in _KEPT},
        }
        for member in again
    ]
    gone = deleted(session, sweep) if anew else {}
    entries += [
        {
            "sweep": sweep.id,
            "cell": sweep.cells[run.cell],
            "retry_of": gone[run.cell, run.seed],
            "spec": run.spec,
            "fingerprint": run.fingerprint,
            **{name: own_plan[name] for name in _KEPT},
        }
        for run in anew
        if (run.cell, run.seed) in gone and (cell is None or run.cell == cell)
    ]
    made = experiments.submit_many(session, entries)
    if made:
        sweep.notified_at = None
        session.flush()
    return made


def _plan(sweep: Sweep) -> Plan:
    """What the document says about all its experiments."""
    return Plan.model_validate({name: sweep.document[name] for name in Plan.model_fields if name in sweep.document})


def mark_deleted(session: Session, sweep: Sweep) -> None:
    """Hide the sweep; its experiments stay."""
    if any(not member.experiment.state.is_finished() for member in members(session, sweep) if member.own):
        raise NotEnded(sweep.id)
    sweep.deleted_at = read_clock(session)
    session.flush()
