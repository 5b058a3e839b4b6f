"""Experiments: submit, look up, claim, and every change of state, each checked against the fencing token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, func, insert, inspect, not_, or_, select, update
from sqlmodel import Session, col

from app.store import claims, sequence
from app.store.claims import USUAL_LEASE_SECONDS
from app.store.clock import minute_of_day, now, read_clock
from app.store.ids import new_id
from app.store.plan import Plan
from app.store.sound import text_at
from app.store.states import State
from app.store.tables import Experiment

if TYPE_CHECKING:
    from engine.spec.experiment import ExperimentSpec

MAX_DEATHS = 5
"""So many workers may die on an experiment without a new round before it fails."""
CHUNK = 500
"""Values in one IN list."""
ASKED = "asked"
"""The hold of an experiment that somebody paused by hand."""


@overload
def visible() -> Select[Experiment]: ...
@overload
def visible(*columns: Any) -> Select[Any]: ...
def visible(*columns: Any) -> Select[Any]:
    """The start of every query: the experiments that are not deleted, as rows or as these columns of them."""
    return with_deleted(*columns).where(col(Experiment.deleted_at).is_(None))


@overload
def with_deleted() -> Select[Experiment]: ...
@overload
def with_deleted(*columns: Any) -> Select[Any]: ...
def with_deleted(*columns: Any) -> Select[Any]:
    """The start of the few queries that must see deleted experiments; tests/test_architecture.py lists them."""
    return select(*(columns or (Experiment,))).select_from(Experiment)


@dataclass(frozen=True)
class Claim:
    """The right to work on an experiment, as long as no other claim has a greater fence."""

    experiment: str
    fence: int
    owner: str
    spec: dict[str, Any]
    next_round: int
    checkpoint: tuple[str, str] | None = None  # manifest and sha256
    has_stop_rule: bool = False
    continues: str | None = None


class NotNow(Exception):
    """The experiment's state does not allow what was asked."""

    field = "state"
    """What of the experiment stands in the way."""

    def __init__(self, message: str, state: State) -> None:
        super().__init__(message)
        self.state = state


class AlreadyFinished(NotNow):
    """The experiment has ended, or is about to; nothing can be changed any more."""

    def __init__(self, experiment: str, state: State, what: str = "cancelled") -> None:
        super().__init__(f"experiment {experiment} is already {state.value}, so it cannot be {what}", state)


class NotUnderstood(NotNow):
    """Another version stored a spec that this one does not take."""

    field = "spec"

    def __init__(self, row: Experiment, error: Exception) -> None:
        super().__init__(f"this version does not understand the spec of experiment {row.id}: {error}", row.state)


def stored_spec(row: Experiment) -> "ExperimentSpec":
    """NotUnderstood: the spec was taken by another version, or the row is damaged."""
    from engine.spec.experiment import ExperimentSpec  # here: it brings torch, which a look for work does without
    from engine.spec.problems import SpecError

    try:
        return ExperimentSpec.parse(row.spec)
    except SpecError as error:
        raise NotUnderstood(row, error) from None


def submit(
    session: Session,
    spec: Mapping[str, Any],
    fingerprint: str,
    plan: Plan | None = None,
    *,
    sweep: str | None = None,
    cell: Mapping[str, Any] | None = None,
) -> Experiment:
    """A new row, queued. `spec` is the complete spec as plain JSON values."""
    entry = {"spec": spec, "fingerprint": fingerprint, "sweep": sweep, "cell": None if cell is None else dict(cell)}
    return _submit_one(session, {**entry, **(plan or Plan()).columns()})


def submit_again(session: Session, old: Experiment) -> Experiment:
    """The same spec and plan as a new row, from the first round on; NotUnderstood: it could not run."""
    stored_spec(old)
    kept = ("spec", "fingerprint", "priority", "window_from", "window_to", "stop", "sweep", "cell")
    return _submit_one(session, {**{name: getattr(old, name) for name in kept}, "retry_of": old.id})


def _submit_one(session: Session, entry: Mapping[str, Any]) -> Experiment:
    [experiment] = submit_many(session, [entry])
    return get_one(session, experiment)


def submit_many(session: Session, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Many rows in this order: each entry has spec, fingerprint, and other columns by name."""
    ids = write_rows(session, entries)
    number_rows(session, ids)
    return ids


def write_rows(session: Session, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows of `submit_many`, still without numbers: `number_rows` must follow, in the same transaction.

    Whoever has taken a number holds up all other changes until its commit, so it is done when all else is.
    """
    if not entries:
        return []
    blank = Experiment(
        id="",
        algorithm="",
        dataset="",
        spec={},
        fingerprint="",
        created_at=read_clock(session),
        place=0,
        rounds=0,
        totals={"bytes_up": 0, "bytes_down": 0, "client_flops": 0},
    )
    usual = {column.key: getattr(blank, column.key) for column in inspect(Experiment).columns}
    rows = []
    for number, entry in enumerate(entries):
        spec = entry["spec"]
        own = {name: spec[name] for name in ("name", "tags", "notes", "rounds")}
        own |= {"algorithm": spec["algorithm"]["name"], "dataset": spec["dataset"]["name"]}
        own |= {"id": new_id(), "place": number}
        rows.append({**usual, **own, **entry})
    session.execute(insert(Experiment), rows)
    return [row["id"] for row in rows]


def number_rows(session: Session, ids: Sequence[str]) -> None:
    """Their places in the queue and among the changes, in this order."""
    if not ids:
        return
    first = sequence.take(session, len(ids))
    number = first + col(Experiment.place)
    for start in range(0, len(ids), CHUNK):
        chosen = update(Experiment).where(col(Experiment.id).in_(ids[start : start + CHUNK]))
        numbered = chosen.values(place=number, seq=number, state_seq=number)
        session.execute(numbered.execution_options(synchronize_session=False))


def get(session: Session, experiment: str) -> Experiment | None:
    """None: there is no such experiment, or it was deleted."""
    return session.scalars(visible().where(col(Experiment.id) == experiment)).first()


def get_one(session: Session, experiment: str) -> Experiment:
    """The row of an experiment that is known to be there."""
    return session.scalars(visible().where(col(Experiment.id) == experiment)).one()


def get_with_deleted(session: Session, experiment: str) -> Experiment | None:
    return session.scalars(with_deleted().where(col(Experiment.id) == experiment)).first()


def locked(session: Session, experiment: str) -> Experiment | None:
    """The row, locked until the commit; None: there is no such experiment, or it was deleted."""
    return session.scalars(claims.locking(visible().where(col(Experiment.id) == experiment))).first()


def locked_with_deleted(session: Session, experiment: str) -> Experiment | None:
    return session.scalars(claims.locking(with_deleted().where(col(Experiment.id) == experiment))).first()


def ids_of(session: Session, ids: Sequence[str]) -> set[str]:
    """Which of the ids belong to an experiment."""
    return set(session.scalars(visible(col(Experiment.id)).where(col(Experiment.id).in_(ids))))


def ids_with_deleted(session: Session, ids: Sequence[str]) -> set[str]:
    """Which of the ids have a row."""
    found: set[str] = set()
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        found.update(session.scalars(with_deleted(col(Experiment.id)).where(col(Experiment.id).in_(chunk))))
    return found


def get_many(session: Session, ids: Sequence[str]) -> dict[str, Experiment]:
    """Those of the ids that exist, in their order."""
    query = visible().where(col(Experiment.id).in_(ids))
    found = {row.id: row for row in session.scalars(query)}
    return {key: found[key] for key in ids if key in found}


def page(
    session: Session, *, state: State | None = None, search: str = "", limit: int = 50, before: str | None = None
) -> tuple[list[Experiment], str | None]:
    """Newest first; the second value is the `before` of the next page."""
    query = visible().order_by(col(Experiment.id).desc()).limit(limit + 1)
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
    return int(session.execute(visible(func.count())).scalar_one())


def counts(session: Session) -> dict[State, int]:
    """How many experiments are in each state."""
    query = visible(col(Experiment.state), func.count()).group_by(col(Experiment.state))
    return dict(session.execute(query).all())


def counts_by_algorithm(session: Session) -> dict[str, int]:
    """How many experiments each method has."""
    query = visible(col(Experiment.algorithm), func.count()).group_by(col(Experiment.algorithm))
    return dict(session.execute(query).all())


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


def _lease_is_over(lease_seconds: float) -> ColumnElement[bool]:
    return claims.lease_is_over(Experiment, lease_seconds)


def _due(lease_seconds: float) -> ColumnElement[bool]:
    """Queued and its time has come, or left behind by a worker that stopped renewing its lease."""
    waiting = and_(col(Experiment.state) == State.QUEUED, col(Experiment.start_after) <= now())
    orphaned = and_(
        col(Experiment.state) == State.RUNNING,
        col(Experiment.pause).is_(False),
        _lease_is_over(lease_seconds),
        col(Experiment.deaths) < MAX_DEATHS - 1,
    )
    return and_(col(Experiment.cancel).is_(False), or_(waiting, orphaned), in_window())


def due(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> int:
    """How many experiments a worker could claim now."""
    return claims.count(session, Experiment, _due(lease_seconds))


def claim(session: Session, owner: str, lease_seconds: float) -> Claim | None:
    """Take the first due experiment; None when there is no work."""
    row = claims.take(
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
    if row is None:
        return None
    _touch(session, row)
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


def checkpoint_of(row: Experiment) -> tuple[str, str] | None:
    """The newest checkpoint that counts: its manifest and checksum."""
    if row.checkpoint is None or row.checkpoint_sha256 is None:
        return None
    return row.checkpoint, row.checkpoint_sha256


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


def held(session: Session, claim: Claim) -> Experiment | None:
    """The row, locked until the commit, if the claim still holds."""
    return claims.locked(session, Experiment, *_held(claim))


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
    _touch(session, row)
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
    _give_back(session, row)
    return True


def hold(session: Session, claim: Claim, reason: str) -> bool:
    """Give the experiment back as paused, with the reason; False: the claim is lost."""
    row = held(session, claim)
    if row is None:
        return False
    row.pause, row.hold = True, reason
    _give_back(session, row)
    return True


def _give_back(session: Session, row: Experiment) -> None:
    """A cancel that came first is obeyed instead."""
    if row.cancel:
        _finish(session, row, State.CANCELLED)
        return
    if row.pause:
        move(row, State.PAUSED)
        row.pause = False
        row.hold = row.hold or ASKED
    else:
        move(row, State.QUEUED)
    row.owner = row.lease = None
    _touch(session, row)


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
        move(row, State.CANCELLING)
    move(row, state)
    if state is not State.CANCELLED:
        row.error_reason, row.error_detail = reason, detail
    row.owner = row.lease = row.hold = None
    row.pause = False
    row.finished_at = read_clock(session)
    _touch(session, row)


def finish_locked(session: Session, row: Experiment, state: State, reason: str | None = None) -> None:
    """End an experiment whose row this transaction has locked by `held`."""
    _finish(session, row, state, reason)


def cancel(session: Session, experiment: str) -> Experiment | None:
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
        _touch(session, row)
        return row
    if row.state is State.PAUSED:
        move(row, State.QUEUED)
    _finish(session, row, State.CANCELLED)
    return row


def expire_cancelling(session: Session, after_seconds: float, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Cancelled for good: the owner is dead, or did not obey in time; the new fence shuts it out."""
    overdue = or_(_lease_is_over(lease_seconds), col(Experiment.cancel_at) < now() - after_seconds)
    query = visible().where(col(Experiment.state) == State.CANCELLING, overdue).with_for_update(skip_locked=True)
    rows = list(session.scalars(query))
    for row in rows:
        row.fence += 1
        _finish(session, row, State.CANCELLED)
    return [row.id for row in rows]


def fail_hopeless(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Fail what has killed its workers too often without a new round."""
    query = (
        visible()
        .where(
            col(Experiment.state) == State.RUNNING,
            _lease_is_over(lease_seconds),
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


def settle_orphans(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Give back what a dead worker can no longer give back: what was to be paused, and what has left its window."""
    query = (
        visible()
        .where(
            col(Experiment.state) == State.RUNNING,
            _lease_is_over(lease_seconds),
            col(Experiment.deaths) < MAX_DEATHS - 1,
            or_(col(Experiment.pause).is_(True), not_(in_window())),
        )
        .with_for_update(skip_locked=True)
    )
    rows = list(session.scalars(query))
    for row in rows:
        row.fence += 1
        row.deaths += 1
        _give_back(session, row)
    return [row.id for row in rows]


def give_up(session: Session, experiment: str, fence: int) -> bool:
    """The process that held this claim is known to be dead: let another one take it now."""
    statement = (
        update(Experiment)
        .where(
            col(Experiment.id) == experiment,
            col(Experiment.fence) == fence,
            col(Experiment.state).in_([State.RUNNING, State.CANCELLING]),
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


def running(session: Session, owner: str) -> int:
    """How many experiments this worker holds."""
    query = visible(func.count()).where(
        col(Experiment.owner) == owner, col(Experiment.state).in_([State.RUNNING, State.CANCELLING])
    )
    return int(session.execute(query).scalar_one())


def expire_leases(session: Session, owner: str) -> int:
    """The owner is known to be dead: let its experiments be claimed now. A wrong guess costs time only."""
    held = (
        col(Experiment.owner) == owner,
        col(Experiment.state).in_([State.RUNNING, State.CANCELLING]),
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


def move(row: Experiment, state: State) -> None:
    """The only way to another state."""
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


def judged_accuracy() -> ColumnElement[float]:
    """The accuracy that an experiment is judged by, as engine.records.headline_rule says it."""
    is_final = text_at(col(Experiment.spec), "evaluation.protocol") == "C"
    return case((is_final, col(Experiment.final_accuracy)), else_=col(Experiment.best_accuracy))


def best_by_dataset(session: Session, algorithm: str) -> list[Experiment]:
    """The experiment of a method with the highest accuracy on each data set, best known sets first."""
    judged = judged_accuracy()
    highest = (
        visible(col(Experiment.dataset), func.max(judged).label("best"))
        .where(col(Experiment.algorithm) == algorithm, judged.is_not(None))
        .group_by(col(Experiment.dataset))
        .subquery()
    )
    query = (
        visible()
        .join(
            highest,
            and_(col(Experiment.dataset) == highest.c.dataset, judged == highest.c.best),
        )
        .where(col(Experiment.algorithm) == algorithm)
        .order_by(col(Experiment.dataset), col(Experiment.id))
    )
    first: dict[str, Experiment] = {}
    for row in session.scalars(query):
        first.setdefault(row.dataset, row)
    return list(first.values())
