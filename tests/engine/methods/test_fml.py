"""FML: identity, messages, price, numbers by hand and options."""

import math
from typing import Any

import pytest
import torch

from engine.kit.tensors import count_scalars, shares, weighted_mean
from engine.methods.fml import mutual_loss
from engine.runtime.run import Run
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.methods.mutual import (
    by_preset,
    forward_prices,
    histories,
    models_after_every_round,
    only_record,
)
from tests.engine.methods.test_proposed import COLOUR


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_with_labels_only_its_private_models_are_standalone_bit_for_bit(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    degenerate = small_spec({"name": "fml", "alpha": 1, "beta": 1}, evaluation=evaluation)
    assert histories(degenerate) == histories(small_spec(evaluation=evaluation))


def test_with_labels_only_the_small_model_is_averaged_all_the_same(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fml", "alpha": 1, "beta": 1}))
    iterator = run.rounds()
    next(iterator)
    before = run.server.groups["all"]
    next(iterator)
    assert not torch.equal(before["head.weight"], run.server.groups["all"]["head.weight"])


def test_its_loss_by_hand() -> None:
    """p_own = (½, ½), p_peer = (¾, ¼), label 0."""
    own, peer, y = torch.zeros(1, 2), torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])
    labels, peers = math.log(2), 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    for weight in (0, 0.25, 1):
        assert mutual_loss(weight, own, peer, y).item() == pytest.approx(weight * labels + (1 - weight) * peers)


def test_a_model_gets_no_gradient_from_its_peers_loss() -> None:
    own, peer = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    mutual_loss(0.5, own, peer, torch.tensor([0])).backward()
    assert own.grad is not None
    assert peer.grad is None


def test_a_term_without_weight_is_not_computed() -> None:
    own, broken = torch.zeros(1, 2), torch.full((1, 2), math.nan)
    assert mutual_loss(1, own, broken, torch.tensor([0])).isfinite()


@pytest.mark.parametrize(("classes", "scalars"), [(10, 670_058), (100, 715_148)])
def test_a_message_is_the_small_model_with_its_head(classes: int, scalars: int) -> None:
    _, record = only_record("fml", dataset={**COLOUR, "classes": classes, "samples_per_class": 20})
    assert (record.scalars_up, record.scalars_down) == (scalars, scalars)


def test_its_price_is_three_forwards_of_both_models() -> None:
    run, record = only_record("fml")
    n, F, G = forward_prices(run, record.cohort[0])
    assert record.client_flops == n * 3 * (F + G)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_server_weighs_as_it_is_told(weighting: str, small_spec: SpecMaker) -> None:
    partition = {"name": "dirichlet", "beta": 0.5}
    stage = Stage(Run(small_spec({"name": "fml", "weighting": weighting}, partition=partition)))
    uploads = [stage.upload(k) for k in (0, 1, 2)]
    assert len({upload.num_samples for upload in uploads}) > 1
    weights = [1 / 3] * 3 if weighting == "uniform" else shares([upload.num_samples for upload in uploads])
    expected = weighted_mean([upload.payload for upload in uploads], weights)
    server = stage.algorithm.aggregate(stage.run.server, uploads, 1)
    assert all(torch.equal(server.groups["all"][name], expected[name]) for name in expected)


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"alpha": 0.1},
        {"beta": 0.1},
        {"alpha": 0},
        {"beta": 0},
        {"clip": 0.01},
        {"small_model": "fedavgcnn"},
    ]
    results = [str(models_after_every_round(small_spec({"name": "fml", **variant}))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_the_presets_set_the_small_model_the_weights_and_the_clip() -> None:
    assert by_preset("fml", "small_model", "weighting", "clip") == {
        "small_model": ("cnn-5", "fedavgcnn", "compfl-cnn"),
        "weighting": ("samples", "uniform", "samples"),
        "clip": (None, 10.0, None),
    }


def test_it_says_why_a_small_model_does_not_fit(small_spec: SpecMaker) -> None:
    tiny_images = {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 1, "size": 8}
    reason = Run(small_spec("fml", dataset=tiny_images)).algorithm.why_not()
    assert "16×16" in str(reason)
    assert Run(small_spec("fml")).algorithm.why_not() is None


def test_only_the_small_model_travels(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec("fml")))
    assert stage.upload().payload.keys() == stage.run.server.groups["all"].keys()
    assert count_scalars(stage.upload().payload) == count_scalars(stage.run.server.groups["all"])


@pytest.mark.parametrize("method", ["fml", "fedmrl", "fedapen", "fedkd"])
def test_with_everyone_there_and_equal_sizes_both_weightings_are_one(method: str, small_spec: SpecMaker) -> None:
    partition = {"name": "balanced", "local_size": 20, "classes_per_client": 2}
    equal = {"participation": 1.0, "clients": 3, "rounds": 2, "partition": partition}
    ways = [small_spec({"name": method, "weighting": how}, **equal) for how in ("samples", "uniform")]
    assert same_results(*(records_of(spec) for spec in ways))
