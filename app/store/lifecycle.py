"""The life of an experiment: every change of its state, each checked against the fencing token of who makes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col

from app.store import changes, claims
from app.store.claims import Claim, Locked, lock_one
from app.store.clock import read_clock
from app.store.experiments import visible, with_deleted
from app.store.queue import in_window
from app.store.states import AlreadyFinished, State
from app.store.tables import Experiment

ASKED = "asked"
"""The hold of an experiment that somebody paused by hand."""


def locked(session: Session, experiment: str) -> Locked | None:
    """None: there is no such experiment, or it was deleted."""
    return lock_one(session, visible().where(col(Experiment.id) == experiment))


def locked_with_deleted(session: Session, experiment: str) -> Locked | None:
    return lock_one(session, with_deleted().where(col(Experiment.id) == experiment))


@dataclass(frozen=True)
class Standing:
    """What a worker must know about its experiment between two batches."""

    cancel: bool
    pause: bool = False
    in_window: bool = True


def standing(session: Session, claim: Claim) -> Standing | None:
    """None: the claim is lost, and its holder must stop."""
    query = visible(col(Experiment.cancel), col(Experiment.pause), in_window()).where(*_held(claim))
    found = session.execute(query).first()
    return None if found is None else Standing(*map(bool, found))


def renew(session: Session, claim: Claim, lease_seconds: float) -> Standing | None:
    """Prolong the lease; None: the claim is lost."""
    looked_at = (col(Experiment.cancel), col(Experiment.pause), in_window())
    found = claims.renew(session, Experiment, _held(claim), lease_seconds, *looked_at)
    return None if found is None else Standing(*map(bool, found))


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Experiment.id) == claim.experiment,
        col(Experiment.fence) == claim.fence,
        col(Experiment.state).in_([State.RUNNING, State.CANCELLING]),
    )


def held(session: Session, claim: Claim) -> Locked | None:
    """The row, locked until the commit, if the claim still holds."""
    return lock_one(session, visible().where(*_held(claim)))


def begin(
    session: Session,
    claim: Claim,
    partition_fingerprint: str,
    environment: Mapping[str, Any],
    majority_share: float | None = None,
) -> bool:
    """Note what the engine found before the first round; False: the claim is lost.

    A run taken over in another environment goes on, but its recomputed rounds may then differ without being wrong.
    """
    row = held(session, claim)
    if row is None:
        return False
    here = dict(environment)
    if row.environment is None:
        row.environment = here
    elif row.environment != here:
        row.mixed_environment = True
    row.partition_fingerprint, row.majority_share = partition_fingerprint, majority_share
    changes.touch(session, row)
    return True


def fail(session: Session, claim: Claim, reason: str, detail: str | None = None) -> bool:
    return _end(session, claim, State.FAILED, reason, detail)


def diverge(session: Session, claim: Claim, reason: str) -> bool:
    return _end(session, claim, State.DIVERGED, reason)


def obey_cancel(session: Session, claim: Claim) -> bool:
    return _end(session, claim, State.CANCELLED)


def release(session: Session, claim: Claim) -> bool:
    """Give the experiment back: to the queue, or paused where that was asked; False: the claim is lost."""
    row = held(session, claim)
    if row is None:
        return False
    give_back(session, row)
    return True


def hold(session: Session, claim: Claim, reason: str) -> bool:
    """Give the experiment back as paused, with the reason; False: the claim is lost."""
    row = held(session, claim)
    if row is None:
        return False
    row.pause, row.hold = True, reason
    give_back(session, row)
    return True


def give_back(session: Session, row: Locked) -> None:
    """A cancel that came first is obeyed instead."""
    if row.cancel:
        finish(session, row, State.CANCELLED)
        return
    if row.pause:
        move(row, State.PAUSED)
        row.pause = False
        row.hold = row.hold or ASKED
    else:
        move(row, State.QUEUED)
    row.owner = row.lease = None
    changes.touch(session, row)


def _end(session: Session, claim: Claim, state: State, reason: str | None = None, detail: str | None = None) -> bool:
    row = held(session, claim)
    if row is None:
        return False
    finish(session, row, state, reason, detail)
    return True


def finish(session: Session, row: Locked, state: State, reason: str | None = None, detail: str | None = None) -> None:
    """A cancelling experiment ends cancelled, whatever else happened meanwhile: there is exactly one end."""
    if row.state is State.CANCELLING:
        state = State.CANCELLED
    elif state is State.CANCELLED and row.state is State.RUNNING:
        move(row, State.CANCELLING)
    move(row, state)
    if state is not State.CANCELLED:
        row.error_reason, row.error_detail = reason, detail
    row.owner = row.lease = row.hold = None
    row.pause = False
    row.finished_at = read_clock(session)
    changes.touch(session, row)


def cancel(session: Session, experiment: str) -> Locked | None:
    """Queued: cancelled at once. Running: its worker is asked to stop. None: there is no such experiment."""
    row = locked(session, experiment)
    if row is None:
        return None
    if row.state.is_finished():
        raise AlreadyFinished(experiment, row.state)
    if row.state is State.CANCELLING:
        return row
    row.cancel = True
    row.cancel_at = read_clock(session)
    if row.state is State.RUNNING:
        move(row, State.CANCELLING)
        row.pause, row.hold = False, None
        changes.touch(session, row)
        return row
    if row.state is State.PAUSED:
        move(row, State.QUEUED)
    finish(session, row, State.CANCELLED)
    return row


def move(row: Locked, state: State) -> None:
    """The only way to another state."""
    if not row.state.may_become(state):
        raise ValueError(f"an experiment cannot go from {row.state.value} to {state.value}")
    row.state = state
