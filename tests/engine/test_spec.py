"""The spec: complete, closed, fingerprinted, and clear about what is wrong."""

from typing import Any

import pytest
import yaml

from engine.spec import PRESETS, ExperimentSpec, SpecError

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
        ({"clients": 0}, "clients: must be greater than or equal to 1, but got 0"),
        ({"participation": 1.5}, "participation: must be less than or equal to 1, but got 1.5"),
        ({"algorithm": {"name": "fedavg", "mu": 1}}, "algorithm.mu: algorithm 'fedavg' has no field 'mu'"),
        ({"rounds": 10**9}, "rounds: must be less than or equal to 100000, but got 1000000000"),
        ({"colour": 1}, "colour: the spec has no field 'colour'"),
        ({"dataset": {}}, "dataset.name: a dataset needs a name"),
        ({"dataset": "cifar10"}, "dataset: must be an object with fields, but got 'cifar10'"),
        ({"partition": {"name": "iid", "beta": 1}}, "partition.beta: partition 'iid' has no field 'beta'"),
        ({"preset": "Z"}, "preset: must be one of A, B, C, but got 'Z'"),
        ({"training": {"lr": float("nan")}}, "training.lr: must be a finite number, but got nan"),
        ({"models": {"family": "vgg"}}, "models.family: unknown model family 'vgg'; known:"),
        ({"dataset": {"name": "cifar10", "labels": "coarse"}}, "dataset.labels: must be 'fine', but got 'coarse'"),
        ({"name": "a\x00b"}, "name: must not contain control characters"),
    ],
)
def test_a_bad_field_is_named_with_its_rule_and_value(changes: dict[str, Any], expected: str) -> None:
    assert len(problems(**changes)) == 1
    assert problems(**changes)[0].startswith(expected)


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems(clients=0, rounds=0, seed=-1)) == 3


@pytest.mark.parametrize("text", ["[1, 2", "- a\n- b", "", "3"])
def test_yaml_that_is_no_spec_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(SpecError):
        ExperimentSpec.from_yaml(text)


def test_a_field_that_stands_twice_is_refused() -> None:
    with pytest.raises(SpecError, match="the field 'rounds' stands there twice"):
        ExperimentSpec.from_yaml("algorithm: {name: fedavg}\nrounds: 3\nrounds: 30")


def test_a_number_with_a_leading_zero_is_not_read_as_octal() -> None:
    assert ExperimentSpec.from_yaml(f"{yaml.safe_dump(MINIMAL)}seed: 010").seed == 10


def test_name_tags_and_notes_do_not_change_the_fingerprint() -> None:
    plain = ExperimentSpec.parse(MINIMAL)
    named = ExperimentSpec.parse({**MINIMAL, "name": "x", "tags": ["a"], "notes": "n"})
    assert plain.fingerprint() == named.fingerprint()


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
