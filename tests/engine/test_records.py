"""Records: null instead of NaN, headline and cost to target by hand."""

import json

import pytest

from engine.records import (
    Headline,
    RoundRecord,
    conditions,
    cost_to_target,
    headline,
    headline_rule,
    no_convergence,
)
from engine.spec.experiment import ExperimentSpec
from tests.services import SPEC


def record(number: int, accuracy: float | None, flops: int = 100, cohort: tuple[int, ...] = (0, 1)) -> RoundRecord:
    return RoundRecord(
        round=number,
        accuracy=accuracy,
        loss=1.0,
        scalars_up=10,
        scalars_down=30,
        bytes_up=40,
        bytes_down=120,
        client_flops=flops,
        server_flops=0,
        eval_flops=0,
        seconds=0.1,
        client_seconds=0.1,
        server_seconds=0.0,
        cohort=list(cohort),
        client_accuracy={},
    )


def test_nan_and_infinity_become_null() -> None:
    assert record(1, float("nan")).accuracy is None
    assert json.loads(record(1, float("inf")).model_dump_json())["accuracy"] is None


def test_the_headline_leaves_out_the_opening_and_untested_rounds() -> None:
    records = [record(0, 0.99), record(1, 0.4), record(2, 0.7), record(3, 0.6), record(4, None)]
    assert headline(records) == Headline(best_accuracy=0.7, best_round=2, final_accuracy=0.6)


def test_the_headline_tells_the_test_accuracy_of_the_round_that_was_best_on_validation() -> None:
    levels = [(0, 0.9, 0.99), (1, 0.4, 0.6), (2, 0.5, 0.8), (3, 0.7, 0.8), (4, 0.6, 0.3), (5, None, None)]
    records = [record(n, test).model_copy(update={"validation_accuracy": level}) for n, test, level in levels]
    found = headline(records)
    assert (found.best_validation_accuracy, found.best_validation_round, found.accuracy_at_best_validation) == (
        0.8,
        2,
        0.5,
    )
    assert (found.best_accuracy, found.final_accuracy, found.final_validation_accuracy) == (0.7, 0.6, 0.3)
    assert headline(item.model_dump() for item in records) == found


def test_records_from_before_validation_are_read_and_stay_what_they_were() -> None:
    old = record(1, 0.5).model_dump()
    del old["validation_accuracy"]
    read = RoundRecord.model_validate(old)
    assert read.validation_accuracy is None
    times = {"seconds", "client_seconds", "server_seconds"}
    assert read.without_times() == {key: value for key, value in old.items() if key not in times}


def test_the_first_of_two_equal_rounds_is_the_best() -> None:
    assert headline([record(1, 0.5), record(2, 0.5)]).best_round == 1


def test_a_run_without_a_test_has_an_empty_headline() -> None:
    assert headline([record(0, None), record(1, None)]) == Headline()


def test_cost_to_target_is_the_mean_cost_of_a_round_times_the_rounds() -> None:
    records = [record(0, None, 9999), record(1, 0.4, 100), record(2, 0.7, 300), record(3, 0.9, 200)]
    cost = cost_to_target(records, 0.7)
    assert cost.rounds == 2
    assert cost.scalars == 2 * 40
    assert cost.bytes == 2 * 160
    assert cost.flops == pytest.approx(2 * (100 / 2 + 300 / 2 + 200 / 2) / 3)


def test_what_was_spent_until_the_target_includes_the_opening_and_nothing_later() -> None:
    records = [record(0, None, 50), record(1, 0.4, 100), record(2, 0.7, 300), record(3, 0.9, 10_000)]
    cost = cost_to_target(records, 0.7)
    assert (cost.spent_scalars, cost.spent_bytes) == (3 * 40, 3 * 160)
    assert cost.spent_flops == 50 / 2 + 100 / 2 + 300 / 2


def test_a_target_that_was_never_reached_costs_null() -> None:
    assert cost_to_target([record(1, 0.4)], 0.5).rounds is None
    assert cost_to_target([record(1, 0.4)], 0.5).flops is None


@pytest.mark.parametrize(("protocol", "rule"), [("A", "best"), ("B", "best"), ("C", "final")])
def test_the_protocol_says_which_accuracy_counts(protocol: str, rule: str) -> None:
    spec = ExperimentSpec.parse({**SPEC, "evaluation": {"protocol": protocol}}).canonical()
    assert headline_rule(spec) == rule


def test_the_judged_accuracy_is_the_one_that_the_rule_names() -> None:
    numbers = Headline(best_accuracy=0.7, best_round=2, final_accuracy=0.6)
    assert (numbers.judged("best"), numbers.judged("final")) == (0.7, 0.6)


@pytest.mark.parametrize(
    ("accuracy", "share", "marked"),
    [(0.52, 0.5, True), (0.521, 0.5, False), (0.1, 0.5, True), (None, 0.5, False), (0.1, None, False)],
)
def test_a_run_did_not_converge_up_to_two_points_above_the_majority_class(
    accuracy: float | None, share: float | None, marked: bool
) -> None:
    assert no_convergence(accuracy, share) == marked


def test_method_seed_and_learning_rate_may_differ_under_equal_conditions_and_the_budget_may_not() -> None:
    def of(**changes: object) -> str:
        return conditions(ExperimentSpec.parse({**SPEC, **changes}).canonical())

    training = SPEC["training"]
    assert {of(), of(seed=8), of(algorithm={"name": "standalone"}), of(training={**training, "lr": 0.5})} == {of()}
    others = [of(rounds=4), of(participation=0.5), of(training={**training, "epochs": 2}), of(evaluation={"every": 2})]
    assert len({of(), *others}) == 5
