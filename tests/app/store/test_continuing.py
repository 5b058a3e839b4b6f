"""Rounds that one experiment takes over from another, on SQLite and on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import Session, col

from app.store import continuing, lifecycle, rounds, steering
from app.store.changes import changes_after
from app.store.continuing import Inheritance, NotFinished
from app.store.database import Database
from app.store.plan import Plan, StopRule
from app.store.states import State
from app.store.tables import Experiment
from engine.records import RoundRecord
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, look, meanwhile, record, spec_with, submit


def spec_of(count: int) -> ExperimentSpec:
    return ExperimentSpec.parse(spec_with(rounds=count))


def put(database: Database, count: int = 3, plan: Plan | None = None) -> str:
    """A finished experiment with so many rounds and a checkpoint."""
    key = submit(database, plan, rounds=count)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        lifecycle.begin(session, held, "p" * 64, {"device": "cpu"})
        for number in range(count + 1):
            rounds.commit_round(session, held, record(number, 0.1 * number, loss=None), 60, ("manifest", "f" * 64))
    return key


def taken(
    database: Database, source: str, count: int, unchanged: int, last: RoundRecord | None = None
) -> tuple[Experiment, bool]:
    spec = spec_of(count)
    with database.write() as session:
        found = continuing.take_over(
            session, source, spec.canonical(), spec.fingerprint(), Inheritance(unchanged, last)
        )
    assert found is not None
    return found


def records(database: Database, key: str) -> list[dict[str, Any]]:
    with database.read() as session:
        return rounds.after(session, key)


def test_rounds_progress_and_origin_are_taken_over_and_the_rest_is_queued(database: Database) -> None:
    source = put(database)
    other = record(3, None, client_accuracy={}, traces={"a": {"0": float("nan")}})
    row, is_new = taken(database, source, 5, 3, other)
    new, old = look(database, row.id), look(database, source)
    assert is_new
    assert (new.state, new.next_round, new.rounds, new.continues, new.taken_over) == (State.QUEUED, 4, 5, source, 4)
    assert (new.final_accuracy, new.best_round, new.seconds, new.totals) == (0.2, 2, old.seconds, old.totals)
    assert (new.environment, new.partition_fingerprint, new.checkpoint) == ({"device": "cpu"}, "p" * 64, None)
    assert (new.started_at, new.finished_at, new.attempts, new.stop) == (None, None, 0, None)
    *first, last = records(database, new.id)
    assert first == records(database, source)[:3]
    assert last == {**other.model_dump(), "traces": {"a": {"0": None}}}
    held = claim(database, "second")
    assert held is not None
    assert (held.experiment, held.next_round, held.continues) == (new.id, 4, source)
    with database.write() as session:
        assert continuing.source_of(session, held) == continuing.Source(source, old.fingerprint, ("manifest", "f" * 64))


def test_what_has_all_its_rounds_is_finished_at_once(database: Database) -> None:
    row, _ = taken(database, put(database), 2, 3)
    assert (row.state, row.next_round, row.attempts) == (State.FINISHED, 3, 0)
    assert row.finished_at is not None
    assert claim(database, "second") is None


def test_who_listens_gets_every_round_and_then_the_experiment(database: Database) -> None:
    source = put(database)
    before = look(database, source).seq
    row, _ = taken(database, source, 5, 4)
    with database.read() as session:
        found = changes_after(session, before)
    assert [(change.experiment, change.kind) for change in found] == [(row.id, "round")] * 4 + [(row.id, "state")]
    assert [change.seq for change in found] == list(range(before + 1, before + 6))


def test_the_same_wish_again_gives_what_is_there(database: Database) -> None:
    source = put(database)
    first, _ = taken(database, source, 5, 4)
    assert taken(database, source, 5, 4) == (first, False)
    assert taken(database, source, 3, 4)[0].id == source
    with database.write() as session:
        lifecycle.cancel(session, first.id)
    assert taken(database, source, 5, 4)[1], "a cancelled one gives no result"


def test_what_may_end_early_does_not_count_as_the_same(database: Database) -> None:
    rule = Plan(stop=StopRule(target=0.15))
    waiting, source = submit(database, rule, rounds=5), submit(database, rounds=1)
    with database.read() as session:
        assert continuing.same(session, spec_of(5).fingerprint()) is None
        found = continuing.same(session, spec_of(1).fingerprint())
    assert found is not None
    assert (found.id, found.id == waiting) == (source, False)


def test_an_experiment_that_has_not_finished_hands_nothing_over(database: Database) -> None:
    key = submit(database)
    spec = spec_of(5)
    with database.write() as session, pytest.raises(NotFinished, match="is queued; only a finished one"):
        continuing.take_over(session, key, spec.canonical(), spec.fingerprint(), Inheritance(1, None))
    with database.write() as session:
        nothing = continuing.take_over(session, "0" * 26, spec.canonical(), spec.fingerprint(), Inheritance(1, None))
    assert nothing is None


def outlived(session: Session, key: str) -> None:
    session.execute(update(Experiment).where(col(Experiment.id) == key).values(deleted_at=1.0))


@pytest.mark.parametrize("end", ["it has a checkpoint of its own", "it is cancelled"])
def test_a_deleted_experiment_stays_until_its_heir_needs_its_files_no_more(database: Database, end: str) -> None:
    source, bystander = put(database), put(database, 2)
    row, _ = taken(database, source, 5, 4)
    with database.write() as session:
        outlived(session, source)
        outlived(session, bystander)
        assert steering.removable(session) == [bystander]
        steering.remove(session, source)
        assert session.get(Experiment, source) is not None
    held = claim(database, "second")
    assert held is not None
    with database.write() as session:
        if end == "it is cancelled":
            lifecycle.cancel(session, row.id)
            lifecycle.obey_cancel(session, held)
        else:
            assert continuing.adopt(session, held, ("manifest", "a" * 64))
        assert sorted(steering.removable(session)) == sorted([source, bystander])


def test_a_checkpoint_of_a_lost_claim_does_not_count(database: Database) -> None:
    row, _ = taken(database, put(database), 5, 4)
    held = claim(database, "second", lease_seconds=-1)
    assert held is not None
    assert claim(database, "third") is not None
    with database.write() as session:
        assert not continuing.adopt(session, held, ("manifest", "a" * 64))
    assert look(database, row.id).checkpoint is None


@pytest.mark.postgres
def test_two_equal_wishes_at_once_make_one_experiment(postgres: Database) -> None:
    source, spec = put(postgres), spec_of(5)

    def wish(session: Session) -> Any:
        return continuing.take_over(session, source, spec.canonical(), spec.fingerprint(), Inheritance(4, None))

    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            first = wish(session)
            second = meanwhile(pool, postgres, wish)
        assert first[1]
        assert (second.result()[0].id, second.result()[1]) == (first[0].id, False)
