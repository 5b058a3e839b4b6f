"""Locks, kept until the commit; and claims, how a worker takes a row, keeps it by a lease, and is shut out by a fence.

Experiments and artifacts have the same columns for it: fence, owner, lease, attempts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NewType, TypeVar

from sqlalchemy import ColumnElement, Row, Select, SQLColumnExpression, func, or_, select, update
from sqlmodel import Session, col

from app.store.clock import now
from app.store.tables import Artifact, Experiment

USUAL_LEASE_SECONDS = 60.0

Table = TypeVar("Table", Experiment, Artifact)


Locked = NewType("Locked", Experiment)
"""An experiment whose row this transaction has locked: only such a one is changed and numbered."""
_LOCKED, _NUMBERED = "locked", "numbered"
"""What a session remembers of its transaction: ids of rows that nobody else can have, and whether it took a number."""


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


def lease_is_over(table: type[Table], lease_seconds: float = USUAL_LEASE_SECONDS) -> ColumnElement[bool]:
    """Run out, or so far ahead that nobody can have taken it: the clock was set back since."""
    longest = 2 * max(lease_seconds, USUAL_LEASE_SECONDS)
    return or_(col(table.lease) < now(), col(table.lease) > now() + longest)


def count(session: Session, table: type[Table], due: ColumnElement[bool]) -> int:
    return int(session.execute(select(func.count()).select_from(table).where(due)).scalar_one())


def take(
    session: Session,
    table: type[Table],
    due: ColumnElement[bool],
    order: Sequence[SQLColumnExpression[Any]],
    owner: str,
    lease_seconds: float,
    **values: Any,
) -> str | None:
    """Take the first due row in one statement, with a greater fence; its id, or None when none is due."""
    first = (
        select(col(table.id)).where(due).order_by(*order).limit(1).with_for_update(skip_locked=True).scalar_subquery()
    )
    taken = {
        "fence": table.fence + 1,
        "owner": owner,
        "lease": now() + lease_seconds,
        "attempts": table.attempts + 1,
        **values,
    }
    statement = update(table).where(col(table.id) == first).values(**taken).returning(col(table.id))
    found = session.execute(statement.execution_options(synchronize_session=False)).first()
    return None if found is None else str(found.id)


def lock(session: Session, query: Select[Experiment], *, skip: bool = False) -> list[Locked]:
    """The rows as they are now, kept until the commit. `skip` leaves out those that somebody else has.

    Rows come before numbers: whoever has taken a number holds up all others, and must not wait for a row that one of
    them has. Rows of other tables that only name one of these may be written meanwhile.
    """
    rows = [Locked(row) for row in session.scalars(_locking(query, skip))]
    new = {row.id for row in rows} - session.info.get(_LOCKED, set())
    assert skip or not new or _NUMBERED not in session.info, f"{new} must be locked before a number is taken"
    own(session, new)
    return rows


def lock_one(session: Session, query: Select[Experiment]) -> Locked | None:
    return next(iter(lock(session, query)), None)


def own(session: Session, experiments: Iterable[str]) -> None:
    """Nobody else can have these rows: they are locked, or were written by this transaction."""
    session.info.setdefault(_LOCKED, set()).update(experiments)


def no_more_rows(session: Session) -> None:
    """A number was taken."""
    session.info[_NUMBERED] = True


def lock_artifact(session: Session, *conditions: ColumnElement[bool]) -> Artifact | None:
    """The row as it is now, locked until the commit."""
    return session.scalars(_locking(select(Artifact).where(*conditions), skip=False)).first()


def _locking(query: Select[Table], skip: bool) -> Select[Table]:
    return query.with_for_update(key_share=True, skip_locked=skip).execution_options(populate_existing=True)


def renew(
    session: Session,
    table: type[Table],
    held: Sequence[ColumnElement[bool]],
    lease_seconds: float,
    *returning: SQLColumnExpression[Any],
) -> Row[Any] | None:
    """Prolong the lease and look at these columns; None: the claim is lost."""
    statement = update(table).where(*held).values(lease=now() + lease_seconds).returning(*returning)
    return session.execute(statement.execution_options(synchronize_session=False)).first()
