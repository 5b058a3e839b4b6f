"""Messages to webhooks: written down when something has happened, kept until they arrived or were given up."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, not_, or_, select
from sqlmodel import Session, col

from app.store import experiments, progress, sweeps
from app.store.clock import now, read_clock
from app.store.ids import new_id
from app.store.states import BAD, State
from app.store.tables import Delivery, Experiment, Sweep

WAITS = (10.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds after each failed attempt; after the last one the message is given up."""
NEWEST = 50
"""Messages that a sweep shows."""
USUAL_EVENTS = ("sweep.finished", "sweep.failed", "sweep.cancelled")
"""What a webhook is told that names no events."""


def write_down(session: Session) -> list[str]:
    """Messages about sweeps that have ended, and about their failed experiments; returns the new ones' ids."""
    query = (
        sweeps.visible()
        .where(
            col(Sweep.webhook).is_not(None),
            col(Sweep.notified_at).is_(None),
            # of one that goes on without a failure there is nothing to tell, however many of them there are
            or_(not_(_has_own([state for state in State if not state.is_finished()])), _has_own(BAD)),
        )
        .order_by(col(Sweep.id))
        .with_for_update(skip_locked=True)
    )
    waiting = list(session.scalars(query))
    made: list[str] = []
    stands = progress.of_sweeps(session, waiting)
    for sweep in waiting:
        stand = stands[sweep.id]
        wanted = sweep.document["webhook"].get("events", USUAL_EVENTS)
        if "experiment.failed" in wanted:
            made += [_message(session, sweep, "experiment.failed", row) for row in _failed(session, sweep.id)]
        if stand.has_ended:
            sweep.notified_at = read_clock(session)
            event = f"sweep.{stand.state}"
            if event in wanted:
                made.append(_message(session, sweep, event, None, counts=stand.counts))
    session.flush()
    return made


def _has_own(states: Sequence[State]) -> ColumnElement[bool]:
    """An experiment of the sweep is in one of the states."""
    own = experiments.visible(col(Experiment.id)).where(col(Experiment.sweep) == col(Sweep.id))
    return own.where(col(Experiment.state).in_(states)).exists()


def _failed(session: Session, sweep: str) -> Sequence[Experiment]:
    """Failed experiments of the sweep that no message tells of yet."""
    told = select(col(Delivery.experiment)).where(col(Delivery.sweep) == sweep, col(Delivery.experiment).is_not(None))
    query = experiments.visible().where(
        col(Experiment.sweep) == sweep,
        col(Experiment.state).in_(BAD),
        col(Experiment.id).not_in(told),
    )
    return list(session.scalars(query))


def _message(session: Session, sweep: Sweep, event: str, experiment: Experiment | None, **more: Any) -> str:
    assert sweep.webhook is not None
    body: dict[str, Any] = {"event": event, "sweep": {"id": sweep.id, "name": sweep.name}, **more}
    if experiment is not None:
        body["experiment"] = {
            "id": experiment.id,
            "name": experiment.name,
            "state": experiment.state.value,
            "reason": experiment.error_reason,
        }
    time = read_clock(session)
    row = Delivery(
        id=new_id(),
        sweep=sweep.id,
        experiment=None if experiment is None else experiment.id,
        event=event,
        url=sweep.webhook,
        body=body,
        next_try=time,
        created_at=time,
    )
    session.add(row)
    session.flush()
    return row.id


def due(session: Session, limit: int = 10) -> list[Delivery]:
    """What is to be sent now, longest waiting first."""
    query = select(Delivery).where(col(Delivery.next_try) <= now()).order_by(col(Delivery.next_try)).limit(limit)
    return list(session.scalars(query))


def of_sweep(session: Session, sweep: str) -> list[Delivery]:
    """The newest first."""
    query = select(Delivery).where(col(Delivery.sweep) == sweep).order_by(col(Delivery.id).desc()).limit(NEWEST)
    return list(session.scalars(query))


def note(session: Session, delivery: str, error: str | None) -> None:
    """How an attempt ended; None: it arrived."""
    row = session.get(Delivery, delivery)
    if row is None or row.next_try is None:
        return
    time = read_clock(session)
    row.attempts += 1
    row.error = error
    if error is None:
        row.delivered_at, row.next_try = time, None
    else:
        row.next_try = time + WAITS[row.attempts - 1] if row.attempts <= len(WAITS) else None
    session.flush()
