"""The queue: which experiments may run now, in which order, and the claim that takes the first of them."""

from sqlalchemy import ColumnElement, and_, case, func, or_
from sqlmodel import Session, col

from app.store import changes, claims
from app.store.claims import USUAL_LEASE_SECONDS, Claim
from app.store.clock import minute_of_day, now
from app.store.experiments import checkpoint_of, visible
from app.store.states import State
from app.store.tables import Experiment

MAX_DEATHS = 5
"""Worker deaths without a new round after which an experiment fails."""


def position(session: Session, row: Experiment) -> int | None:
    """How many are taken before it, by priority and place; None: it does not wait."""
    if row.state is not State.QUEUED:
        return None
    before = or_(
        col(Experiment.priority) > row.priority,
        and_(col(Experiment.priority) == row.priority, col(Experiment.place) < row.place),
    )
    query = visible(func.count()).where(col(Experiment.state) == State.QUEUED, before)
    return int(session.execute(query).scalar_one())


def in_window() -> ColumnElement[bool]:
    """The experiment may run at this minute of the day; a window may lead over midnight."""
    begin, end, minute = col(Experiment.window_from), col(Experiment.window_to), minute_of_day()
    after_begin, before_end = minute >= begin, minute < end
    return or_(
        begin.is_(None),
        and_(begin < end, after_begin, before_end),
        and_(begin > end, or_(after_begin, before_end)),
    )


def left_behind(lease_seconds: float) -> ColumnElement[bool]:
    """Its worker stopped renewing its lease."""
    return and_(col(Experiment.state) == State.RUNNING, claims.lease_is_over(Experiment, lease_seconds))


def _due(lease_seconds: float) -> ColumnElement[bool]:
    """Queued and its time has come, or left behind by a worker that stopped renewing its lease."""
    waiting = and_(col(Experiment.state) == State.QUEUED, col(Experiment.start_after) <= now())
    orphaned = and_(
        left_behind(lease_seconds),
        col(Experiment.pause).is_(False),
        col(Experiment.deaths) < MAX_DEATHS - 1,
    )
    return and_(col(Experiment.cancel).is_(False), or_(waiting, orphaned), in_window())


def due(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> int:
    """How many experiments a worker could claim now."""
    return claims.count(session, Experiment, _due(lease_seconds))


def claim(session: Session, owner: str, lease_seconds: float) -> Claim | None:
    """Take the first due experiment; None when there is no work."""
    taken = claims.take(
        session,
        Experiment,
        _due(lease_seconds),
        (col(Experiment.priority).desc(), col(Experiment.place)),
        owner,
        lease_seconds,
        state=State.RUNNING,
        deaths=col(Experiment.deaths) + case((col(Experiment.state) == State.RUNNING, 1), else_=0),
        started_at=func.coalesce(col(Experiment.started_at), now()),
    )
    if taken is None:
        return None
    [row] = claims.lock(session, visible().where(col(Experiment.id) == taken))
    changes.touch(session, row)
    return Claim(
        row.id,
        row.fence,
        owner,
        row.spec,
        row.next_round,
        checkpoint_of(row),
        has_stop_rule=row.stop is not None,
        continues=row.continues,
    )


def running(session: Session, owner: str) -> int:
    """How many experiments this worker holds."""
    query = visible(func.count()).where(
        col(Experiment.owner) == owner, col(Experiment.state).in_([State.RUNNING, State.CANCELLING])
    )
    return int(session.execute(query).scalar_one())
