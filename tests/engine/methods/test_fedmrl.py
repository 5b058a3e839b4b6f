"""FedMRL: its kinship with FedARC, messages, price, numbers by hand and options."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from engine.methods.fedmrl import FedMRL
from engine.models import SplitModel
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.mutual import ONE_OF_TEN, by_preset, forward_prices, histories, only_record
from tests.engine.methods.test_proposed import COLOUR

FUSION_ONLY = {"name": "fedarc", "residuals": False, "anchor_weight": 0, "share_head": True, "small_model": "cnn-5"}


def swap_columns(projector: torch.Tensor, first: int) -> torch.Tensor:
    """The projector that expects its two inputs the other way round; the first has that many columns."""
    return torch.cat([projector[:, first:], projector[:, :first]], 1)


def test_fedarc_without_residuals_and_anchor_that_shares_its_head_is_fedmrl(small_spec: SpecMaker) -> None:
    d, d_s = 16, 8
    arc = Run(small_spec({**FUSION_ONLY, "shared_dim": d_s}, participation=1.0))
    mrl = Run(small_spec({"name": "fedmrl", "shared_dim": d_s}, participation=1.0))
    rounds = arc.rounds(), mrl.rounds()
    for iterator in rounds:
        next(iterator)
    assert torch.equal(arc.server.groups["all"]["body.fc1.weight"], mrl.server.groups["all"]["body.fc1.weight"])
    mrl.federation.server = replace(
        mrl.server, groups={"all": arc.server.groups["all"]}
    )  # the head has another role there
    for architecture, initial in mrl.federation.initial.items():
        fused = arc.federation.initial[architecture]
        initial["parts.projector.weight"] = swap_columns(fused["parts.projector.weight"], d)
        initial["parts.projector.bias"] = fused["parts.projector.bias"]

    first, second = (next(iterator) for iterator in rounds)

    assert second.loss == pytest.approx(first.loss, rel=1e-5)
    assert (second.client_flops, second.scalars_up) == (first.client_flops, first.scalars_up)
    for name, tensor in arc.server.groups["all"].items():
        assert torch.allclose(mrl.server.groups["all"][name], tensor, rtol=1e-5, atol=1e-5), name
    for k in range(6):
        expected = dict(arc.federation.states.get(k))
        expected["parts.projector.weight"] = swap_columns(expected["parts.projector.weight"], d)
        for name, tensor in mrl.federation.states.get(k).items():
            assert torch.allclose(tensor, expected[name], rtol=1e-5, atol=1e-5), (k, name)


def test_a_message_is_the_small_model_with_its_head() -> None:
    algorithm = {"name": "fedmrl", "small_model": "fedavgcnn"}
    dataset = {**COLOUR, "classes": 100, "samples_per_class": 20}
    _, record = only_record(algorithm, dataset=dataset)
    assert (record.scalars_up, record.scalars_down) == (886_308, 886_308)


def test_its_price_is_three_forwards_of_both_models_and_the_projector() -> None:
    run, record = only_record("fedmrl")
    n, F, G = forward_prices(run, record.cohort[0])
    assert record.client_flops == n * 3 * (F + G + 2 * (128 + 500) * 500)


def test_its_loss_reads_the_fused_feature_at_two_nested_widths(small_spec: SpecMaker) -> None:
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.0}
    algorithm = {"name": "fedmrl", "shared_dim": 5, "local_weight": 2.0, "shared_weight": 0.5}
    stage = Stage(Run(small_spec(algorithm, training=training)))
    client = stage.client(1)  # no batch norm: training and testing see the same features
    images, y = client.train.batch(torch.arange(len(client.train)))
    with torch.no_grad():
        G, P = client.part("small", SplitModel), client.part("projector", nn.Linear)
        joined = torch.cat([G.body(images), client.model.body(images)], 1)
        z = joined @ P.weight.T + P.bias
        expected = 2 * cross_entropy(client.model.head(z), y) + 0.5 * cross_entropy(G.head(z[:, :5]), y)
    stage.algorithm.local_update(client, stage.run.server.groups["all"])
    assert client.losses == [pytest.approx(expected.item(), rel=1e-5)]


def projectors(run: Run) -> list[torch.Tensor]:
    return [run.federation.states.get(k)["parts.projector.weight"] for k in run.federation.states.ids()]


def test_the_projector_is_trained_and_kept_by_its_client(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedmrl", participation=1.0, models={"family": "tiny-cnn"}))
    iterator = run.rounds()
    next(iterator)
    start = run.federation.initial["tiny-cnn"]["parts.projector.weight"].clone()
    next(iterator)
    first = [projector.clone() for projector in projectors(run)]
    assert not any(torch.equal(projector, start) for projector in first)
    assert not torch.equal(first[0], first[1])
    client = run.federation.load(0, 2)
    assert torch.equal(client.part("projector", nn.Linear).weight, first[0])


@pytest.mark.parametrize(("protocol", "own"), [("A", True), ("B", False)])
def test_it_is_tested_with_its_own_small_model_under_a_and_the_average_under_b(
    protocol: str, own: bool, small_spec: SpecMaker
) -> None:
    stage = Stage(Run(small_spec("fedmrl", evaluation={"protocol": protocol})))
    client = stage.client()
    upload = stage.algorithm.local_update(client, stage.run.server.groups["all"])
    images, _ = client.test.batch(torch.arange(len(client.test)))
    stage.algorithm.prepare(client, None if own else stage.run.server.groups["all"])
    stage.algorithm.predictor(client)(images)
    used = client.parts["small"].state_dict()["head.weight"]
    assert torch.equal(used, upload["head.weight"] if own else stage.run.server.groups["all"]["head.weight"])


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"shared_dim": 4},
        {"local_weight": 0.5},
        {"shared_weight": 0.5},
        {"local_weight": 0},
        {"shared_weight": 0},
        {"small_model": "fedavgcnn"},
    ]
    results = [str(histories(small_spec({"name": "fedmrl", **variant}))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_uniform_weights_change_the_average_where_clients_differ_in_size(small_spec: SpecMaker) -> None:
    skewed = {"name": "dirichlet", "beta": 0.5}
    ways = [small_spec({"name": "fedmrl", "weighting": how}, partition=skewed) for how in ("samples", "uniform")]
    records = [records_of(spec) for spec in ways]
    assert records[0][1].loss == records[1][1].loss
    assert records[0][-1].loss != records[1][-1].loss


def test_one_of_the_two_losses_must_count() -> None:
    with pytest.raises(SpecError, match="both are 0"):
        ExperimentSpec.parse({**ONE_OF_TEN, "algorithm": {"name": "fedmrl", "local_weight": 0, "shared_weight": 0}})


def reason(algorithm: dict[str, Any], family: str) -> str | None:
    spec = {**ONE_OF_TEN, "models": {"family": family}, "algorithm": {"name": "fedmrl", **algorithm}}
    run = Run(ExperimentSpec.parse(spec))
    assert isinstance(run.algorithm, FedMRL)
    return run.algorithm.why_not()


def test_the_small_model_must_not_be_wider_than_the_narrowest_private_one() -> None:
    assert "width 128, but got 256" in str(reason({"shared_dim": 256}, "compfl-2"))
    assert reason({"shared_dim": 128}, "compfl-2") is None
    assert reason({"shared_dim": 500}, "cnn-1-5") is None
    assert "always 128" in str(reason({"small_model": "compfl-cnn", "shared_dim": 64}, "cnn-1-5"))


def test_models_of_different_width_each_get_a_projector_that_fits() -> None:
    run, _ = only_record("fedmrl", models={"family": "compfl-fmnist-2"}, dataset={**COLOUR, "channels": 1, "size": 28})
    for networks in run.federation.networks.values():
        assert networks.parts["projector"].weight.shape == (128, 128 + 128)


def test_the_presets_set_the_small_model_and_always_weigh_by_samples() -> None:
    assert by_preset("fedmrl", "small_model", "weighting") == {
        "small_model": ("cnn-5", "fedavgcnn", "compfl-cnn"),
        "weighting": ("samples", "samples", "samples"),
    }
