"""When an experiment may run: priority, first moment, window; and what ends it early. On both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.store import experiments, lifecycle, orphans, queue, rounds
from app.store.database import Database
from app.store.migrate import migrate
from app.store.plan import Plan, StopRule, Window
from app.store.rounds import Verdict
from app.store.states import State
from app.views.experiments import experiment_view
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, look, record, spec_with

WINTER, SUMMER = datetime(2030, 1, 15, tzinfo=UTC), datetime(2030, 7, 15, tzinfo=UTC)


def planned(database: Database, plan: Plan, **changes: object) -> str:
    spec = ExperimentSpec.parse(spec_with(**changes))
    with database.write() as session:
        return experiments.submit(session, spec.canonical(), spec.fingerprint(), plan).id


def window_around_now(begin: int, end: int) -> Window:
    """From and to, in minutes from this one."""
    now = datetime.now(UTC)
    return Window.parse("-".join((now + timedelta(minutes=shift)).strftime("%H:%M") for shift in (begin, end)))


def test_a_window_is_kept_in_utc_by_the_offset_of_its_zone() -> None:
    night = Window.parse("22:00-08:00", "Europe/Berlin")
    assert night.minutes(WINTER) == (21 * 60, 7 * 60)
    assert night.minutes(SUMMER) == (20 * 60, 6 * 60)
    assert Window.parse("00:30-01:00", "Asia/Kolkata").minutes(WINTER) == (19 * 60, 19 * 60 + 30)
    assert Window.parse("00:30-01:00", "+05:30").minutes(WINTER) == (19 * 60, 19 * 60 + 30)


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("22:00", "UTC", "looks like 22:00-08:00, but got '22:00'"),
        ("25:00-08:00", "UTC", "a time of day looks like 22:00, but got '25:00'"),
        ("08:00-08:00", "UTC", "must not begin and end at the same minute"),
        ("22:00-08:00", "Mars/Olympus", "must be a time zone like Europe/Berlin or \\+02:00, but got 'Mars/Olympus'"),
        ("22:00-08:00", "+25:00", "must be a time zone like"),
        ("22:00-08:00", "../../etc/passwd", "must be a time zone like"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(text: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Window.parse(text, zone)


@pytest.mark.parametrize(
    ("begin", "end", "is_open"), [(-60, 60, True), (60, 120, False), (-120, -60, False), (60, -60, False)]
)
def test_a_claim_respects_the_window(database: Database, begin: int, end: int, is_open: bool) -> None:
    planned(database, Plan(window=window_around_now(begin, end)))
    with database.read() as session:
        assert queue.due(session) == int(is_open)
    assert (claim(database) is not None) is is_open


@pytest.mark.parametrize(("hour", "is_open"), [(21, False), (22, True), (23, True), (0, True), (7, True), (8, False)])
def test_a_window_may_lead_over_midnight(home: Path, hour: int, is_open: bool) -> None:
    moment = datetime(2030, 1, 15, hour, 0, 0, tzinfo=UTC).timestamp()
    store = Database(f"sqlite:///{home / 'clock.db'}", clock=lambda: moment)
    migrate(store)
    planned(store, Plan(window=Window.parse("22:00-08:00")))
    assert (claim(store) is not None) is is_open
    store.close()


def test_a_running_experiment_is_told_that_its_window_has_closed(home: Path) -> None:
    times = [datetime(2030, 1, 15, 7, 59, tzinfo=UTC).timestamp()]
    store = Database(f"sqlite:///{home / 'clock.db'}", clock=lambda: times[0])
    migrate(store)
    planned(store, Plan(window=Window.parse("22:00-08:00")))
    held = claim(store)
    assert held is not None
    with store.write() as session:
        assert lifecycle.renew(session, held, 60) == lifecycle.Standing(cancel=False)
        times[0] += 60
        assert lifecycle.renew(session, held, 60) == lifecycle.Standing(cancel=False, in_window=False)
        assert lifecycle.standing(session, held) == lifecycle.Standing(cancel=False, in_window=False)
    store.close()


def test_what_a_dead_worker_held_goes_back_to_the_queue_when_its_window_closes(database: Database) -> None:
    key = planned(database, Plan(window=window_around_now(-60, 60)))
    dead = claim(database, lease_seconds=-1)
    assert dead is not None
    closed = Plan(window=window_around_now(60, 120)).columns()
    with database.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.window_from, row.window_to = closed["window_from"], closed["window_to"]
    assert claim(database) is None
    with database.write() as session:
        assert orphans.settle(session) == [key]
    row = look(database, key)
    assert (row.state, row.deaths, row.owner) == (State.QUEUED, 1, None)
    with database.write() as session:
        assert rounds.commit_round(session, dead, record(0), 60) is Verdict.LOST


def test_the_position_counts_who_is_taken_before(database: Database) -> None:
    plans = (Plan(), Plan(priority=5), Plan(), Plan(priority=-5))
    keys = [planned(database, plan) for plan in plans]
    with database.read() as session:
        found = [queue.position(session, look(database, key)) for key in keys]
    assert found == [1, 0, 2, 3]
    assert [held and held.experiment for held in (claim(database) for _ in keys)] == [keys[n] for n in (1, 0, 2, 3)]


def test_the_view_shows_the_plan(database: Database) -> None:
    moment = datetime(2030, 1, 15, 22, 0, tzinfo=UTC)
    rule = StopRule(target=0.9, patience=3, min_gain=0.01)
    key = planned(database, Plan(priority=7, start_after=moment, window=Window.parse("22:00-08:00"), stop=rule))
    view = experiment_view(look(database, key)).model_dump(mode="json")
    assert (view["priority"], view["start_after"]) == (7, "2030-01-15T22:00:00.000Z")
    assert view["window"] == {"from": "22:00", "to": "08:00", "zone": "UTC"}
    assert view["stop"] == {"target": 0.9, "patience": 3, "min_gain": 0.01}


@pytest.mark.parametrize("rule", [{}, {"min_gain": 0.1}, {"target": 1.5}, {"patience": 0}, {"epochs": 3}])
def test_a_stop_rule_that_makes_no_sense_is_refused(rule: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        StopRule.model_validate(rule)


@pytest.mark.parametrize(
    ("rule", "accuracies", "stops_after", "words"),
    [
        ({"target": 0.7}, [0.5, 0.6, 0.7, 0.8], 3, "accuracy 0.7000 reached the target 0.7 in round 3"),
        ({"patience": 2}, [0.5, 0.6, 0.6, 0.5, 0.9], 4, "2 rounds brought +0.0000 over the best before them"),
        ({"patience": 2}, [0.5, 0.6, 0.55, 0.61, 0.62], None, None),
        ({"patience": 2, "min_gain": 0.1}, [0.5, 0.55, 0.58, 0.59], 3, "not at least 0.1, up to round 3"),
        ({"patience": 2}, [None, None, None, None, None], None, None),
        ({"patience": 2}, [0.5, None, None, None, 0.4], 5, "-0.1000"),
        ({"target": 0.9, "patience": 3}, [0.1, 0.1, 0.1, 0.1], 4, "3 rounds brought"),
    ],
)
def test_a_stop_rule_ends_the_experiment_as_finished(
    database: Database,
    rule: dict[str, float],
    accuracies: list[float | None],
    stops_after: int | None,
    words: str | None,
) -> None:
    key = planned(database, Plan(stop=StopRule.model_validate(rule)), rounds=50)
    held = claim(database)
    assert held is not None
    assert held.has_stop_rule
    for number, accuracy in enumerate([None, *accuracies]):
        item = record(number, accuracy)
        with database.read() as session:
            expected = rounds.would_stop(session, held, item)
        with database.write() as session:
            verdict = rounds.commit_round(session, held, item, 60)
        assert expected is (verdict is Verdict.FINISHED)
        if verdict is Verdict.FINISHED:
            break
    row = look(database, key)
    if stops_after is None:
        assert (row.state, row.stopped_by) == (State.RUNNING, None)
    else:
        assert (row.state, row.next_round) == (State.FINISHED, stops_after + 1)
        assert words is not None
        assert words in (row.stopped_by or "")
