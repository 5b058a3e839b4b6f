"""Sweeps in the store: all experiments or none, what is reused, and who stands where after a retry."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlmodel import Session, col

from app.store import deliveries, experiments, lifecycle, rounds, steering, sweeps
from app.store.database import Database
from app.store.plan import Plan
from app.store.states import State
from app.store.sweeps import NewRun, NotEnded
from app.store.tables import Experiment, Sweep
from app.views.sweeps import SweepView, summaries, sweep_view
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, meanwhile, record, spec_with, state, submit

CELLS = [{"rounds": 1}, {"rounds": 2}]
SEEDS = (7, 8)


def new_runs(reason: str | None = None) -> list[NewRun]:
    runs = []
    for seed in SEEDS:
        for number, cell in enumerate(CELLS):
            spec = ExperimentSpec.parse(spec_with(seed=seed, **cell))
            runs.append(NewRun(number, seed, spec.canonical(), spec.fingerprint(), reason if number else None))
    return runs


def make(database: Database, *, reason: str | None = None, reuse: bool = True, **options: Any) -> str:
    values: dict[str, Any] = {"name": "lr", "notes": "", "document": {"seeds": list(SEEDS)}, "plan": Plan(), **options}
    with database.write() as session:
        return sweeps.submit(session, cells=CELLS, runs=new_runs(reason), reuse=reuse, **values).id


def look(database: Database, key: str) -> SweepView:
    with database.read() as session:
        return sweep_view(session, found(session, key), 60)


def found(session: Any, key: str) -> Sweep:
    row = sweeps.get(session, key)
    assert row is not None
    return row


def run_all(database: Database, accuracy: float = 0.5) -> None:
    """As a worker would, with a made-up accuracy."""
    while (held := claim(database)) is not None:
        for number in range(held.spec["rounds"] + 1):
            with database.write() as session:
                rounds.commit_round(session, held, record(number, accuracy + held.spec["seed"] / 100), 60)


def fail_one(database: Database) -> str:
    held = claim(database)
    assert held is not None
    with database.write() as session:
        lifecycle.fail(session, held, "the disk burned")
    return held.experiment


def test_the_first_seed_of_every_cell_is_claimed_before_the_second(database: Database) -> None:
    make(database)
    order = []
    while (held := claim(database)) is not None:
        order.append((held.spec["seed"], held.spec["rounds"]))
    assert order == [(7, 1), (7, 2), (8, 1), (8, 2)]


def test_the_plan_reaches_every_experiment(database: Database) -> None:
    key = make(database, plan=Plan.model_validate({"priority": 3, "window": {"from": "22:00", "to": "06:00"}}))
    with database.read() as session:
        rows = [member.experiment for member in sweeps.members(session, found(session, key))]
    assert {(row.priority, row.window_from, row.window_to, row.sweep) for row in rows} == {(3, 1320, 360, key)}


def test_nothing_is_stored_when_one_experiment_cannot_be(database: Database) -> None:
    runs = new_runs()
    broken = NewRun(0, 9, {**runs[0].spec, "rounds": None}, "f" * 64)
    with pytest.raises(Exception, match=r"(?i)null"), database.write() as session:
        sweeps.submit(
            session, name=None, notes="", document={}, cells=CELLS, runs=[*runs, broken], plan=Plan(), reuse=True
        )
    with database.read() as session:
        assert (experiments.count(session), sweeps.page(session)) == (0, ([], None))


def test_mean_and_deviation_are_over_finished_seeds(database: Database) -> None:
    key = make(database)
    run_all(database)
    view = look(database, key)
    best = view.cells[0].best
    assert best is not None
    assert (best.seeds, round(best.mean, 6), round(best.std or 0, 6)) == (2, 0.575, 0.007071)
    assert (view.state, view.counts, view.rounds_done, view.rounds_total) == ("finished", {"finished": 4}, 6, 6)
    assert [[run.seed for run in cell.runs] for cell in view.cells] == [[7, 8], [7, 8]]


def test_what_is_not_applicable_is_listed_with_its_reason_and_never_claimed(database: Database) -> None:
    key = make(database, reason="needs one width")
    run_all(database)
    view = look(database, key)
    assert view.counts == {"finished": 2, "not_applicable": 2}
    assert {run.reason for run in view.cells[1].runs} == {"needs one width"}
    assert view.state == "finished"


def test_experiments_that_are_there_already_are_reused(database: Database) -> None:
    old = submit(database, seed=7, rounds=1)
    run_all(database)
    key = make(database)
    view = look(database, key)
    assert (view.experiments, view.reused, view.counts) == (4, 1, {"queued": 3, "finished": 1})
    assert [(run.experiment, run.reused) for run in view.cells[0].runs if run.seed == 7] == [(old, True)]
    with database.read() as session:
        [summary] = summaries(session, [found(session, key)])
    assert summary.counts == view.counts


def test_reuse_can_be_switched_off(database: Database) -> None:
    submit(database, seed=7, rounds=1)
    assert look(database, make(database, reuse=False)).reused == 0


@pytest.mark.parametrize("why", ["cancelled", "deleted", "stopped early", "other rule"])
def test_what_would_give_another_result_is_not_reused(database: Database, why: str) -> None:
    old = submit(database, seed=7, rounds=1)
    with database.write() as session:
        row = experiments.get(session, old)
        assert row is not None
        if why == "cancelled":
            lifecycle.cancel(session, old)
        elif why == "deleted":
            row.deleted_at = 1.0
        elif why == "stopped early":
            row.state, row.stop, row.stopped_by = State.FINISHED, {"target": 0.3}, "target"
        else:
            row.stop = {"target": 0.3}
    assert look(database, make(database)).reused == 0


@pytest.mark.parametrize(
    "plan",
    [
        {"start_after": "2999-01-01T00:00:00Z"},
        {"window": {"from": "22:00", "to": "06:00"}},
    ],
)
def test_what_waits_for_a_later_time_than_the_sweep_is_not_reused(database: Database, plan: dict[str, Any]) -> None:
    strict = Plan.model_validate(plan)
    make(database, plan=strict)
    assert look(database, make(database, plan=strict)).reused == 4, "under the same plan it is"
    assert look(database, make(database)).reused == 0
    run_all(database)
    assert look(database, make(database, plan=strict)).reused == 4, "what has ended waits for nothing"


def test_what_is_about_to_be_paused_is_not_reused(database: Database) -> None:
    submit(database, seed=7, rounds=1)
    held = claim(database)
    assert held is not None
    with database.write() as session:
        steering.pause(session, held.experiment)
    assert look(database, make(database)).reused == 0


def test_what_is_reused_gets_the_greater_of_both_priorities(database: Database) -> None:
    low = submit(database, Plan(priority=-100), seed=7, rounds=1)
    high = submit(database, Plan(priority=90), seed=7, rounds=2)
    key = make(database, plan=Plan(priority=50))
    assert look(database, key).reused == 2
    with database.read() as session:
        assert [row.priority for row in experiments.get_many(session, [low, high]).values()] == [50, 90]


def test_a_deleted_reused_experiment_leaves_the_sweep_incomplete_until_a_retry(database: Database) -> None:
    old = submit(database, seed=7, rounds=1)
    run_all(database)
    key = make(database)
    run_all(database)
    with database.write() as session:
        steering.mark_deleted(session, old)

    def told() -> tuple[str, dict[str, int]]:
        view = look(database, key)
        with database.read() as session:
            [summary] = summaries(session, [found(session, key)])
        assert (summary.state, summary.counts) == (view.state, view.counts)
        return view.state, view.counts

    assert told() == ("cancelled", {"finished": 3, "cancelled": 1})
    with database.write() as session:
        [again] = sweeps.retry(session, found(session, key), anew=new_runs())
    assert told() == ("queued", {"queued": 1, "finished": 3})
    assert [(run.experiment, run.retry_of) for run in look(database, key).cells[0].runs if run.seed == 7] == [
        (again, old)
    ]
    with database.write() as session:
        assert sweeps.retry(session, found(session, key), anew=new_runs()) == []
    run_all(database)
    assert told() == ("finished", {"finished": 4})


def test_the_same_stop_rule_is_reused_and_a_complete_run_always(database: Database) -> None:
    plan = Plan.model_validate({"stop": {"target": 0.3}})
    first = make(database, plan=plan)
    assert look(database, make(database, plan=plan)).reused == 4
    with database.write() as session:
        sweeps.for_each(session, found(session, first), lifecycle.cancel)
    submit(database, seed=7, rounds=1)
    run_all(database)
    assert look(database, make(database, plan=plan)).reused == 1


def test_a_retry_repeats_only_what_ended_badly_and_takes_its_place(database: Database) -> None:
    key = make(database)
    failed = fail_one(database)
    run_all(database)
    assert look(database, key).state == "failed"
    with database.write() as session:
        [again] = sweeps.retry(session, found(session, key))
    view = look(database, key)
    assert view.counts == {"queued": 1, "finished": 3}
    assert [(run.experiment, run.retry_of) for run in view.cells[0].runs if run.seed == 7] == [(again, failed)]
    with database.read() as session:
        [summary] = summaries(session, [found(session, key)])
    assert summary.counts == view.counts
    run_all(database)
    assert (look(database, key).state, state(database, failed)) == ("finished", State.FAILED)


def test_a_failed_reused_experiment_is_repeated_as_the_sweeps_own(database: Database) -> None:
    submit(database, seed=7, rounds=1)
    plan = {"priority": 4, "window": {"from": "22:00", "to": "06:00", "zone": "+02:00"}}
    key = make(database, plan=Plan.model_validate(plan), document={"seeds": list(SEEDS), **plan})
    failed = fail_one(database)
    with database.write() as session:
        [again] = sweeps.retry(session, found(session, key))
        row = experiments.get(session, again)
        assert row is not None
        assert (row.priority, row.window_from, row.window_to) == (4, 20 * 60, 4 * 60), "under the sweep's own plan"
    view = look(database, key)
    assert [(run.experiment, run.retry_of, run.reused) for run in view.cells[0].runs if run.seed == 7] == [
        (again, failed, False)
    ]


def test_cancelling_a_sweep_spares_what_it_only_reuses(database: Database) -> None:
    old = submit(database, seed=7, rounds=1)
    key = make(database)
    with database.write() as session:
        assert sweeps.for_each(session, found(session, key), lifecycle.cancel) == 3
    assert look(database, key).counts == {"queued": 1, "cancelled": 3}
    assert state(database, old) is State.QUEUED


def steered(
    pool: ThreadPoolExecutor, database: Database, key: str, change: Callable[[Session, Sweep], Any]
) -> Future[Any]:
    return meanwhile(pool, database, lambda session: change(session, found(session, key)))


@pytest.mark.postgres
@pytest.mark.parametrize("change", [lifecycle.cancel, steering.pause, steering.resume])
def test_a_round_is_committed_while_its_sweep_is_steered(postgres: Database, change: Callable[..., Any]) -> None:
    key = make(postgres)
    claim(postgres)
    held = claim(postgres)
    assert held is not None
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            assert lifecycle.held(session, held) is not None
            asked = steered(pool, postgres, key, lambda s, sweep: sweeps.for_each(s, sweep, change))
            assert rounds.commit_round(session, held, record(0), 60) is rounds.Verdict.STORED
        assert asked.result() == 4


@pytest.mark.postgres
def test_two_retries_at_once_make_one_new_experiment_for_each_failed_one(postgres: Database) -> None:
    key = make(postgres)
    fail_one(postgres)
    fail_one(postgres)
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            first = sweeps.retry(session, found(session, key))
            second = steered(pool, postgres, key, sweeps.retry)
        assert (len(first), second.result()) == (2, [])
    assert look(postgres, key).counts == {"queued": 4}


@pytest.mark.postgres
def test_a_retry_of_one_experiment_counts_for_a_retry_of_its_sweep(postgres: Database) -> None:
    key = make(postgres)
    failed = fail_one(postgres)
    with ThreadPoolExecutor(1) as pool:
        with postgres.write() as session:
            assert steering.retry(session, failed) is not None
            whole = steered(pool, postgres, key, sweeps.retry)
        assert whole.result() == []


def statements(database: Database, work: Callable[[Session], object]) -> list[str]:
    """What a transaction asks of the database, in order."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    with database.write() as session:
        event.listen(database.engine, "before_cursor_execute", note)
        try:
            work(session)
        finally:
            event.remove(database.engine, "before_cursor_execute", note)
    return asked


def test_the_counter_is_taken_after_all_rows_are_written_and_locked(database: Database) -> None:
    """Whoever has it holds up every round that is to be stored, and must wait for nobody who waits for it."""
    old = submit(database, rounds=1, seed=7)

    def whole(session: Session) -> None:
        sweeps.submit(
            session,
            name=None,
            notes="",
            document={},
            cells=CELLS,
            runs=new_runs(),
            plan=Plan(priority=3),
            reuse=True,
        )

    asked = statements(database, whole)
    first = next(place for place, statement in enumerate(asked) if "UPDATE counter" in statement)
    assert [line for line in asked[:first] if line.startswith("INSERT INTO experiment")] != []
    after = [line for line in asked[first:] if line.startswith("INSERT") or "FOR " in line or "FROM experiment" in line]
    assert after == []
    with database.read() as session:
        reused = experiments.get(session, old)
        rows = list(session.scalars(select(Experiment).order_by(col(Experiment.id))))
    assert reused is not None
    assert reused.priority == 3
    assert [row.place for row in rows] == sorted({row.place for row in rows}), "in the order of the document"
    assert [row.seq for row in rows[1:]] == [row.place for row in rows[1:]] == [row.state_seq for row in rows[1:]]


def test_only_an_ended_sweep_can_be_deleted(database: Database) -> None:
    key = make(database)
    with pytest.raises(NotEnded), database.write() as session:
        sweeps.mark_deleted(session, found(session, key))
    run_all(database)
    with database.write() as session:
        sweeps.mark_deleted(session, found(session, key))
    with database.read() as session:
        assert sweeps.get(session, key) is None
        assert experiments.count(session) == 4


def test_time_left_follows_from_measured_rounds_and_says_what_is_unknown(database: Database) -> None:
    key = make(database)
    before = look(database, key).time_left
    assert (before.seconds, before.unknown) == (None, 4)
    held = claim(database)
    assert held is not None
    for number in range(2):
        with database.write() as session:
            rounds.commit_round(session, held, record(number), 60)
    left = look(database, key).time_left
    assert (left.seconds, left.unknown, left.slots) == (None, 0, 0)


def test_a_webhook_is_told_once_when_the_sweep_has_ended_and_again_after_a_retry(database: Database) -> None:
    events = ["sweep.failed", "sweep.finished", "experiment.failed"]
    document = {"seeds": list(SEEDS), "webhook": {"url": "https://example.org", "events": events}}
    key = make(database, document=document, webhook="https://example.org")

    def told() -> list[str]:
        with database.write() as session:
            deliveries.write_down(session)
            deliveries.write_down(session)
        return [row.event for row in look(database, key).deliveries][::-1]

    assert told() == []
    fail_one(database)
    assert told() == ["experiment.failed"]
    run_all(database)
    assert told() == ["experiment.failed", "sweep.failed"]
    with database.write() as session:
        sweeps.retry(session, found(session, key))
    assert told() == ["experiment.failed", "sweep.failed"]
    run_all(database)
    assert told() == ["experiment.failed", "sweep.failed", "sweep.finished"]


def test_a_webhook_is_told_of_an_ended_sweep_however_many_older_ones_wait(database: Database) -> None:
    options: dict[str, Any] = {
        "document": {"webhook": {"url": "https://example.org"}},
        "webhook": "https://example.org",
    }
    for _ in range(60):
        make(database, reuse=False, **options)
    last = make(database, reuse=False, **options)
    with database.write() as session:
        sweeps.for_each(session, found(session, last), lifecycle.cancel)
        assert len(deliveries.write_down(session)) == 1
    assert [row.event for row in look(database, last).deliveries] == ["sweep.cancelled"]


def test_a_webhook_is_told_of_a_sweep_that_only_reuses(database: Database) -> None:
    options: dict[str, Any] = {
        "document": {"webhook": {"url": "https://example.org"}},
        "webhook": "https://example.org",
    }
    make(database)
    key = make(database, **options)
    with database.write() as session:
        assert deliveries.write_down(session) == []
    run_all(database)
    with database.write() as session:
        assert len(deliveries.write_down(session)) == 1
    assert [row.event for row in look(database, key).deliveries] == ["sweep.finished"]


def test_a_message_is_tried_again_later_and_given_up_in_the_end(database: Database) -> None:
    key = make(database, document={"webhook": {"url": "https://example.org"}}, webhook="https://example.org")
    run_all(database)
    with database.write() as session:
        [message] = deliveries.write_down(session)
    waits = []
    for _ in range(len(deliveries.WAITS) + 1):
        with database.write() as session:
            deliveries.note(session, message, "no answer")
            assert deliveries.due(session) == []
        [row] = look(database, key).deliveries
        waits.append(row.next_try is not None)
    assert waits == [True] * len(deliveries.WAITS) + [False]
    assert (row.attempts, row.error, row.delivered_at) == (6, "no answer", None)
