"""Experiments that take over the first rounds of another one, whose spec differs in the number of rounds alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, insert, literal, select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from app.numbers import finite
from app.store import changes, experiments, lifecycle
from app.store.claims import Claim, lock
from app.store.clock import read_clock
from app.store.rounds import add_up
from app.store.states import NotNow, State
from app.store.tables import Experiment, Round
from engine.records import RoundRecord

FIGURES = ("round", "accuracy", "validation_accuracy", "bytes_up", "bytes_down", "client_flops", "seconds")
"""What `add_up` needs of a round."""
_ALIVE = (State.QUEUED, State.PAUSED, State.RUNNING)
_PREFERRED = (State.FINISHED, State.RUNNING, State.QUEUED, State.PAUSED)
"""Of several experiments with the same result, the one that is furthest."""


class NotFinished(NotNow):
    """Only a finished experiment has rounds that another one can take over."""

    def __init__(self, row: Experiment) -> None:
        message = f"experiment {row.id} is {row.state.value}; only a finished one can go on or be read out"
        super().__init__(message, row.state)


@dataclass(frozen=True)
class Inheritance:
    """What an experiment takes over: a number of rounds as they are, and after them one that reads differently."""

    unchanged: int
    last: RoundRecord | None

    @property
    def rounds(self) -> int:
        return self.unchanged + (self.last is not None)


@dataclass(frozen=True)
class Source:
    """Where an experiment goes on: whose checkpoints may be copied, and which of them counts."""

    experiment: str
    fingerprint: str
    checkpoint: tuple[str, str] | None  # manifest and sha256


def same(session: Session, fingerprint: str) -> Experiment | None:
    """An experiment that gives, or will give, all rounds of this spec."""
    query = experiments.visible().where(
        col(Experiment.fingerprint) == fingerprint,
        col(Experiment.state).in_(_PREFERRED),
        col(Experiment.cancel).is_(False),
    )
    found = [
        row for row in session.scalars(query) if (row.stopped_by if row.state is State.FINISHED else row.stop) is None
    ]
    return min(found, key=lambda row: (_PREFERRED.index(row.state), row.id), default=None)


def take_over(
    session: Session, source: str, spec: Mapping[str, Any], fingerprint: str, inheritance: Inheritance
) -> tuple[Experiment, bool] | None:
    """An experiment that has these rounds already, queued for the rest or finished where there is none; and whether it
    is new: one with the same result that is there counts.

    None: there is no such source. NotFinished: it may still change.
    """
    old = lifecycle.locked(session, source)  # two equal wishes come one after the other
    if old is None:
        return None
    if old.state is not State.FINISHED:
        raise NotFinished(old)
    if (found := same(session, fingerprint)) is not None:
        return found, False
    kept = ("partition_fingerprint", "majority_share", "environment", "mixed_environment", "bit_identical")
    entry = {name: getattr(old, name) for name in kept}
    entry |= {"spec": spec, "fingerprint": fingerprint, "continues": old.id, "taken_over": inheritance.rounds}
    if inheritance.rounds > spec["rounds"]:
        moment = read_clock(session)
        entry |= {"state": State.FINISHED, "started_at": moment, "finished_at": moment}
    [key] = experiments.write_rows(session, [entry])
    [new] = lock(session, experiments.visible().where(col(Experiment.id) == key))
    for values in _figures(session, old.id, inheritance.unchanged):
        add_up(new, values)
    _copy(session, old.id, new.id, inheritance.unchanged)
    if inheritance.last is not None:
        values = finite(inheritance.last.model_dump())
        add_up(new, values)
        session.add(Round(experiment=new.id, fence=0, stored_at=read_clock(session), seq=values["round"], **values))
    changes.number_taken_over(session, new, inheritance.rounds)
    return new, True


def _figures(session: Session, experiment: str, upto: int) -> list[dict[str, Any]]:
    columns = [getattr(Round, name) for name in FIGURES]
    query = select(*columns).where(col(Round.experiment) == experiment, col(Round.round) < upto)
    return [dict(zip(FIGURES, values, strict=True)) for values in session.execute(query.order_by(col(Round.round)))]


def _copy(session: Session, source: str, target: str, upto: int) -> None:
    """Inside the database: thousands of rounds with many clients are a large text. No claim stored them: fence 0."""
    names = list(Round.model_fields)
    own: dict[str, Any] = {"experiment": literal(target), "fence": literal(0), "seq": col(Round.round)}
    chosen = select(*(own.get(name, getattr(Round, name)) for name in names))
    session.execute(
        insert(Round).from_select(names, chosen.where(col(Round.experiment) == source, col(Round.round) < upto))
    )


def source_of(session: Session, claim: Claim) -> Source | None:
    """Where this claim's experiment may find a checkpoint that is not its own; None: nowhere."""
    row = None if claim.continues is None else experiments.get_with_deleted(session, claim.continues)
    return None if row is None else Source(row.id, row.fingerprint, experiments.checkpoint_of(row))


def adopt(session: Session, claim: Claim, checkpoint: tuple[str, str]) -> bool:
    """The source's checkpoint was copied: from now on the experiment has its own. False: the claim is lost."""
    row = lifecycle.held(session, claim)
    if row is None:
        return False
    row.checkpoint, row.checkpoint_sha256 = checkpoint
    changes.touch(session, row)
    return True


def needed() -> ColumnElement[bool]:
    """Of an experiment: another one is to go on after its checkpoint and has not copied it yet."""
    heir = aliased(Experiment)
    waits = (col(heir.state).in_(_ALIVE), col(heir.checkpoint).is_(None))
    return exists(select(col(heir.id)).where(col(heir.continues) == col(Experiment.id), *waits))


def heirs(session: Session, experiment: str) -> list[Experiment]:
    """Experiments that took over rounds of this one, the shortest first."""
    query = experiments.visible().where(col(Experiment.continues) == experiment)
    return list(session.scalars(query.order_by(col(Experiment.rounds), col(Experiment.id))))
