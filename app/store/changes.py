"""Changes: numbered in the order of their commits, so that "all after this number" can lose nothing, and read again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select, update
from sqlmodel import Session, col

from app.store.claims import Locked, no_more_rows
from app.store.ids import in_chunks
from app.store.tables import Counter, Experiment, Round

NAME = "seq"


def _take(session: Session, count: int = 1) -> int:
    """The first of `count` numbers. On PostgreSQL the counter stays locked until the commit, so rows are locked before.

    Other modules take numbers through the functions below, which ask for locked rows.
    """
    session.flush()
    no_more_rows(session)
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


def touch(session: Session, row: Locked) -> None:
    """Number a change that is not a round."""
    row.seq = row.state_seq = _take(session)
    session.flush()


def number_round(session: Session, row: Locked) -> int:
    """The number of the round that is stored next."""
    row.seq = _take(session)
    return row.seq


def number_taken_over(session: Session, row: Locked, rounds: int) -> None:
    """Each round gets a number of its own, and then the new experiment: who listens gets them in this order."""
    first = _take(session, rounds + 1)
    numbered = update(Round).where(col(Round.experiment) == row.id).values(seq=first + col(Round.round))
    session.execute(numbered.execution_options(synchronize_session=False))
    row.place = row.seq = row.state_seq = first + rounds
    session.flush()


def number_new(session: Session, ids: Sequence[str]) -> None:
    """Places in the queue and among the changes, in this order, for rows that this transaction has written."""
    if not ids:
        return
    first = _take(session, len(ids))
    number = first + col(Experiment.place)
    for chunk in in_chunks(ids):
        chosen = update(Experiment).where(col(Experiment.id).in_(chunk))
        numbered = chosen.values(place=number, seq=number, state_seq=number)
        session.execute(numbered.execution_options(synchronize_session=False))


@dataclass(frozen=True)
class Change:
    """A stored round, or an experiment as it stands now."""

    seq: int
    experiment: str
    kind: Literal["round", "state"]
    row: Experiment | Round


def changes_after(
    session: Session,
    seq: int,
    *,
    limit: int = 500,
    upto: int | None = None,
    experiments: Collection[str] | None = None,
) -> list[Change]:
    """The next changes, of all experiments or of some, at most `limit`. Fewer than `limit` means: there were no more.

    An experiment appears once, at its latest change: what it was in between is not kept. A deleted one appears as such.
    """
    rounds = select(Round).where(col(Round.seq) > seq).order_by(col(Round.seq)).limit(limit)
    states = select(Experiment).where(col(Experiment.state_seq) > seq).order_by(col(Experiment.state_seq)).limit(limit)
    if upto is not None:
        rounds = rounds.where(col(Round.seq) <= upto)
        states = states.where(col(Experiment.state_seq) <= upto)
    if experiments is not None:
        rounds = rounds.where(col(Round.experiment).in_(experiments))
        states = states.where(col(Experiment.id).in_(experiments))
    found = [Change(row.seq, row.experiment, "round", row) for row in session.scalars(rounds)]
    found += [Change(row.state_seq, row.id, "state", row) for row in session.scalars(states)]
    found.sort(key=lambda change: change.seq)
    return found[:limit]
