"""Experiments: submit, look up, claim, and every change of state, each checked against the fencing token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, case, cast, func, insert, inspect, or_, select, update
from sqlmodel import Session, col

from app.store import sequence
from app.store.clock import now, read_clock
from app.store.ids import new_id
from app.store.states import State
from app.store.tables import Experiment

MAX_DEATHS = 5
"""So many workers may die on an experiment without a new round before it fails."""


@dataclass(frozen=True)
class Claim:
    """The right to work on an experiment, as long as no other claim has a greater fence."""

    experiment: str
    fence: int
    owner: str
    spec: dict[str, Any]
    next_round: int
    checkpoint: tuple[str, str] | None = None  # manifest and sha256


class AlreadyFinished(Exception):
    """The experiment has ended; nothing can be changed any more."""

    def __init__(self, experiment: str, state: State) -> None:
        super().__init__(f"experiment {experiment} is already {state.value}, so it cannot be cancelled")
        self.state = state


def submit(
    session: Session, spec: Mapping[str, Any], fingerprint: str, *, priority: int = 0, start_after: float = 0.0
) -> Experiment:
    """A new row, queued. `spec` is the complete spec as plain JSON values."""
    place = sequence.take(session)
    row = Experiment(
        id=new_id(),
        name=spec["name"],
        tags=list(spec["tags"]),
        notes=spec["notes"],
        algorithm=spec["algorithm"]["name"],
        dataset=spec["dataset"]["name"],
        spec=dict(spec),
        fingerprint=fingerprint,
        created_at=read_clock(session),
        priority=priority,
        place=place,
        start_after=start_after,
        rounds=spec["rounds"],
        totals={"bytes_up": 0, "bytes_down": 0, "client_flops": 0},
        seq=place,
        state_seq=place,
    )
    session.add(row)
    session.flush()
    return row


def submit_many(session: Session, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Many rows in one statement and in this order: each entry has spec, fingerprint, and other columns by name."""
    if not entries:
        return []
    time, first = read_clock(session), sequence.take(session, len(entries))
    blank = Experiment(
        id="",
        algorithm="",
        dataset="",
        spec={},
        fingerprint="",
        created_at=time,
        place=0,
        rounds=0,
        totals={"bytes_up": 0, "bytes_down": 0, "client_flops": 0},
    )
    usual = {column.key: getattr(blank, column.key) for column in inspect(Experiment).columns}
    rows = []
    for number, entry in enumerate(entries, first):
        spec = entry["spec"]
        own = {name: spec[name] for name in ("name", "tags", "notes", "rounds")}
        own |= {"algorithm": spec["algorithm"]["name"], "dataset": spec["dataset"]["name"]}
        own |= {"id": new_id(), "place": number, "seq": number, "state_seq": number}
        rows.append({**usual, **own, **entry})
    session.execute(insert(Experiment), rows)
    return [row["id"] for row in rows]


def get(session: Session, experiment: str) -> Experiment | None:
    return session.get(Experiment, experiment)


def existing(session: Session, ids: Sequence[str]) -> set[str]:
    """Which of the ids there are."""
    return set(session.scalars(select(col(Experiment.id)).where(col(Experiment.id).in_(ids))))


def some(session: Session, ids: Sequence[str]) -> dict[str, Experiment]:
    """Those of the ids that exist, in their order."""
    found = {row.id: row for row in session.scalars(select(Experiment).where(col(Experiment.id).in_(ids)))}
    return {key: found[key] for key in ids if key in found}


def page(
    session: Session, *, state: State | None = None, search: str = "", limit: int = 50, before: str | None = None
) -> tuple[list[Experiment], str | None]:
    """Newest first; the second value is the `before` of the next page."""
    query = select(Experiment).order_by(col(Experiment.id).desc()).limit(limit + 1)
    if state is not None:
        query = query.where(col(Experiment.state) == state)
    if before is not None:
        query = query.where(col(Experiment.id) < before)
    for word in search.split():
        query = query.where(mentions(word))
    rows = list(session.scalars(query))
    more = len(rows) > limit
    rows = rows[:limit]
    return rows, rows[-1].id if more else None


def mentions(word: str) -> ColumnElement[bool]:
    """Name, method, data set, id, fingerprint or a tag contains the word."""
    texts = (Experiment.name, Experiment.algorithm, Experiment.dataset, Experiment.id, Experiment.fingerprint)
    inside = [col(text).icontains(word, autoescape=True) for text in texts]
    return or_(*inside, cast(col(Experiment.tags), Text).icontains(word, autoescape=True))


def count(session: Session) -> int:
    return int(session.execute(select(func.count()).select_from(Experiment)).scalar_one())


def counts(session: Session) -> dict[State, int]:
    """How many experiments are in each state."""
    rows = session.execute(select(col(Experiment.state), func.count()).group_by(col(Experiment.state)))
    return dict(rows.all())


def counts_by_algorithm(session: Session) -> dict[str, int]:
    """How many experiments each method has."""
    rows = session.execute(select(col(Experiment.algorithm), func.count()).group_by(col(Experiment.algorithm)))
    return dict(rows.all())


def _due() -> ColumnElement[bool]:
    """Queued and its time has come, or left behind by a worker that stopped renewing its lease."""
    waiting = and_(col(Experiment.state) == State.QUEUED, col(Experiment.start_after) <= now())
    orphaned = and_(
        col(Experiment.state) == State.RUNNING,
        col(Experiment.lease) < now(),
        col(Experiment.deaths) < MAX_DEATHS - 1,
    )
    return and_(col(Experiment.cancel).is_(False), or_(waiting, orphaned))


def due(session: Session) -> int:
    """How many experiments a worker could claim now."""
    return int(session.execute(select(func.count()).select_from(Experiment).where(_due())).scalar_one())


def claim(session: Session, owner: str, lease_seconds: float) -> Claim | None:
    """Take the first due experiment, in one statement; None when there is no work."""
    first = (
        select(col(Experiment.id))
        .where(_due())
        .order_by(col(Experiment.priority).desc(), col(Experiment.place))
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    died = case((col(Experiment.state) == State.RUNNING, 1), else_=0)
    statement = (
        update(Experiment)
        .where(col(Experiment.id) == first)
        .values(
            state=State.RUNNING,
            fence=Experiment.fence + 1,
            owner=owner,
            lease=now() + lease_seconds,
            attempts=Experiment.attempts + 1,
            deaths=col(Experiment.deaths) + died,
            started_at=func.coalesce(col(Experiment.started_at), now()),
        )
        .returning(
            col(Experiment.id),
            col(Experiment.fence),
            col(Experiment.spec),
            col(Experiment.next_round),
            col(Experiment.checkpoint),
            col(Experiment.checkpoint_sha256),
        )
        .execution_options(synchronize_session=False)
    )
    found = session.execute(statement).first()
    if found is None:
        return None
    _stamp(session, found.id)
    checkpoint = None if found.checkpoint is None else (found.checkpoint, found.checkpoint_sha256)
    return Claim(found.id, found.fence, owner, found.spec, found.next_round, checkpoint)


@dataclass(frozen=True)
class Standing:
    """What a worker must know about its experiment between two batches."""

    cancel: bool


def standing(session: Session, claim: Claim) -> Standing | None:
    """None: the claim is lost, and its holder must stop."""
    query = select(col(Experiment.cancel)).where(*_held(claim))
    found = session.execute(query).first()
    return None if found is None else Standing(found.cancel)


def renew(session: Session, claim: Claim, lease_seconds: float) -> Standing | None:
    """Prolong the lease; None: the claim is lost."""
    statement = (
        update(Experiment)
        .where(*_held(claim))
        .values(lease=now() + lease_seconds)
        .returning(col(Experiment.cancel))
        .execution_options(synchronize_session=False)
    )
    found = session.execute(statement).first()
    return None if found is None else Standing(found.cancel)


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Experiment.id) == claim.experiment,
        col(Experiment.fence) == claim.fence,
        col(Experiment.state).in_([State.RUNNING, State.CANCELLING]),
    )


def held(session: Session, claim: Claim) -> Experiment | None:
    """The row, locked until the commit, if the claim still holds."""
    query = select(Experiment).where(*_held(claim)).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).first()


def begin(session: Session, claim: Claim, partition_fingerprint: str, environment: Mapping[str, Any]) -> bool:
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
    row.partition_fingerprint = partition_fingerprint
    _touch(session, row)
    return True


def fail(session: Session, claim: Claim, reason: str, detail: str | None = None) -> bool:
    return _end(session, claim, State.FAILED, reason, detail)


def diverge(session: Session, claim: Claim, reason: str) -> bool:
    return _end(session, claim, State.DIVERGED, reason)


def obey_cancel(session: Session, claim: Claim) -> bool:
    return _end(session, claim, State.CANCELLED)


def release(session: Session, claim: Claim) -> bool:
    """Give the experiment back to the queue; False: the claim is lost."""
    row = held(session, claim)
    if row is None:
        return False
    if row.cancel:
        _finish(session, row, State.CANCELLED)
        return True
    _move(row, State.QUEUED)
    row.owner = row.lease = None
    _touch(session, row)
    return True


def _end(session: Session, claim: Claim, state: State, reason: str | None = None, detail: str | None = None) -> bool:
    row = held(session, claim)
    if row is None:
        return False
    _finish(session, row, state, reason, detail)
    return True


def _finish(
    session: Session, row: Experiment, state: State, reason: str | None = None, detail: str | None = None
) -> None:
    """A cancelling experiment ends cancelled, whatever else happened meanwhile: there is exactly one end."""
    if row.state is State.CANCELLING:
        state = State.CANCELLED
    elif state is State.CANCELLED and row.state is State.RUNNING:
        _move(row, State.CANCELLING)
    _move(row, state)
    if state is not State.CANCELLED:
        row.error_reason, row.error_detail = reason, detail
    row.owner = row.lease = None
    row.finished_at = read_clock(session)
    _touch(session, row)


def finish_locked(session: Session, row: Experiment, state: State, reason: str | None = None) -> None:
    """End an experiment whose row this transaction has locked by `held`."""
    _finish(session, row, state, reason)


def cancel(session: Session, experiment: str) -> Experiment | None:
    """Queued: cancelled at once. Running: its worker is asked to stop. None: there is no such experiment."""
    query = select(Experiment).where(col(Experiment.id) == experiment).with_for_update()
    row = session.scalars(query).first()
    if row is None:
        return None
    if row.state.is_finished():
        raise AlreadyFinished(experiment, row.state)
    if row.state is State.CANCELLING:
        return row
    row.cancel = True
    row.cancel_at = read_clock(session)
    if row.state is State.RUNNING:
        _move(row, State.CANCELLING)
        _touch(session, row)
        return row
    if row.state is State.PAUSED:
        _move(row, State.QUEUED)
    _finish(session, row, State.CANCELLED)
    return row


def expire_cancelling(session: Session, after_seconds: float) -> list[str]:
    """Cancelled for good: the owner is dead, or did not obey in time; the new fence shuts it out."""
    overdue = or_(col(Experiment.lease) < now(), col(Experiment.cancel_at) < now() - after_seconds)
    query = (
        select(Experiment).where(col(Experiment.state) == State.CANCELLING, overdue).with_for_update(skip_locked=True)
    )
    rows = list(session.scalars(query))
    for row in rows:
        row.fence += 1
        _finish(session, row, State.CANCELLED)
    return [row.id for row in rows]


def fail_hopeless(session: Session) -> list[str]:
    """Fail what has killed its workers too often without a new round."""
    query = (
        select(Experiment)
        .where(
            col(Experiment.state) == State.RUNNING,
            col(Experiment.lease) < now(),
            col(Experiment.deaths) >= MAX_DEATHS - 1,
        )
        .with_for_update(skip_locked=True)
    )
    rows = list(session.scalars(query))
    for row in rows:
        row.fence += 1
        row.deaths += 1
        reason = (
            f"{row.deaths} workers died on it without completing round {row.next_round}, likely out of memory; "
            "try a smaller batch_size or smaller models"
        )
        _finish(session, row, State.FAILED, reason)
    return [row.id for row in rows]


def expire_leases(session: Session, owner: str) -> int:
    """The owner is known to be dead: let its experiments be claimed now. A wrong guess costs time only."""
    statement = (
        update(Experiment)
        .where(
            col(Experiment.owner) == owner,
            col(Experiment.state).in_([State.RUNNING, State.CANCELLING]),
            col(Experiment.lease) > now(),
        )
        .values(lease=now())
        .returning(col(Experiment.id))
        .execution_options(synchronize_session=False)
    )
    return len(session.execute(statement).all())


def _move(row: Experiment, state: State) -> None:
    if not row.state.may_become(state):
        raise ValueError(f"an experiment cannot go from {row.state.value} to {state.value}")
    row.state = state


def _touch(session: Session, row: Experiment) -> None:
    """Number the change; the counter comes last, see sequence.take."""
    session.flush()
    row.seq = row.state_seq = sequence.take(session)
    session.flush()


def touch(session: Session, row: Experiment) -> None:
    """Number a change that is not a round."""
    _touch(session, row)


def _stamp(session: Session, experiment: str) -> None:
    number = sequence.take(session)
    session.execute(
        update(Experiment)
        .where(col(Experiment.id) == experiment)
        .values(seq=number, state_seq=number)
        .execution_options(synchronize_session=False)
    )


def best_by_dataset(session: Session, algorithm: str) -> list[Experiment]:
    """The experiment of a method with the highest accuracy on each data set, best known sets first."""
    highest = (
        select(col(Experiment.dataset), func.max(col(Experiment.best_accuracy)).label("best"))
        .where(col(Experiment.algorithm) == algorithm, col(Experiment.best_accuracy).is_not(None))
        .group_by(col(Experiment.dataset))
        .subquery()
    )
    query = (
        select(Experiment)
        .join(
            highest,
            and_(col(Experiment.dataset) == highest.c.dataset, col(Experiment.best_accuracy) == highest.c.best),
        )
        .where(col(Experiment.algorithm) == algorithm)
        .order_by(col(Experiment.dataset), col(Experiment.id))
    )
    first: dict[str, Experiment] = {}
    for row in session.scalars(query):
        first.setdefault(row.dataset, row)
    return list(first.values())
