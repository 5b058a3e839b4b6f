"""What people ask of an experiment: pause, resume, another place or name, another try, delete and undelete."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, not_
from sqlmodel import Session, col

from app.store import changes, claims, continuing, experiments, lifecycle
from app.store.claims import Locked
from app.store.clock import now, read_clock
from app.store.lifecycle import ASKED
from app.store.states import RETRIED, AlreadyFinished, NotNow, State
from app.store.tables import Artifact, Experiment, IdempotencyKey, LogLine, Round

KEEP_DELETED_SECONDS = 86_400.0
"""How long a deleted experiment can be restored."""


def _living(session: Session, experiment: str, what: str) -> Locked | None:
    row = lifecycle.locked(session, experiment)
    if row is not None and (row.state.is_finished() or row.state is State.CANCELLING):
        raise AlreadyFinished(experiment, row.state, what)
    return row


def pause(session: Session, experiment: str, reason: str = ASKED) -> Locked | None:
    """Queued: paused at once. Running: its worker is asked to give it back after the present round."""
    row = _living(session, experiment, "paused")
    if row is None:
        return None
    row.hold = reason  # also of one that is paused already: it then waits for a person
    if row.state is State.RUNNING:
        row.pause = True
    elif row.state is State.QUEUED:
        lifecycle.move(row, State.PAUSED)
    changes.touch(session, row)
    return row


def resume(session: Session, experiment: str) -> Locked | None:
    """Back to the queue; one that is about to be paused just goes on."""
    row = _living(session, experiment, "resumed")
    if row is None:
        return None
    if row.state is State.PAUSED:
        lifecycle.move(row, State.QUEUED)
    row.pause, row.hold = False, None
    changes.touch(session, row)
    return row


def resume_held(session: Session, prefix: str) -> list[str]:
    """Back to the queue with all that are paused for a reason that has passed."""
    query = experiments.visible().where(
        col(Experiment.state) == State.PAUSED, col(Experiment.hold).startswith(prefix, autoescape=True)
    )
    rows = claims.lock(session, query, skip=True)
    for row in rows:
        lifecycle.move(row, State.QUEUED)
        row.hold = None
        changes.touch(session, row)
    return [row.id for row in rows]


def change_plan(session: Session, experiment: str, columns: dict[str, Any]) -> Locked | None:
    """Other values for columns of app.store.plan.Plan."""
    row = _living(session, experiment, "moved in the queue")
    if row is None:
        return None
    for name, value in columns.items():
        setattr(row, name, value)
    changes.touch(session, row)
    return row


def annotate(session: Session, experiment: str, given: Mapping[str, Any]) -> Locked | None:
    """Another name, tags or notes. They are no part of the fingerprint, so they may change at any time."""
    row = lifecycle.locked(session, experiment)
    if row is None:
        return None
    for name in experiments.ANNOTATIONS:
        if name in given:
            setattr(row, name, given[name])
    changes.touch(session, row)
    return row


def retry(session: Session, experiment: str) -> Experiment | None:
    """A new experiment with the same spec, from the first round; the old one stays as it ended."""
    row = lifecycle.locked(session, experiment)
    if row is None:
        return None
    if row.state not in RETRIED:
        raise NotNow(
            f"experiment {experiment} is {row.state.value}; "
            f"only one that is {', '.join(RETRIED[:-1])} or {RETRIED[-1]} can be tried again",
            row.state,
        )
    query = experiments.visible(col(Experiment.id)).where(col(Experiment.retry_of) == experiment)
    if (other := session.scalars(query).first()) is not None:
        raise NotNow(f"experiment {experiment} was tried again already, as {other}; retry that one", row.state)
    return experiments.submit_again(session, row)


def mark_deleted(session: Session, experiment: str) -> Locked | None:
    """Hide an ended experiment; a day later its rounds and files are removed."""
    row = lifecycle.locked(session, experiment)
    if row is None:
        return None
    if not row.state.is_finished():
        raise NotNow(f"experiment {experiment} is {row.state.value}; cancel it before deleting it", row.state)
    row.deleted_at = read_clock(session)
    changes.touch(session, row)
    return row


def undelete(session: Session, experiment: str) -> Locked | None:
    """Show a deleted experiment again; None: there is none, or its files are being removed."""
    row = lifecycle.locked_with_deleted(session, experiment)
    if row is None:
        return None
    if row.deleted_at is not None:
        if not restorable(session, row):
            return None
        row.deleted_at = None
        changes.touch(session, row)
    return row


def restorable(session: Session, row: Experiment) -> bool:
    """It is deleted, and can still be restored."""
    return row.deleted_at is not None and row.deleted_at >= read_clock(session) - KEEP_DELETED_SECONDS


def removable(session: Session) -> list[str]:
    """Deleted long enough ago; nobody can have them back."""
    return list(session.scalars(experiments.with_deleted(col(Experiment.id)).where(_outlived())))


def remove(session: Session, experiment: str) -> None:
    """The rows of an experiment that is removable, its rounds with it. Remove its files first."""
    row = session.scalars(experiments.with_deleted().where(col(Experiment.id) == experiment, _outlived())).first()
    if row is None:
        return
    for table in (LogLine, Artifact, IdempotencyKey, Round):
        session.execute(delete(table).where(col(table.experiment) == experiment))
    session.delete(row)


def _outlived() -> ColumnElement[bool]:
    """And no other experiment still waits to go on after its checkpoint."""
    return and_(col(Experiment.deleted_at) < now() - KEEP_DELETED_SECONDS, not_(continuing.needed()))
