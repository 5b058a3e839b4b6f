"""Experiments that start from networks another experiment trained."""

import hashlib
from typing import Any

import pytest
import torch

from engine import catalogue
from engine.models import SplitModel
from engine.runtime.pretrained import read_networks
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError
from tests.engine.conftest import SpecMaker
from tests.engine.test_artifacts import finished, make

FAMILY = "tiny-3"


@pytest.fixture
def shelf(small_spec: SpecMaker) -> dict[str, bytes]:
    """The weights of a short run, by their checksum."""
    [file] = make(finished(small_spec("fedavg", rounds=2)), "weights")
    return {hashlib.sha256(file.content).hexdigest(): file.content}


def starting_from(
    shelf: dict[str, bytes], small_spec: SpecMaker, method: str = "compfl", **models: Any
) -> ExperimentSpec:
    pretrained = {"weights": list(shelf), **models.pop("pretrained", {})}
    return small_spec(method, seed=9, models={"family": FAMILY, "pretrained": pretrained, **models})


def trained(shelf: dict[str, bytes]) -> dict[str, Any]:
    return {architecture: tensors for content in shelf.values() for architecture, tensors in read_networks(content)}


@pytest.mark.parametrize("part", ["body", "model"])
def test_every_client_starts_from_the_trained_network_of_its_architecture(
    shelf: dict[str, bytes], small_spec: SpecMaker, part: str
) -> None:
    spec = starting_from(shelf, small_spec, pretrained={"part": part})
    plain = Run(small_spec("compfl", seed=9)).setup
    setup = Run(spec, weights=shelf.__getitem__).setup
    for architecture, tensors in trained(shelf).items():
        start, fresh = setup.model(architecture).state_dict(), plain.model(architecture).state_dict()
        for name, tensor in start.items():
            from_file = part == "model" or name.startswith("body.")
            assert torch.equal(tensor, tensors[name] if from_file else fresh[name]), name


def test_the_smaller_experts_of_a_compfl_client_are_pretrained_too(
    shelf: dict[str, bytes], small_spec: SpecMaker
) -> None:
    run = Run(starting_from(shelf, small_spec), weights=shelf.__getitem__)
    run.federation.build()
    known = trained(shelf)
    for networks in run.federation.networks.values():
        for architecture in networks.parts:
            expert = networks.parts.get_submodule(architecture)
            assert isinstance(expert, SplitModel)
            assert all(torch.equal(known[architecture][f"body.{n}"], t) for n, t in expert.body.state_dict().items())


def test_pretraining_moves_the_first_round_and_the_fingerprint(shelf: dict[str, bytes], small_spec: SpecMaker) -> None:
    plain, spec = small_spec("standalone", seed=9), starting_from(shelf, small_spec, "standalone")
    assert plain.fingerprint() != spec.fingerprint()
    first = [next(r for r in Run(s, weights=shelf.__getitem__).rounds() if r.round == 1).loss for s in (plain, spec)]
    assert first[0] != first[1]


def test_without_pretraining_the_fingerprint_is_what_it_was(small_spec: SpecMaker) -> None:
    assert small_spec().canonical()["models"]["pretrained"] is None


def test_the_order_of_the_files_does_not_count(small_spec: SpecMaker) -> None:
    names = ["a" * 64, "b" * 64]
    specs = [small_spec(models={"family": FAMILY, "pretrained": {"weights": order}}) for order in (names, names[::-1])]
    assert specs[0].fingerprint() == specs[1].fingerprint()


def refused(spec: ExperimentSpec, shelf: dict[str, bytes] | None) -> str:
    with pytest.raises(SpecError) as error:
        catalogue.check(spec, None, None if shelf is None else shelf.__getitem__)
    [problem] = error.value.problems
    assert problem.field == "models.pretrained.weights"
    return problem.message


def test_a_spec_that_fits_is_accepted(shelf: dict[str, bytes], small_spec: SpecMaker) -> None:
    catalogue.check(starting_from(shelf, small_spec), None, shelf.__getitem__)


def test_weights_that_do_not_exist_are_refused(shelf: dict[str, bytes], small_spec: SpecMaker) -> None:
    spec = starting_from({"0" * 64: b""}, small_spec)
    assert "no weights with sha256 000" in refused(spec, shelf)
    assert "cannot be looked up here" in refused(spec, None)


def test_damaged_weights_are_refused(shelf: dict[str, bytes], small_spec: SpecMaker) -> None:
    damaged = {digest: content[:-1] + b"!" for digest, content in shelf.items()}
    assert "is damaged" in refused(starting_from(shelf, small_spec), damaged)
    garbage = {hashlib.sha256(b"no").hexdigest(): b"no"}
    assert "not a weights file" in refused(starting_from(garbage, small_spec), garbage)


def test_another_shape_is_refused_with_both_shapes(shelf: dict[str, bytes], small_spec: SpecMaker) -> None:
    spec = starting_from(shelf, small_spec, feature_dim=24)
    message = refused(spec, shelf)
    assert "[24, 32] here, but [16, 32] in the weights" in message
    other_classes = {"name": "synthetic", "classes": 5, "samples_per_class": 40, "channels": 1, "size": 16}
    models = {"family": FAMILY, "pretrained": {"weights": list(shelf), "part": "model"}}
    assert "part: body leaves the head out" in refused(small_spec(models=models, dataset=other_classes), shelf)
    models["pretrained"] = {"weights": list(shelf), "part": "body"}
    catalogue.check(small_spec(models=models, dataset=other_classes), None, shelf.__getitem__)


def test_an_architecture_without_weights_is_refused_and_so_is_one_with_two(
    shelf: dict[str, bytes], small_spec: SpecMaker
) -> None:
    models = {"family": "cnn-5", "pretrained": {"weights": list(shelf)}}
    assert "no weights for cnn-5; the files hold tiny-mlp, tiny-cnn, tiny-bn" in refused(
        small_spec(models=models), shelf
    )
    [file] = make(finished(small_spec("standalone")), "weights", clients=[0])
    both = {**shelf, hashlib.sha256(file.content).hexdigest(): file.content}
    assert "two networks for tiny-mlp" in refused(starting_from(both, small_spec), both)


def test_a_path_is_no_name_for_weights(small_spec: SpecMaker) -> None:
    with pytest.raises(SpecError, match=r"models.pretrained.weights.0: string must match pattern"):
        small_spec(models={"family": FAMILY, "pretrained": {"weights": ["../weights.safetensors"]}})
