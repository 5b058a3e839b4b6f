"""Settings chosen from groups of cells, by hand: who is best on validation, who on test, and who may be chosen."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.store import sweeps
from app.store.database import Database
from app.store.plan import Plan
from app.store.states import State
from app.store.sweeps import NewRun
from app.store.tables import Experiment
from app.views.choices import Choice, Choices
from app.views.sweeps import sweep_view
from engine.spec.experiment import ExperimentSpec
from tests.services import spec_with

Levels = tuple[float, float | None, float | None]
"""Best test accuracy, validation accuracy, and the test accuracy in the round that was best on validation."""
Cell = tuple[dict[str, Any], Sequence[Levels]]
"""Swept values and the levels of each seed."""
VALIDATED = {"name": "iid", "split": "80-10-10"}


def found(
    database: Database,
    cells: Sequence[Cell],
    over: tuple[str, ...] = ("training.lr",),
    *,
    partition: dict[str, str] = VALIDATED,
    protocol: str = "A",
    states: dict[tuple[int, int], State] | None = None,
) -> Choices:
    """A stored sweep with one finished experiment for each cell and level, read back."""
    runs, levels = [], {}
    for number, (_, seeds) in enumerate(cells):
        for seed, level in enumerate(seeds):
            lr = 0.001 * (number + 1)  # so that every cell has experiments of its own
            changes = {"seed": seed, "partition": partition, "evaluation": {"protocol": protocol}}
            spec = ExperimentSpec.parse(spec_with(training={"lr": lr}, **changes))
            runs.append(NewRun(number, seed, spec.canonical(), spec.fingerprint()))
            levels[spec.fingerprint()] = (number, seed, level)
    with database.write() as session:
        row = sweeps.submit(
            session,
            name="chosen",
            notes="",
            document={"report": {"choose": {"over": list(over)}}},
            cells=[values for values, _ in cells],
            runs=runs,
            plan=Plan(),
            reuse=False,
        )
        for member in sweeps.members(session, row):
            number, seed, level = levels[member.experiment.fingerprint]
            end(member.experiment, level, (states or {}).get((number, seed), State.FINISHED))
        session.flush()
        choices = sweep_view(session, row, 60).choices
    assert choices is not None
    return choices


def end(row: Experiment, level: Levels, state: State) -> None:
    row.state = state
    row.best_accuracy, row.best_validation_accuracy, row.accuracy_at_best_validation = level
    row.final_accuracy, row.final_validation_accuracy = level[0] - 0.1, level[1]


def told(group: Choice) -> tuple[Any, float | None, float | None, Any, float]:
    """What was chosen on validation with both means, and what on test with its mean."""
    picked, on_test = group.on_validation, group.on_test
    return (
        next(iter(picked.values.values())) if picked else None,
        round(group.validation.mean, 6) if group.validation else None,
        round(picked.accuracy.mean, 6) if picked else None,
        next(iter(on_test.values.values())),
        round(on_test.accuracy.mean, 6),
    )


def lr(value: float, **others: Any) -> dict[str, Any]:
    return {**others, "training.lr": value}


def test_the_best_mean_on_validation_is_told_with_its_test_accuracy_and_beside_it_the_best_on_test(
    database: Database,
) -> None:
    choices = found(
        database,
        [
            (lr(0.1, method="a"), [(0.70, 0.60, 0.50), (0.72, 0.62, 0.52)]),
            (lr(0.2, method="a"), [(0.75, 0.50, 0.74), (0.77, 0.70, 0.76)]),
            (lr(0.1, method="b"), [(0.40, 0.10, 0.30), (0.40, 0.20, 0.30)]),
            (lr(0.2, method="b"), [(0.30, 0.10, 0.20), (0.30, 0.10, 0.20)]),
        ],
    )
    assert (choices.over, choices.paths) == (["training.lr"], ["method"])
    assert [group.values for group in choices.groups] == [{"method": "a"}, {"method": "b"}]
    first, second = choices.groups
    assert told(first) == (0.1, 0.61, 0.51, 0.2, 0.76)
    assert told(second) == (0.1, 0.15, 0.3, 0.1, 0.4)
    assert first.on_validation is not None
    assert (first.on_validation.cell, first.on_test.cell, first.on_test.accuracy.seeds) == (0, 1, 2)
    assert (first.finished, first.cells, first.why_not) == (2, 2, None)


def test_of_equal_settings_the_first_is_chosen(database: Database) -> None:
    (group,) = found(database, [(lr(0.3), [(0.5, 0.5, 0.4)]), (lr(0.1), [(0.5, 0.5, 0.5)])]).groups
    assert told(group) == (0.3, 0.5, 0.4, 0.3, 0.5)


def test_protocol_c_is_judged_by_its_final_round(database: Database) -> None:
    cells = [(lr(0.1), [(0.9, 0.6, 0.85)]), (lr(0.2), [(0.8, 0.7, 0.75)])]
    (group,) = found(database, cells, protocol="C").groups
    assert told(group) == (0.2, 0.7, 0.7, 0.1, 0.8)
    assert group.headline_rule == "final"


@pytest.mark.parametrize("state", [State.RUNNING, State.DIVERGED, State.FAILED, State.CANCELLED])
def test_a_setting_is_chosen_only_when_all_its_seeds_have_finished(database: Database, state: State) -> None:
    cells = [(lr(0.1), [(0.9, 0.9, 0.9), (0.9, 0.9, 0.9)]), (lr(0.2), [(0.5, 0.5, 0.5), (0.5, 0.5, 0.5)])]
    (group,) = found(database, cells, states={(0, 1): state}).groups
    assert told(group) == (0.2, 0.5, 0.5, 0.2, 0.5)
    assert (group.finished, group.cells) == (1, 2)


def test_a_group_of_which_nothing_has_finished_is_not_shown(database: Database) -> None:
    assert found(database, [(lr(0.1), [(0.9, 0.9, 0.9)])], states={(0, 0): State.RUNNING}).groups == []


def test_what_is_not_applicable_is_no_part_of_the_grid(database: Database) -> None:
    cells: list[Cell] = [(lr(0.1), [(0.0, None, None)]), (lr(0.2), [(0.5, 0.5, 0.5)])]
    (group,) = found(database, cells, states={(0, 0): State.NOT_APPLICABLE}).groups
    assert (group.finished, group.cells) == (1, 1)


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ({"name": "iid", "split": "stratified-80-20"}, "the split stratified-80-20 has no validation part"),
        (VALIDATED, "some runs have no validation accuracy"),
    ],
)
def test_without_validation_accuracies_it_says_why_and_still_chooses_on_test(
    database: Database, partition: dict[str, str], words: str
) -> None:
    known = 0.4 if partition is VALIDATED else None
    cells: list[Cell] = [
        (lr(0.1), [(0.6, None, None)]),
        (lr(0.2), [(0.5, known, known)]),
    ]
    (group,) = found(database, cells, partition=partition).groups
    assert told(group) == (None, None, None, 0.1, 0.6)
    assert words in (group.why_not or "")


def test_the_settings_of_a_method_given_as_whole_objects_are_chosen_from_for_each_method(database: Database) -> None:
    weak, strong, other = {"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 0.2}, {"name": "fedavg"}
    cells = [
        ({"algorithm": value}, [(level, level, level)]) for value, level in ((weak, 0.5), (strong, 0.6), (other, 0.7))
    ]
    choices = found(database, cells, over=("algorithm",))
    assert choices.paths == ["algorithm"]
    assert [group.values for group in choices.groups] == [
        {"algorithm": {"name": name}} for name in ("fedprox", "fedavg")
    ]
    assert [told(group)[0] for group in choices.groups] == [strong, other]
