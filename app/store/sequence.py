"""The change counter: numbers in the order of commits, so that "all after this number" can lose nothing."""

from sqlalchemy import select, update
from sqlmodel import Session, col

from app.store.tables import Counter

NAME = "seq"


def take(session: Session, count: int = 1) -> int:
    """The first of `count` numbers.

    Take them last: on PostgreSQL the counter stays locked until the commit. Whoever locks a row after it may wait for
    somebody who has that row and waits for the counter.
    """
    statement = (
        update(Counter)
        .where(col(Counter.name) == NAME)
        .values(value=Counter.value + count)
        .returning(col(Counter.value))
        .execution_options(synchronize_session=False)  # else every object of the session is looked at
    )
    return int(session.execute(statement).scalar_one()) - count + 1


def current(session: Session) -> int:
    """The number of the last committed change."""
    return int(session.execute(select(col(Counter.value)).where(col(Counter.name) == NAME)).scalar_one())
