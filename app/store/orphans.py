"""Orphans: experiments whose worker is dead or does not obey are ended, given back, or made free for another one."""

from sqlalchemy import not_, or_, update
from sqlmodel import Session, col

from app.store import claims
from app.store.claims import USUAL_LEASE_SECONDS
from app.store.clock import now
from app.store.experiments import visible
from app.store.lifecycle import finish, give_back
from app.store.queue import MAX_DEATHS, in_window, left_behind
from app.store.states import State
from app.store.tables import Experiment

HELD = (State.RUNNING, State.CANCELLING)


def expire_cancelling(session: Session, after_seconds: float, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Cancelled for good: the owner is dead, or did not obey in time; the new fence shuts it out."""
    overdue = or_(claims.lease_is_over(Experiment, lease_seconds), col(Experiment.cancel_at) < now() - after_seconds)
    query = visible().where(col(Experiment.state) == State.CANCELLING, overdue)
    rows = claims.lock(session, query, skip=True)
    for row in rows:
        row.fence += 1
        finish(session, row, State.CANCELLED)
    return [row.id for row in rows]


def fail_hopeless(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Fail what has killed its workers too often without a new round."""
    query = visible().where(
        left_behind(lease_seconds),
        col(Experiment.deaths) >= MAX_DEATHS - 1,
    )
    rows = claims.lock(session, query, skip=True)
    for row in rows:
        row.fence += 1
        row.deaths += 1
        reason = (
            f"{row.deaths} workers died on it without completing round {row.next_round}, likely out of memory; "
            "try a smaller batch_size or smaller models"
        )
        finish(session, row, State.FAILED, reason)
    return [row.id for row in rows]


def settle(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Give back what a dead worker can no longer give back: what was to be paused, and what has left its window."""
    query = visible().where(
        left_behind(lease_seconds),
        col(Experiment.deaths) < MAX_DEATHS - 1,
        or_(col(Experiment.pause).is_(True), not_(in_window())),
    )
    rows = claims.lock(session, query, skip=True)
    for row in rows:
        row.fence += 1
        row.deaths += 1
        give_back(session, row)
    return [row.id for row in rows]


def give_up(session: Session, experiment: str, fence: int) -> bool:
    """The process that held this claim is known to be dead: let another one take it now."""
    statement = (
        update(Experiment)
        .where(
            col(Experiment.id) == experiment,
            col(Experiment.fence) == fence,
            col(Experiment.state).in_(HELD),
            col(Experiment.lease) > now(),
        )
        .values(lease=now())
        .returning(col(Experiment.id))
        .execution_options(synchronize_session=False)
    )
    return session.execute(statement).first() is not None


def unobeyed(session: Session, owner: str) -> dict[str, tuple[int, float]]:
    """Experiments of this worker that were cancelled and still run: the fence, and for how many seconds."""
    query = visible(col(Experiment.id), col(Experiment.fence), now() - col(Experiment.cancel_at)).where(
        col(Experiment.owner) == owner, col(Experiment.state) == State.CANCELLING
    )
    return {key: (fence, seconds) for key, fence, seconds in session.execute(query)}


def expire_leases(session: Session, owner: str) -> int:
    """The owner is known to be dead: let its experiments be claimed now. A wrong guess costs time only."""
    held = (
        col(Experiment.owner) == owner,
        col(Experiment.state).in_(HELD),
        col(Experiment.lease) > now(),
    )
    # by id, like everybody who locks several rows: two in different orders could wait for each other
    first = visible(col(Experiment.id)).where(*held).order_by(col(Experiment.id)).with_for_update(key_share=True)
    statement = (
        update(Experiment)
        .where(col(Experiment.id).in_(first))
        .values(lease=now())
        .returning(col(Experiment.id))
        .execution_options(synchronize_session=False)
    )
    return len(session.execute(statement).all())
