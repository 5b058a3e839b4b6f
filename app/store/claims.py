"""Claims: how a worker takes a row, keeps it by renewing a lease, and is shut out by a greater fence.

Experiments and artifacts have the same columns for it: fence, owner, lease, attempts.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, SQLColumnExpression, func, or_, select, update
from sqlmodel import Session, col

from app.store.clock import now
from app.store.tables import Artifact, Experiment

USUAL_LEASE_SECONDS = 60.0

Table = TypeVar("Table", Experiment, Artifact)


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
) -> Table | None:
    """The first due row, taken in one statement with a greater fence; None when none is due."""
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
    return None if found is None else session.get_one(table, found.id, populate_existing=True)


def locked(session: Session, table: type[Table], *conditions: ColumnElement[bool]) -> Table | None:
    """The row as it is now, locked until the commit."""
    return session.scalars(locking(select(table).where(*conditions))).first()


def locking(query: Select[Table]) -> Select[Table]:
    """The rows as they are now, locked until the commit; rows of other tables that only name one of them may come."""
    return query.with_for_update(key_share=True).execution_options(populate_existing=True)


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
