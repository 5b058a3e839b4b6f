"""The spec: complete, closed, fingerprinted, and clear about what is wrong."""

import random
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from engine.spec.experiment import ExperimentSpec
from engine.spec.frozen import LATER, Frozen, essence
from engine.spec.presets import PRESETS
from engine.spec.problems import BIDIRECTIONAL, MOST_CLIENTS, MOST_PROBLEMS, SpecError, cohort_size

MINIMAL: dict[str, Any] = {
    "algorithm": {"name": "fedavg"},
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological"},
    "models": {"family": "cnn-1-5"},
}


def problems(**changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        ExperimentSpec.parse({**MINIMAL, **changes})
    return [str(problem) for problem in caught.value.problems]


def test_every_default_is_written_out() -> None:
    stored = ExperimentSpec.parse(MINIMAL).canonical()
    assert stored["training"] == {
        "epochs": 10,
        "batch_size": 512,
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 0.001,
        "clip": 50.0,
        "augment": True,
        "schedule": "constant",
        "decay": 0.99,
        "divergence_tolerance": 0.5,
        "recalibrate_below": 0,
    }
    assert stored["partition"]["split"] == "stratified-80-20"
    assert stored["topology"] == "server"


def test_a_stored_spec_parses_to_itself() -> None:
    spec = ExperimentSpec.parse({**MINIMAL, "preset": "C"})
    assert ExperimentSpec.parse(spec.canonical()) == spec


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"algorithm": {"name": "fedfoo"}}, "algorithm.name: unknown algorithm 'fedfoo'; known: pfedafm"),
        ({"algorithm": {"name": "pfedamf"}}, "algorithm.name: unknown algorithm 'pfedamf'; did you mean pfedafm?"),
        (
            {"partition": {"name": "dirichlet", "alpha": 0.1}},
            "partition.alpha: partition 'dirichlet' has no field 'alpha'; dirichlet has labels, split, seed, beta",
        ),
        ({"clients": 0}, "clients: must be greater than or equal to 1, but got 0"),
        ({"participation": 1.5}, "participation: must be less than or equal to 1, but got 1.5"),
        ({"algorithm": {"name": "fedavg", "mu": 1}}, "algorithm.mu: algorithm 'fedavg' has no field 'mu'"),
        ({"rounds": 10**9}, "rounds: must be less than or equal to 100000, but got 1000000000"),
        ({"colour": 1}, "colour: the spec has no field 'colour'"),
        ({"dataset": {}}, "dataset.name: a dataset needs a name; known: mnist, fmnist, "),
        ({"dataset": "cifar10"}, "dataset: must be an object with fields, but got 'cifar10'"),
        ({"partition": {"name": "iid", "beta": 1}}, "partition.beta: partition 'iid' has no field 'beta'"),
        ({"preset": "Z"}, "preset: must be one of A, B, C, but got 'Z'"),
        ({"training": {"lr": float("nan")}}, "training.lr: must be a finite number, but got nan"),
        ({"models": {"family": "vgg"}}, "models.family: unknown model family 'vgg'; known:"),
        ({"dataset": {"name": "cifar10", "labels": "coarse"}}, "dataset.labels: must be 'fine', but got 'coarse'"),
        ({"name": "a\x00b"}, "name: must not contain control characters"),
        ({"participants": 11}, "participants: must be at most the 10 clients, but got 11"),
        ({"participants": 0}, "participants: must be a whole number of at least 1, but got 0"),
        ({"participants": True}, "participants: must be a whole number of at least 1, but got True"),
        ({"participants": 2, "participation": 0.2}, "participants: give participants or participation, not both"),
        ({"training": {"decay": 0.5}}, "training: decay belongs to the exponential schedule, but schedule is constant"),
    ],
)
def test_a_bad_field_is_named_with_its_rule_and_value(changes: dict[str, Any], expected: str) -> None:
    assert len(problems(**changes)) == 1
    assert problems(**changes)[0].startswith(expected)


@pytest.mark.parametrize(("clients", "participants"), [(150, 20), (3, 1), (10_000, 9_999), (49, 7), (10, 10)])
def test_a_number_of_participants_is_kept_as_the_share_that_gives_it(clients: int, participants: int) -> None:
    spec = ExperimentSpec.parse({**MINIMAL, "clients": clients, "participants": participants})
    assert spec.cohort_size == participants
    assert spec.canonical()["participation"] == participants / clients
    assert ExperimentSpec.parse(spec.canonical()) == spec


def test_any_number_of_participants_gives_a_cohort_of_that_size() -> None:
    """All of a few numbers of clients; of every number of clients the smallest, the largest and some between."""
    draws = random.Random(0)
    few = [(clients, k) for clients in (1, 7, 150, 997, MOST_CLIENTS) for k in range(1, clients + 1)]
    many = [(n, k) for n in range(1, MOST_CLIENTS + 1) for k in (1, n, *(draws.randint(1, n) for _ in range(20)))]
    assert [(n, k) for n, k in few + many if cohort_size(n, k / n) != k] == []


def test_participants_count_among_the_clients_of_the_preset_and_replace_its_share() -> None:
    spec = ExperimentSpec.parse({**MINIMAL, "preset": "C", "participants": 5})
    assert (spec.clients, spec.participation) == (20, 0.25)
    assert ExperimentSpec.parse({**MINIMAL, "preset": "C", "participants": None}).participation == 1.0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"schedule": "cosine"}, [1, 1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
        ({"schedule": "exponential", "decay": 0.5}, [1, 1, 0.5, 0.25, 0.125]),
    ],
)
def test_the_schedule_starts_with_the_full_rate_in_the_opening_and_in_round_1(
    schedule: dict[str, Any], expected: list[float]
) -> None:
    training = ExperimentSpec.parse({**MINIMAL, "training": schedule}).training
    assert [training.lr_factor(round, 4) for round in range(5)] == pytest.approx(expected)


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems(clients=0, rounds=0, seed=-1)) == 3


def test_of_very_many_problems_the_first_are_told_and_how_many_more() -> None:
    told = problems(**{f"k{number}": 1 for number in range(100)})
    assert len(told) == MOST_PROBLEMS + 1
    assert told[-1] == "and 80 more problems"


def test_a_large_value_does_not_fill_the_message() -> None:
    [told] = problems(clients="9" * 100_000)
    assert len(told) < 400


@pytest.mark.parametrize("letter", sorted(BIDIRECTIONAL))
def test_a_name_must_not_turn_the_direction_of_the_text(letter: str) -> None:
    assert problems(name=f"a{letter}b") == ["name: must not contain characters that turn the direction of the text"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clients": "3"}, "clients: must be a number, but got '3'"),
        ({"clients": True}, "clients: must be a number, but got True"),
        ({"training": {"augment": 1}}, "training.augment: must be true or false, but got 1"),
        ({"training": {"lr": "0.1"}}, "training.lr: must be a number, but got '0.1'"),
    ],
)
def test_json_is_taken_at_its_word(changes: dict[str, Any], expected: str) -> None:
    ExperimentSpec.parse({**MINIMAL, **changes})
    with pytest.raises(SpecError, match=expected):
        ExperimentSpec.parse({**MINIMAL, **changes}, strict=True)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert ExperimentSpec.parse({**MINIMAL, "clients": 3.0}, strict=True).clients == 3


@pytest.mark.parametrize("name", [[1], {"a": 1}, None, 3])
def test_a_preset_with_a_method_that_is_no_name_is_refused(name: object) -> None:
    assert problems(preset="A", algorithm={"name": name})[0].startswith("algorithm.name: ")


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x",
        "a: &a [*a]",
        "a: !!int ''",
        "a: !!timestamp foo",
        "a: !!map [a]",
        "- " * 40,
        "a: " + "9" * 5000,
    ],
)
def test_yaml_that_would_grow_or_break_the_reader_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not readable as YAML"):
        ExperimentSpec.from_yaml(text)


@pytest.mark.parametrize("text", ["[1, 2", "- a\n- b", "", "3"])
def test_yaml_that_is_no_spec_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(SpecError):
        ExperimentSpec.from_yaml(text)


def test_a_field_that_is_given_twice_is_refused() -> None:
    with pytest.raises(SpecError, match="the field 'rounds' is given twice"):
        ExperimentSpec.from_yaml("algorithm: {name: fedavg}\nrounds: 3\nrounds: 30")


def test_a_number_with_a_leading_zero_is_not_read_as_octal() -> None:
    assert ExperimentSpec.from_yaml(f"{yaml.safe_dump(MINIMAL)}seed: 010").seed == 10


def test_name_tags_and_notes_do_not_change_the_fingerprint() -> None:
    plain = ExperimentSpec.parse(MINIMAL)
    named = ExperimentSpec.parse({**MINIMAL, "name": "x", "tags": ["a"], "notes": "n"})
    assert plain.fingerprint() == named.fingerprint()


@pytest.mark.parametrize(
    ("preset", "method", "fingerprint"),
    [
        ("A", "pfedafm", "cd99afcec7c47c4354127a6be4ad6ca3f9308c53773afb542a8011928bd9e5f7"),
        ("B", "fedarc", "fdbd043542f3f269a1c81da651a95e9491780d41f712821a5f2c01a7768eb369"),
        ("C", "compfl", "ede63e7fb1aef4c94732cb47cc88016723b44566c18604bd1104896ef347b3ef"),
    ],
)
def test_a_spec_keeps_the_fingerprint_it_had_in_the_first_release(preset: str, method: str, fingerprint: str) -> None:
    """Preset B sets what came later; the specs it was expanded into before do not have it."""
    old = ExperimentSpec.parse(
        {
            "preset": preset,
            "algorithm": {"name": method},
            "dataset": {"name": "cifar10"},
            "partition": {"name": "pathological", "classes_per_client": 2},
            "models": {"family": "cnn-1-5"},
            "training": {"recalibrate_below": 0},
        }
    )
    assert old.fingerprint() == fingerprint


def test_preset_b_recalibrates_and_that_changes_its_fingerprint() -> None:
    new, old = (
        ExperimentSpec.parse({**MINIMAL, "preset": "B", "training": training})
        for training in ({}, {"recalibrate_below": 0})
    )
    assert new.training.recalibrate_below == 1000
    assert new.fingerprint() != old.fingerprint()
    assert ExperimentSpec.parse(old.canonical()).fingerprint() == old.fingerprint()


def test_a_field_that_came_later_counts_only_where_it_changes_something() -> None:
    class Inner(Frozen):
        old: int = 1
        new: Annotated[int | None, LATER] = Field(None, ge=0)

    class Outer(Frozen):
        inner: Inner = Inner()

    assert essence(Outer()) == {"inner": {"old": 1}}
    assert essence(Outer(inner=Inner(new=2))) == {"inner": {"old": 1, "new": 2}}


def test_a_default_written_out_does_not_change_the_fingerprint_but_another_value_does() -> None:
    plain = ExperimentSpec.parse(MINIMAL).fingerprint()
    assert ExperimentSpec.parse({**MINIMAL, "seed": 42}).fingerprint() == plain
    assert ExperimentSpec.parse({**MINIMAL, "seed": 43}).fingerprint() != plain


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_expanded_and_what_was_given_wins(preset: str) -> None:
    spec = ExperimentSpec.parse({**MINIMAL, "preset": preset, "training": {"lr": 0.5}})
    assert spec.training.lr == 0.5
    assert spec.training.epochs == PRESETS[preset]["training"]["epochs"]
    assert spec.evaluation.protocol == preset
    assert "preset" not in spec.canonical()


@pytest.mark.parametrize(
    ("clients", "participation", "size"), [(100, 0.1, 10), (10, 0.05, 1), (50, 0.2, 10), (3, 0.999, 2), (10, 0.7, 7)]
)
def test_the_cohort_is_the_floor_of_c_times_n_and_at_least_one(clients: int, participation: float, size: int) -> None:
    spec = ExperimentSpec.parse({**MINIMAL, "clients": clients, "participation": participation})
    assert spec.cohort_size == size
