"""Rounds: the one transaction that counts, and reading them back."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlmodel import Session, col

from app.numbers import finite
from app.store import changes, experiments, lifecycle
from app.store.claims import Claim, Locked
from app.store.clock import read_clock
from app.store.sound import length_of
from app.store.states import State
from app.store.stopping import reason_to_stop
from app.store.tables import Experiment, Round
from engine.records import Headline, RoundRecord

FIELDS = tuple(RoundRecord.model_fields)
TIMES = frozenset({"seconds", "client_seconds", "server_seconds"})


class Verdict(StrEnum):
    """What became of a round that a worker handed in."""

    STORED = "stored"
    REPEATED = "repeated"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    DIFFERENT = "different"
    LOST = "lost"

    def goes_on(self) -> bool:
        """The worker may compute the next round."""
        return self in {Verdict.STORED, Verdict.REPEATED}


def commit_round(
    session: Session,
    claim: Claim,
    record: RoundRecord,
    lease_seconds: float,
    checkpoint: tuple[str, str] | None = None,
) -> Verdict:
    """Check the fence, then store the round, progress, headline, totals and lease together, obey a cancel
    and the stop rule.

    A round that is stored already is compared instead: rows are never overwritten. `checkpoint` is the manifest and
    checksum of what was written to disk right after this round.
    """
    row = lifecycle.held(session, claim)
    if row is None:
        return Verdict.LOST
    if record.round > row.next_round:
        raise ValueError(f"rounds must come without a gap: expected {row.next_round}, but got {record.round}")
    row.lease = read_clock(session) + lease_seconds
    if checkpoint is not None:
        row.checkpoint, row.checkpoint_sha256 = checkpoint
    if record.round < row.next_round:
        return _compare(session, row, record)
    values = finite(record.model_dump())
    add_up(row, values)
    number = changes.number_round(session, row)
    session.add(Round(experiment=row.id, fence=claim.fence, stored_at=read_clock(session), seq=number, **values))
    session.flush()
    if row.cancel:
        lifecycle.finish(session, row, State.CANCELLED)
        return Verdict.CANCELLED
    if record.round == row.rounds:
        # a second number, so that a reader who saw only the round still gets the end
        lifecycle.finish(session, row, State.FINISHED)
        return Verdict.FINISHED
    row.stopped_by = reason_to_stop(session, row, record.round, values["accuracy"])
    if row.stopped_by is not None:
        lifecycle.finish(session, row, State.FINISHED)
        return Verdict.FINISHED
    return Verdict.STORED


def would_stop(session: Session, claim: Claim, record: RoundRecord) -> bool:
    """Whether the stop rule will end the experiment with this round, so that its state should be written to disk."""
    row = experiments.get(session, claim.experiment)
    return row is not None and reason_to_stop(session, row, record.round, record.accuracy) is not None


def headline_of(row: Experiment) -> Headline:
    """The columns of its numbers have the names of the headline's fields."""
    return Headline(**{name: getattr(row, name) for name in Headline.model_fields})


def record_of(row: Round) -> dict[str, Any]:
    """The record as it came from the engine."""
    return {name: getattr(row, name) for name in FIELDS}


def add_up(row: Experiment, values: Mapping[str, Any]) -> None:
    """The next round's part of the progress, the headline and the totals."""
    number = values["round"]
    row.next_round = number + 1
    row.deaths = 0
    row.seconds += values["seconds"]
    row.totals = {key: total + values[key] for key, total in row.totals.items()}
    news = headline_of(row).after(number, values["accuracy"], values["validation_accuracy"])
    for name, value in news:
        setattr(row, name, value)


def _compare(session: Session, row: Locked, record: RoundRecord) -> Verdict:
    stored = session.get(Round, (row.id, record.round))
    assert stored is not None, "every round below next_round is stored"
    old = {key: value for key, value in record_of(stored).items() if key not in TIMES}
    if old["validation_accuracy"] is None:  # it may have been stored before there was one
        del old["validation_accuracy"]
    new = finite(record.without_times())
    different = sorted(key for key in old if _text(old[key]) != _text(new.get(key)))
    if row.cancel:
        lifecycle.finish(session, row, State.CANCELLED)
        return Verdict.CANCELLED
    if not different:
        return Verdict.REPEATED
    if row.mixed_environment or _bits_may_differ(row.environment):
        if row.bit_identical:
            row.bit_identical = False
            changes.touch(session, row)
        return Verdict.REPEATED
    reason = (
        f"round {record.round} was computed again in the same environment and came out different "
        f"({', '.join(different)}); the stored rounds were kept; please report this as a bug"
    )
    lifecycle.finish(session, row, State.FAILED, reason)
    return Verdict.DIFFERENT


def _bits_may_differ(environment: Mapping[str, Any] | None) -> bool:
    """A GPU has operations without a deterministic form, so that two equal computations may differ in the last bit."""
    return environment is not None and environment.get("device", "cpu") != "cpu"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def after(session: Session, experiment: str, round_number: int = -1) -> list[dict[str, Any]]:
    """The records with a greater round number, in order."""
    query = (
        select(Round)
        .where(col(Round.experiment) == experiment, col(Round.round) > round_number)
        .order_by(col(Round.round))
    )
    return [record_of(row) for row in session.scalars(query)]


def get(session: Session, experiment: str, number: int) -> dict[str, Any] | None:
    """One record."""
    row = session.get(Round, (experiment, number))
    return None if row is None else record_of(row)


DETAILS: dict[str, Any] = {"cohort": [], "client_accuracy": {}, "traces": {}}
"""What a record says of single clients, and how it looks where that is left out."""


def with_some_details(session: Session, experiment: str, most: int) -> tuple[list[dict[str, Any]], list[int]]:
    """All records in order, with the details of at most so many tested rounds; and the numbers of all tested rounds.

    The rounds with details are spread evenly, the first and the last among them.
    """
    mine = col(Round.experiment) == experiment
    tested_rounds = select(col(Round.round)).where(mine, col(Round.round) > 0, col(Round.accuracy).is_not(None))
    tested = list(session.scalars(tested_rounds.order_by(col(Round.round))))
    if len(tested) <= most:
        return after(session, experiment), tested
    kept = {tested[place * (len(tested) - 1) // (most - 1)] for place in range(most)}
    query = select(col(Round.round), *(getattr(Round, name) for name in DETAILS)).where(
        mine, col(Round.round).in_(kept)
    )
    details = {number: dict(zip(DETAILS, values, strict=True)) for number, *values in session.execute(query)}
    names = [name for name in FIELDS if name not in DETAILS]
    rows = session.execute(select(*(getattr(Round, name) for name in names)).where(mine).order_by(col(Round.round)))
    records = [dict(zip(names, values, strict=True)) for values in rows]
    return [record | details.get(record["round"], DETAILS) for record in records], tested


def columns(session: Session, ids: Sequence[str], fields: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Chosen fields of several experiments, a list a field; the round number is always there."""
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise ValueError(f"a round has no field {unknown[0]!r}; it has {', '.join(FIELDS)}")
    names = ["round", *(field for field in dict.fromkeys(fields) if field != "round")]
    query = (
        select(col(Round.experiment), *(getattr(Round, name) for name in names))
        .where(col(Round.experiment).in_(ids))
        .order_by(col(Round.experiment), col(Round.round))
    )
    answer: dict[str, dict[str, list[Any]]] = {key: {name: [] for name in names} for key in ids}
    for experiment, *values in session.execute(query):
        lists = answer[experiment]
        for name, value in zip(names, values, strict=True):
            lists[name].append(value)
    return answer


COSTS = ("round", "accuracy", "loss", "bytes_up", "bytes_down", "client_flops", "seconds")


def costs(session: Session, ids: Sequence[str]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """What curves are drawn from, a tuple a field, with the size of each cohort as `participants`."""
    names = (*COSTS, "participants")
    query = (
        select(
            col(Round.experiment),
            *(getattr(Round, name) for name in COSTS),
            length_of(col(Round.cohort)),
        )
        .where(col(Round.experiment).in_(ids))
        .order_by(col(Round.experiment), col(Round.round))
    )
    # all rows at once and cut by experiment: asking for each row costs as much as reading it
    found = session.connection().execute(query).all()
    answer: dict[str, dict[str, tuple[Any, ...]]] = {key: dict.fromkeys(names, ()) for key in ids}
    for key, rows in groupby(found, key=itemgetter(0)):
        _, *fields = zip(*rows, strict=True)
        answer[key] = dict(zip(names, fields, strict=True))
    return answer


def last_tested(session: Session, ids: Sequence[str]) -> dict[str, int]:
    """The last round of each experiment that has an accuracy; the opening does not count."""
    query = (
        select(col(Round.experiment), func.max(col(Round.round)))
        .where(col(Round.experiment).in_(ids), col(Round.round) > 0, col(Round.accuracy).is_not(None))
        .group_by(col(Round.experiment))
    )
    return dict(session.execute(query).all())


def client_accuracy(session: Session, places: Mapping[str, int]) -> dict[str, dict[str, float | None]]:
    """What each client had in one round of each experiment."""
    if not places:
        return {}
    wanted = [and_(col(Round.experiment) == key, col(Round.round) == number) for key, number in places.items()]
    query = select(col(Round.experiment), col(Round.client_accuracy)).where(or_(*wanted))
    return {key: _numbers(tested) for key, tested in session.execute(query)}


def _numbers(tested: Mapping[str, Any]) -> dict[str, float | None]:
    return {client: value if isinstance(value, int | float) else None for client, value in tested.items()}


def latest_client_accuracy(session: Session, experiment: str, clients: int) -> dict[str, float | None]:
    """The last value of each client, read backwards until all clients were seen."""
    query = (
        select(col(Round.client_accuracy))
        .where(col(Round.experiment) == experiment, col(Round.round) > 0)
        .order_by(col(Round.round).desc())
        .execution_options(yield_per=20)
    )
    found: dict[str, float | None] = {}
    for tested in session.scalars(query):
        found = {**tested, **found}
        if len(found) >= clients:
            break
    return _numbers(found)
