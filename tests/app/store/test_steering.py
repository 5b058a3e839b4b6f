"""Pause, resume, retry, delete: what people ask, on both databases."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlmodel import Session, col

from app.store import (
    artifacts,
    deliveries,
    experiments,
    idempotency,
    leases,
    lifecycle,
    listing,
    logs,
    orphans,
    overview,
    queue,
    rounds,
    steering,
    sweeps,
    workers,
)
from app.store.claims import Claim
from app.store.database import Database
from app.store.listing import Filter
from app.store.logs import KEEP_LINES, Line
from app.store.migrate import migrate
from app.store.plan import Plan
from app.store.rounds import Verdict
from app.store.states import AlreadyFinished, NotNow, State
from app.store.tables import Artifact, Experiment, IdempotencyKey, LogLine, Round
from app.views.sweeps import summaries
from tests.services import claim, look, record, state, submit


def ask(database: Database, action: str, key: str) -> None:
    with database.write() as session:
        assert getattr(steering, action)(session, key) is not None


def claimed(database: Database) -> Claim:
    found = claim(database)
    assert found is not None
    return found


def ended(database: Database, how: str = "failed", **changes: Any) -> str:
    key = submit(database, **changes)
    with database.write() as session:
        held = queue.claim(session, "worker-1", 60)
        assert held is not None
        rounds.commit_round(session, held, record(0), 60)
        if how == "failed":
            lifecycle.fail(session, held, "ValueError: no")
        elif how == "diverged":
            lifecycle.diverge(session, held, "nan")
        elif how == "cancelled":
            lifecycle.cancel(session, key)
            lifecycle.obey_cancel(session, held)
        else:
            for number in range(1, held.spec["rounds"] + 1):
                rounds.commit_round(session, held, record(number), 60)
    assert state(database, key).value == how
    return key


def test_a_queued_experiment_is_paused_at_once_and_resumed_into_the_queue(database: Database) -> None:
    key = submit(database)
    ask(database, "pause", key)
    row = look(database, key)
    assert (row.state, row.hold) == (State.PAUSED, "asked")
    assert claim(database) is None
    ask(database, "resume", key)
    row = look(database, key)
    assert (row.state, row.hold) == (State.QUEUED, None)
    assert claimed(database).experiment == key


def test_a_running_experiment_is_paused_when_its_worker_gives_it_back(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    ask(database, "pause", key)
    row = look(database, key)
    assert (row.state, row.pause, row.hold) == (State.RUNNING, True, "asked")
    with database.write() as session:
        standing = lifecycle.renew(session, held, 60)
        assert standing is not None
        assert standing.pause
        assert rounds.commit_round(session, held, record(0), 60) is Verdict.STORED
        lifecycle.release(session, held)
    row = look(database, key)
    assert (row.state, row.pause, row.hold, row.owner, row.next_round) == (State.PAUSED, False, "asked", None, 1)
    with database.write() as session:
        assert rounds.commit_round(session, held, record(1), 60) is Verdict.LOST


def test_a_pause_taken_back_in_time_changes_nothing(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    ask(database, "pause", key)
    ask(database, "resume", key)
    row = look(database, key)
    assert (row.state, row.pause, row.hold) == (State.RUNNING, False, None)
    with database.write() as session:
        lifecycle.release(session, held)
    assert state(database, key) is State.QUEUED


def test_a_pause_that_a_dead_worker_cannot_carry_out_is_carried_out_without_it(database: Database) -> None:
    key = submit(database)
    dead = claim(database, lease_seconds=-1)
    assert dead is not None
    ask(database, "pause", key)
    assert claim(database) is None
    with database.write() as session:
        assert orphans.settle(session) == [key]
    row = look(database, key)
    assert (row.state, row.hold, row.deaths) == (State.PAUSED, "asked", 1)
    with database.write() as session:
        assert rounds.commit_round(session, dead, record(0), 60) is Verdict.LOST


def test_a_paused_experiment_can_be_cancelled(database: Database) -> None:
    key = submit(database)
    ask(database, "pause", key)
    with database.write() as session:
        lifecycle.cancel(session, key)
    row = look(database, key)
    assert (row.state, row.hold) == (State.CANCELLED, None)


def test_a_cancel_wins_over_a_pause(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    ask(database, "pause", key)
    with database.write() as session:
        lifecycle.cancel(session, key)
        lifecycle.release(session, held)
    assert state(database, key) is State.CANCELLED


def test_an_experiment_that_ends_with_its_round_is_not_paused(database: Database) -> None:
    key = submit(database, rounds=1)
    held = claimed(database)
    ask(database, "pause", key)
    with database.write() as session:
        rounds.commit_round(session, held, record(0), 60)
        assert rounds.commit_round(session, held, record(1), 60) is Verdict.FINISHED
    row = look(database, key)
    assert (row.state, row.pause, row.hold) == (State.FINISHED, False, None)


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_what_has_ended_can_be_neither_paused_nor_resumed(database: Database, action: str) -> None:
    key = ended(database)
    with pytest.raises(AlreadyFinished, match=f"already failed, so it cannot be {action}"):
        ask(database, action, key)


def test_what_waits_for_room_is_resumed_by_itself_and_what_a_person_paused_is_not(database: Database) -> None:
    full, asked = submit(database), submit(database)
    held = claimed(database)
    with database.write() as session:
        assert lifecycle.hold(session, held, "disk full: no space left")
    ask(database, "pause", asked)
    assert look(database, full).hold == "disk full: no space left"
    with database.write() as session:
        assert steering.resume_held(session, "disk full") == [full]
    assert (state(database, full), state(database, asked)) == (State.QUEUED, State.PAUSED)


def test_a_person_who_pauses_what_waits_for_room_keeps_it_paused(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    with database.write() as session:
        lifecycle.hold(session, held, "disk full: no space left")
    ask(database, "pause", key)
    with database.write() as session:
        assert steering.resume_held(session, "disk full") == []


@pytest.mark.parametrize("how", ["failed", "cancelled", "diverged"])
def test_a_retry_is_a_new_experiment_with_the_same_spec(database: Database, how: str) -> None:
    key = ended(database, how)
    with database.write() as session:
        row = steering.retry(session, key)
    assert row is not None
    assert row.id != key
    assert (row.state, row.retry_of, row.next_round, row.fingerprint, row.spec) == (
        State.QUEUED,
        key,
        0,
        look(database, key).fingerprint,
        look(database, key).spec,
    )
    assert state(database, key).value == how
    with pytest.raises(NotNow, match=f"already, as {row.id}"):
        ask(database, "retry", key)


def test_what_went_well_or_still_runs_cannot_be_retried(database: Database) -> None:
    key = ended(database, "finished")
    with pytest.raises(NotNow, match=f"experiment {key} is finished; only one that is failed"):
        ask(database, "retry", key)
    with pytest.raises(NotNow, match="is queued; only"):
        ask(database, "retry", submit(database))


LOOKS: dict[str, Callable[[Session], object]] = {
    "count": experiments.count,
    "counts": experiments.counts,
    "counts_by_algorithm": experiments.counts_by_algorithm,
    "best_by_dataset": lambda session: [row.id for row in experiments.best_by_dataset(session, "fedavg")],
    "list": lambda session: [row.id for row in listing.find(session, Filter())],
    "list count": lambda session: listing.count(session, Filter()),
    "choices": listing.choices,
    "overview": lambda session: [
        [row.id for row in getattr(overview.overview(session), part)]
        for part in ("running", "queued", "failed", "finished")
    ],
    "overview counts": lambda session: overview.overview(session).counts,
    "today": lambda session: overview.overview(session).finished_today,
    "sweeps": lambda session: [item.model_dump() for item in summaries(session, sweeps.page(session)[0])],
    "sweeps waiting": sweeps.waiting,
    "reusable": lambda session: sweeps.reusable(session, _fingerprints(session), Plan()),
    "due": queue.due,
    "artifacts due": artifacts.due,
    "messages": deliveries.write_down,
}
"""What counts or lists experiments, those that are looked up by their ids apart."""


def _fingerprints(session: Session) -> list[str]:
    return list(session.scalars(select(col(Experiment.fingerprint))))


@pytest.mark.parametrize("how", ["finished", "failed"])
def test_a_deleted_experiment_is_hidden_everywhere_and_can_be_had_back(database: Database, how: str) -> None:
    other = submit(database, seed=1)
    with database.write() as session:
        document = {"seeds": [], "webhook": {"url": "https://example.org", "events": ["experiment.failed"]}}
        sweep = sweeps.submit(
            session,
            name=None,
            notes="",
            document=document,
            cells=[{}],
            runs=[],
            plan=Plan(),
            reuse=False,
            webhook="https://example.org",
        ).id

    def seen() -> dict[str, object]:
        with database.read() as session:
            return {name: look(session) for name, look in LOOKS.items()}

    with database.write() as session:
        steering.pause(session, other)
    before = seen()
    key = ended(database, how, tags=["night"])
    with database.write() as session:
        row = lifecycle.locked(session, key)
        assert row is not None
        row.sweep, row.cell = sweep, {}
        wish, _ = artifacts.want(session, key, "features", {})
    ask(database, "mark_deleted", key)
    assert seen() == before
    with database.read() as session:
        assert experiments.get(session, key) is None
        assert experiments.ids_of(session, [key, other]) == {other}
        assert list(experiments.get_many(session, [key, other])) == [other]
        assert artifacts.get(session, wish.id) is None
        assert steering.removable(session) == []
    ask(database, "undelete", key)
    assert look(database, key).deleted_at is None
    assert seen() != before


def test_what_still_lives_cannot_be_deleted(database: Database) -> None:
    with pytest.raises(NotNow, match="is queued; cancel it before"):
        ask(database, "mark_deleted", submit(database))


def test_a_day_after_its_deletion_an_experiment_goes_with_its_rounds(database: Database) -> None:
    key, other = ended(database), ended(database)
    with database.write() as session:
        idempotency.keep(session, "key", "0" * 64, key, {})
        session.add(Artifact(id="A", experiment=key, kind="features", state="ready", requested_at=1.0))
        session.add(LogLine(experiment=key, number=1, at=1.0, level="INFO", text="x"))
    ask(database, "mark_deleted", key)
    with database.write() as session:
        row = lifecycle.locked_with_deleted(session, key)
        assert row is not None
        assert row.deleted_at is not None
        row.deleted_at -= steering.KEEP_DELETED_SECONDS + 1
    with database.write() as session:
        assert steering.removable(session) == [key]
        assert steering.undelete(session, key) is None
        steering.remove(session, key)
        steering.remove(session, other)
    with database.read() as session:
        assert lifecycle.locked_with_deleted(session, key) is None
        for table in (Artifact, IdempotencyKey, LogLine):
            assert session.execute(select(func.count()).select_from(table)).scalar_one() == 0
        assert list(session.scalars(select(col(Round.experiment)))) == [other], "what was not deleted stays"


def test_the_newest_log_lines_are_kept_in_order(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    lines = [Line(float(number), "INFO", f"line {number}") for number in range(1, KEEP_LINES + 11)]
    with database.write() as session:
        assert logs.append(session, held, lines[:5])
        assert logs.append(session, held, lines[5:400])
        assert logs.append(session, held, [*lines[400:], Line(0.0, "WARNING", "x" * 5000 + "\0")])
    with database.read() as session:
        found = logs.after(session, key)
        assert [line.number for line in found] == list(range(12, KEEP_LINES + 12))
        assert [line.text for line in found[:2]] == ["line 12", "line 13"]
        assert len(found[-1].text) < 2100
        assert [line.number for line in logs.after(session, key, KEEP_LINES + 10)] == [KEEP_LINES + 11]


def test_a_worker_that_lost_its_claim_writes_no_log(database: Database) -> None:
    key = submit(database)
    zombie = claim(database, lease_seconds=-1)
    assert zombie is not None
    claimed(database)
    with database.write() as session:
        assert not logs.append(session, zombie, [Line(0.0, "INFO", "still here")])
    with database.read() as session:
        assert logs.after(session, key) == []


def test_a_claim_whose_process_died_can_be_given_up_for_it(database: Database) -> None:
    key = submit(database)
    held = claimed(database)
    with database.write() as session:
        assert not orphans.give_up(session, key, held.fence - 1)
        assert orphans.give_up(session, key, held.fence)
    successor = claimed(database)
    assert (successor.experiment, successor.fence) == (key, held.fence + 1)


class TestAClockThatJumps:
    """SQLite takes the machine's clock, which people and time servers set."""

    @pytest.fixture
    def times(self) -> list[float]:
        return [1_900_000_000.0]

    @pytest.fixture
    def store(self, home: Path, times: list[float]) -> Iterator[Database]:
        store = Database(f"sqlite:///{home / 'clock.db'}", clock=lambda: times[0])
        migrate(store)
        yield store
        store.close()

    def test_set_back_it_does_not_hold_a_dead_workers_experiment(self, store: Database, times: list[float]) -> None:
        submit(store)
        dead = claim(store, "dead")
        assert dead is not None
        times[0] -= 3600
        successor = claim(store, "next")
        assert successor is not None
        assert successor.fence == dead.fence + 1
        with store.write() as session:
            assert rounds.commit_round(session, dead, record(0), 60) is Verdict.LOST

    def test_set_back_it_does_not_hold_a_dead_workers_artifact(self, store: Database, times: list[float]) -> None:
        key = submit(store)
        held = claim(store)
        assert held is not None
        with store.write() as session:
            row = lifecycle.held(session, held)
            assert row is not None
            lifecycle.finish(session, row, State.FINISHED)
            artifacts.want(session, key, "weights", {})
            dead = artifacts.claim(session, "dead", 60)
        assert dead is not None
        times[0] -= 3600
        with store.write() as session:
            assert artifacts.due(session) == 1
            successor = artifacts.claim(session, "next", 60)
        assert successor is not None
        assert successor.fence == dead.fence + 1

    def test_set_back_a_little_it_leaves_a_living_worker_alone(self, store: Database, times: list[float]) -> None:
        submit(store)
        claim(store, "alive")
        times[0] -= 30
        assert claim(store, "next") is None

    def test_set_forward_it_lets_one_worker_write_and_no_two(self, store: Database, times: list[float]) -> None:
        submit(store)
        old = claim(store, "old")
        assert old is not None
        times[0] += 3600
        new = claim(store, "new")
        assert new is not None
        with store.write() as session:
            assert rounds.commit_round(session, new, record(0), 60) is Verdict.STORED
            assert rounds.commit_round(session, old, record(1), 60) is Verdict.LOST

    def test_set_back_it_keeps_neither_a_cancel_nor_a_reconciler_waiting(
        self, store: Database, times: list[float]
    ) -> None:
        key = submit(store)
        claim(store, "dead")
        with store.write() as session:
            lifecycle.cancel(session, key)
            assert leases.acquire(session, "reconciler", "dead", 15)
            workers.register(session, name="dead", host="h", pid=1, device="cpu", slots=1)
        times[0] -= 3600
        with store.write() as session:
            assert leases.acquire(session, "reconciler", "next", 15)
            assert orphans.expire_cancelling(session, 180) == [key]
            assert workers.live_slots(session, 45) == 0
