"""How long experiments take here: numbers by hand."""

from typing import Any

import pytest

from app.store import overview, pace, rounds
from app.store.database import Database
from app.store.pace import GUESSED_RATE, GUESSED_STARTUP, HANDOVER, LATEST, Amount, Measured, Pace
from app.store.tables import Experiment
from engine.spec.experiment import ExperimentSpec
from tests.services import claim, record, spec_with, submit


def spec(**changes: Any) -> dict[str, Any]:
    return ExperimentSpec.parse(spec_with(**changes)).canonical()


def measured(a_round: float, *, opening: float = 0.0, startup: float | None = None, **changes: Any) -> Measured:
    """Ten rounds of 100 FLOPs and 10 bytes; the opening has 50 and 5."""
    return Measured("", spec(**changes), 10, 10 * a_round + opening, 1050, 105, opening, 50, 5, startup)


def test_an_opening_of_30_s_and_rounds_of_10_s_are_10_s_a_round_and_30_s_once() -> None:
    found = Pace([measured(10, opening=30, startup=4)]).known(spec(seed=99, rounds=500, name="another"))
    assert found is not None
    assert (found.a_round, found.opening, found.startup) == (10, 30, 4 + HANDOVER)
    assert (found.basis, found.experiments) == ("measured", 1)
    assert found.whole(500) == pytest.approx(500 * 10 + 30 + 4 + HANDOVER)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_one_measurement_on_a_busy_machine_does_not_rule(slow: int) -> None:
    seconds = [10.0, 10.0, 10.0]
    seconds[slow] = 400.0
    for several in (seconds, [400.0, 10.0]):
        found = Pace(measured(value) for value in several).known(spec())
        assert found is not None
        assert found.a_round == 10


def test_only_the_newest_measurements_count() -> None:
    found = Pace([measured(2)] * LATEST + [measured(9)] * 100).known(spec())
    assert found is not None
    assert (found.a_round, found.experiments) == (2, LATEST)


def test_another_setting_of_the_same_method_is_scaled_by_the_images_of_a_round() -> None:
    known = Pace([measured(10, opening=30)])
    found = known.known(spec(participation=0.5, training={"epochs": 4, "batch_size": 16}))
    assert found is not None
    assert (found.a_round, found.opening, found.basis) == (20, 30, "scaled")
    assert known.known(spec(algorithm={"name": "fedprox"})) is None


def test_what_decides_the_time_of_a_round_is_part_of_the_comparison() -> None:
    known = Pace([measured(10)])
    changes: list[dict[str, Any]] = [
        {"partition": {"name": "dirichlet", "beta": 0.5}},
        {"clients": 3},
        {"evaluation": {"every": 5}},
    ]
    for changed in changes:
        found = known.known(spec(**changed))
        assert found is not None
        assert found.basis == "scaled", changed


def test_flops_give_a_rough_time_to_what_was_never_measured() -> None:
    plain = spec(algorithm={"name": "fedprox"})
    rate = Pace([measured(10, opening=30), measured(10, opening=30), measured(90)]).rated(plain, 50, 20)
    assert (rate.a_round, rate.opening) == pytest.approx((5, 2))
    assert rate.basis == "rate"
    guess = Pace([]).rated(plain, int(GUESSED_RATE), 0)
    assert (guess.a_round, guess.startup, guess.basis) == (1, GUESSED_STARTUP + HANDOVER, "guess")


def test_the_start_is_that_of_the_data_set_else_of_any() -> None:
    digits = {"name": "digits"}
    known = Pace([measured(1, startup=2), *[measured(1, startup=7, dataset=digits)] * 3])
    here, there = known.known(spec()), known.known(spec(dataset=digits))
    elsewhere = known.rated(spec(dataset={"name": "cifar10"}), 1, 0)
    assert here is not None
    assert there is not None
    assert [found.startup - HANDOVER for found in (here, there, elsewhere)] == pytest.approx([2, 7, 7])


def test_the_bytes_of_the_opening_are_not_spread_over_the_rounds() -> None:
    assert Pace([measured(1)]).traffic(spec()) == Amount(a_round=10, opening=5)


def test_flops_are_those_of_equal_specs_alone() -> None:
    known = Pace([measured(1)])
    assert known.flops(spec()) == Amount(a_round=100, opening=50)
    assert known.flops(spec(training={"epochs": 7})) is None


def run(database: Database, seconds: list[float], **changes: Any) -> str:
    """As a worker would, with made-up seconds; the first are those of the opening."""
    key = submit(database, **changes)
    held = claim(database)
    assert held is not None
    for number, value in enumerate(seconds):
        with database.write() as session:
            rounds.commit_round(session, held, record(number, seconds=value), 60)
    return key


def test_an_experiment_is_judged_by_its_own_rounds_once_there_are_enough(database: Database) -> None:
    run(database, [30, 10, 10, 10], rounds=3)
    young = run(database, [30, 40, 40], rounds=9, seed=8)
    old = run(database, [30, 40, 40, 40], rounds=9, seed=9)
    waiting = submit(database, rounds=9, seed=10)
    with database.read() as session:
        rows = [session.get_one(Experiment, key) for key in (young, old, waiting)]
        known = pace.read(session, rows=rows)
        timings = [known.of(row) for row in rows]
    found = [(row, timing) for row, timing in zip(rows, timings, strict=True) if timing is not None]
    # of 10, 40 and 40 the middle one is 40
    assert [timing.a_round for _, timing in found] == [40, 40, 40]
    assert [pace.left(row, timing) for row, timing in found[:2]] == [7 * 40, 6 * 40]
    waits = found[2][1]
    assert pace.left(*found[2]) == 9 * 40 + 30 + waits.startup


def test_the_queue_that_is_not_shown_counts_every_start_and_opening(database: Database) -> None:
    run(database, [30, 10, 10, 10], rounds=3)
    for seed in range(overview.QUEUE_SHOWN + 2):
        submit(database, rounds=5, seed=100 + seed)
    with database.read() as session:
        known = pace.read(session)
        later = overview.overview(session).later
        timing = known.known(spec())
    assert timing is not None
    assert later == {("fedavg", "synthetic"): overview.Later(experiments=2, openings=2, rounds=10)}
    assert overview.later_seconds(later, known) == pytest.approx(2 * (timing.startup + 30) + 10 * 10)
    assert overview.later_seconds({("fedavg", "digits"): overview.Later(1, 1, 1)}, known) is None
