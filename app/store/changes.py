"""Changes in the order of their commits: what an event stream sends."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlmodel import Session, col

from app.store.tables import Experiment, Round


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
