"""The life cycle as a machine: anything may happen in any order, and the promises still hold."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import create_engine, delete, func, select, text
from sqlmodel import Session, col

from app.store import experiments, lifecycle, orphans, queue, rounds, steering
from app.store.claims import Claim
from app.store.clock import read_clock
from app.store.database import Database
from app.store.migrate import migrate
from app.store.plan import Plan
from app.store.rounds import Verdict
from app.store.states import TRANSITIONS, NotNow, State
from app.store.tables import Experiment, Round
from engine.spec.experiment import ExperimentSpec
from tests.services import postgres_database, record, spec_with

ROUNDS = 4
SPEC = ExperimentSpec.parse(spec_with(rounds=ROUNDS))
CANONICAL, FINGERPRINT = SPEC.canonical(), SPEC.fingerprint()
RECORDS = [record(number) for number in range(ROUNDS + 1)]
LEASE = 60.0
WORKERS = ("worker-1", "worker-2", "worker-3")
choice = st.integers(0, 1000)


@dataclass
class Held:
    """What one worker process believes: its claim, and the round it will hand in next."""

    claim: Claim
    next_round: int


def reachable(state: State) -> set[State]:
    found, new = {state}, {state}
    while new:
        new = {after for before in new for after in TRANSITIONS[before]} - found
        found |= new
    return found


def holds(claim: Claim, row: Experiment) -> bool:
    return row.fence == claim.fence and row.state in {State.RUNNING, State.CANCELLING}


class Clock:
    """The time of day of a store, which a test moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def set(self, moment: float) -> None:
        self.time = moment


class PostgresClock(Clock):
    """A function of the server's own that stands before the one of PostgreSQL."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with self._engine.begin() as connection:
            connection.execute(text("CREATE TABLE moved_clock AS SELECT 0::double precision AS time"))
            connection.execute(
                text(
                    "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE "
                    "AS 'SELECT to_timestamp(time) FROM moved_clock'"
                )
            )
            name = connection.execute(text("SELECT current_database()")).scalar_one()
            connection.execute(text(f"ALTER DATABASE {name} SET search_path = public, pg_catalog"))

    def set(self, moment: float) -> None:
        super().set(moment)
        with self._engine.begin() as connection:
            connection.execute(text("UPDATE moved_clock SET time = :time"), {"time": moment})

    def close(self) -> None:
        self._engine.dispose()


class Life(RuleBasedStateMachine):
    """Workers, people, the reconciler and the clock, each doing what it likes."""

    store: Database
    clock: Clock

    @initialize()
    def empty(self) -> None:
        with self.store.write() as session:
            for table in (Round, Experiment):
                session.execute(delete(table))
        self.clock.set(1_900_000_000.0)
        self.held: list[Held] = []
        self.fences: dict[str, int] = {}
        self.states: dict[str, State] = {}
        self.ended: dict[str, tuple[State, int]] = {}
        self.submitted: list[str] = []

    # people

    @precondition(lambda self: len(self.submitted) < 4)
    @rule(priority=st.integers(-2, 2))
    def submit(self, priority: int) -> None:
        with self.store.write() as session:
            plan = Plan(priority=priority)
            row = experiments.submit(session, CANONICAL, FINGERPRINT, plan)
        self.submitted.append(row.id)

    @precondition(lambda self: self.submitted)
    @rule(action=st.sampled_from(["pause", "resume", "cancel", "retry", "mark_deleted", "undelete"]), which=choice)
    def ask(self, action: str, which: int) -> None:
        key = self.submitted[which % len(self.submitted)]
        try:
            with self.store.write() as session:
                row = lifecycle.cancel(session, key) if action == "cancel" else getattr(steering, action)(session, key)
        except NotNow:
            return
        if action == "retry" and row is not None:
            assert row.retry_of == key
            self.submitted.append(row.id)

    # workers

    @rule(worker=st.sampled_from(WORKERS), checkpoint_behind=st.integers(0, 2))
    def claim(self, worker: str, checkpoint_behind: int) -> None:
        with self.store.write() as session:
            before = {row.id: (row.state, row.fence, row.lease) for row in session.scalars(select(Experiment))}
            found = queue.claim(session, worker, LEASE)
        if found is None:
            return
        state, fence, lease = before[found.experiment]
        assert found.fence == fence + 1
        if state is State.RUNNING:
            assert lease is not None
            assert not self.clock.time <= lease <= self.clock.time + 2 * LEASE, "its owner's lease still held"
        else:
            assert state is State.QUEUED
        self.held.append(Held(found, max(0, found.next_round - checkpoint_behind)))

    @precondition(lambda self: self.held)
    @rule(which=choice, times=st.integers(1, 3))
    def commit(self, which: int, times: int) -> None:
        held = self.held[which % len(self.held)]
        for _ in range(times):
            row, valid = self.look(held.claim)
            with self.store.write() as session:
                verdict = rounds.commit_round(session, held.claim, RECORDS[held.next_round], LEASE)
            if not valid:
                assert verdict is Verdict.LOST
            elif row.cancel:
                assert verdict is Verdict.CANCELLED
            elif held.next_round == ROUNDS:
                assert verdict is Verdict.FINISHED
            else:
                assert verdict is (Verdict.REPEATED if held.next_round < row.next_round else Verdict.STORED)
            if not verdict.goes_on():
                self.held.remove(held)
                return
            held.next_round += 1

    @precondition(lambda self: self.held)
    @rule(which=choice, action=st.sampled_from(["renew", "release", "fail", "diverge", "obey_cancel", "hold"]))
    def act(self, which: int, action: str) -> None:
        held = self.held[which % len(self.held)]
        row, valid = self.look(held.claim)
        if action == "obey_cancel" and not row.cancel:
            return  # no worker does that
        with self.store.write() as session:
            if action == "renew":
                assert (lifecycle.renew(session, held.claim, LEASE) is not None) is valid
                return
            if action in {"release", "obey_cancel"}:
                done = getattr(lifecycle, action)(session, held.claim)
            else:
                done = getattr(lifecycle, action)(session, held.claim, "disk full: reason")
        assert done is valid
        self.held.remove(held)

    @precondition(lambda self: self.held)
    @rule(which=choice, noticed=st.booleans())
    def crash(self, which: int, noticed: bool) -> None:
        held = self.held.pop(which % len(self.held))
        if noticed:
            with self.store.write() as session:
                orphans.give_up(session, held.claim.experiment, held.claim.fence)

    # everything else

    @rule(seconds=st.sampled_from([1, 30, 61, 200, -30, -3600]))
    def time_passes(self, seconds: int) -> None:
        self.clock.set(self.clock.time + seconds)

    @rule()
    def reconcile(self) -> None:
        with self.store.write() as session:
            orphans.expire_cancelling(session, 180, LEASE)
            orphans.fail_hopeless(session, LEASE)
            orphans.settle(session, LEASE)
            steering.resume_held(session, "disk full")

    def look(self, claim: Claim) -> tuple[Experiment, bool]:
        """The row, and whether the claim still holds."""
        with self.store.read() as session:
            row = session.get(Experiment, claim.experiment)
        assert row is not None
        return row, holds(claim, row)

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "submitted"):
            return
        with self.store.read() as session:
            stored = _rounds(session)
            rows = list(session.scalars(select(Experiment)))
        for row in rows:
            assert row.fence >= self.fences.get(row.id, 0), "fences only grow"
            assert row.state in reachable(self.states.get(row.id, State.QUEUED)), "no way leads there"
            assert stored.get(row.id, (0, -1)) == (row.next_round, row.next_round - 1), "rounds without a gap"
            working = row.state in {State.RUNNING, State.CANCELLING}
            assert (row.owner is not None, row.lease is not None) == (working, working), (
                "one owner, while it is worked on"
            )
            if row.state is not State.RUNNING:
                assert not row.pause
            if row.id in self.ended:
                assert self.ended[row.id] == (row.state, row.next_round), "an end is final"
            elif row.state.is_finished():
                self.ended[row.id] = (row.state, row.next_round)
            self.fences[row.id], self.states[row.id] = row.fence, row.state
        now = {row.id: row for row in rows}
        valid = [held.claim.experiment for held in self.held if holds(held.claim, now[held.claim.experiment])]
        assert len(valid) == len(set(valid)), "one owner at a time"


def _rounds(session: Session) -> dict[str, tuple[int, int]]:
    """How many rounds each experiment has, and the last one's number."""
    query = select(col(Round.experiment), func.count(), func.max(col(Round.round))).group_by(col(Round.experiment))
    return {key: (count, last) for key, count, last in session.execute(query)}


@pytest.fixture
def machine() -> Iterator[type[Life]]:
    """On a file in memory, where there is one: this is about logic, not about disks."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="fa-", dir=place))
    clock = Clock()
    store = Database(f"sqlite:///{folder / 'life.db'}", clock=lambda: clock.time)
    migrate(store)
    yield type("LifeOnSqlite", (Life,), {"store": store, "clock": clock})
    store.close()
    shutil.rmtree(folder)


@pytest.fixture
def postgres_machine(postgres_server: str) -> Iterator[type[Life]]:
    with postgres_database(postgres_server) as url:
        clock = PostgresClock(url)
        store = Database(url)
        migrate(store)
        clock.set(7.0)
        with store.read() as session:
            assert read_clock(session) == 7.0
        yield type("LifeOnPostgres", (Life,), {"store": store, "clock": clock})
        store.close()
        clock.close()


def examine(machine: type[Life], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # shrinking takes minutes; the steps that led there are shown as they are
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_fences_grow_rounds_have_no_gap_and_ends_are_final(machine: type[Life]) -> None:
    examine(machine, 60)


@pytest.mark.postgres
def test_the_promises_hold_on_postgresql_too(postgres_machine: type[Life]) -> None:
    examine(postgres_machine, 20)


@pytest.mark.slow
@pytest.mark.chaos
def test_the_promises_hold_in_two_thousand_lives(machine: type[Life]) -> None:
    examine(machine, 2000)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.postgres
def test_the_promises_hold_in_five_hundred_lives_on_postgresql(postgres_machine: type[Life]) -> None:
    examine(postgres_machine, 500)
