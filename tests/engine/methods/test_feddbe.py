"""FedDBE: the opening, the mean regularisation by hand, and FedAvg where both parts are off."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from engine.kit.modules import Vector
from engine.kit.tensors import copy_tensors
from engine.methods.feddbe import OFFSET
from engine.runtime.run import Run
from engine.testing import same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import ALONE, finished, own, prices, same_servers

OFF = {"name": "feddbe", "mean_weight": 0, "train_bias": False}


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_with_both_parts_off_its_parameters_are_those_of_fedavg(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    assert same_servers(small_spec(OFF, evaluation=evaluation), small_spec("fedavg", evaluation=evaluation))


def test_with_both_parts_off_its_records_are_those_of_fedavg_where_both_test_the_new_model(
    small_spec: SpecMaker,
) -> None:
    evaluation = {"protocol": "B"}
    off, plain = (records_of(small_spec(method, evaluation=evaluation)) for method in (OFF, "fedavg"))
    assert [record.without_times() for record in off] == [record.without_times() for record in plain]


def test_both_parts_change_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"mean_weight": 1},
        {"mean_weight": 0},
        {"momentum": 0.5},
        {"train_bias": False},
        {"init": "forward"},
    ]
    results = [[record.loss for record in records_of(small_spec({"name": "feddbe", **v}))][1:] for v in variants]
    assert len(set(map(str, results))) == len(variants)


@pytest.mark.parametrize("init", ["train", "forward"])
def test_the_opening_leaves_the_models_alone_and_its_mean_never_changes(init: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "feddbe", "init": init}))
    run.federation.build()
    before = {group: copy_tensors(tensors) for group, tensors in run.server.groups.items()}
    rounds = run.rounds()
    next(rounds)
    assert all(same(run.server.groups[group], tensors) for group, tensors in before.items())
    assert run.federation.states.ids() == []
    means = {group: copy_tensors(mean) for group, mean in run.server.shared["means"].items()}
    assert means.keys() == before.keys()
    list(rounds)
    assert all(same(run.server.shared["means"][group], mean) for group, mean in means.items())


def test_the_mean_of_untrained_features_by_hand(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "feddbe", "init": "forward"}))
    next(run.rounds())
    for architecture, center in run.server.shared["means"].items():
        members = [k for k, name in enumerate(run.setup.architectures) if name == architecture]
        model, features = run.setup.model(architecture).eval(), []
        for k in members:
            train = run.federation.fresh(k, 0).train
            features.append(model.body(train.batch(torch.arange(len(train)))[0]))
        assert torch.allclose(
            center["mean"], torch.cat(features).mean(0), atol=1e-5
        )  # w_k ∝ n_k: the mean of all samples


def test_the_mean_after_training_is_the_moving_mean_of_every_client(small_spec: SpecMaker) -> None:
    """One batch and one epoch: the moving mean with μ = ½ is half the mean of the initial features in train mode."""
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.05}
    run = Run(small_spec({"name": "feddbe", "momentum": 0.5}, training=training))
    next(run.rounds())
    for architecture, center in run.server.shared["means"].items():
        members = [k for k, name in enumerate(run.setup.architectures) if name == architecture]
        total, by_hand = sum(run.setup.num_samples[k] for k in members), torch.zeros(16)
        for k in members:
            train = run.federation.fresh(k, 0).train
            features = run.setup.model(architecture).train().body(train.batch(torch.arange(len(train)))[0])
            by_hand += 0.5 * features.detach().mean(0) * len(train) / total
        assert torch.allclose(center["mean"], by_hand, atol=1e-5)


@pytest.mark.parametrize("momentum", [1.0, 0.25])
def test_one_step_by_hand(momentum: float, small_spec: SpecMaker) -> None:
    """μ = 1 regularises the plain batch mean; in the first batch of a round μ < 1 sees μ times that mean."""
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.1, "momentum": 0, "weight_decay": 0.1, "clip": None}
    run = Run(small_spec({"name": "feddbe", "momentum": momentum}, training=training, models={"family": "tiny-mlp"}))
    run.federation.build()
    run.opening()
    client = run.federation.load(0, 1)
    sent = run.algorithm.local_update(client, run.algorithm.download(run.server, client))
    model, r = run.setup.model("tiny-mlp"), torch.zeros(16, requires_grad=True)
    images, labels = client.train.batch(torch.arange(len(client.train)))
    z = model.body(images)
    distance = momentum * z.mean(0) - run.server.shared["means"]["tiny-mlp"]["mean"]
    loss = cross_entropy(model.head(z + r), labels) + 50 * (distance.square() / 2).mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        stepped = parameter.detach() - 0.1 * (parameter.grad + 0.1 * parameter.detach())
        assert torch.allclose(sent[name], stepped, atol=1e-5)
    assert r.grad is not None
    assert torch.allclose(client.part(OFFSET, Vector).value, -0.1 * r.grad, atol=1e-6)


def test_the_offset_does_not_decay(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "feddbe", "mean_weight": 0}, training={"lr": 0.1, "weight_decay": 1.0, "epochs": 3}))
    run.federation.build()
    client = run.federation.fresh(0, 1)
    with torch.no_grad():
        for parameter in client.model.head.parameters():
            parameter.zero_()  # no gradient reaches the offset through a head of zeros
        client.part(OFFSET, Vector).value.fill_(3.0)
    received = copy_tensors(client.model)
    run.algorithm.local_update(client, received)
    first_step = client.part(OFFSET, Vector).value
    assert first_step.mean().item() > 2.5  # decay of 1 at η = 0.1 would leave at most 3·0.9³ = 2.2


def test_offsets_are_private_differ_and_stay_zero_when_switched_off(small_spec: SpecMaker) -> None:
    on, off = finished(small_spec("feddbe")), finished(small_spec({"name": "feddbe", "train_bias": False}))
    first, second, *_ = (own(on, k, "parts.offset.")["value"] for k in on.federation.states.ids())
    assert first.any()
    assert not torch.equal(first, second)
    assert not any(own(off, k, "parts.offset.")["value"].any() for k in off.federation.states.ids())


def test_the_answer_comes_from_the_shifted_feature(small_spec: SpecMaker) -> None:
    run = finished(small_spec("feddbe"))
    client = run.federation.load(run.federation.states.ids()[0], 3)
    run.algorithm.prepare(client, run.algorithm.download(run.server, client))
    predictor = run.algorithm.predictor(client)
    assert predictor is not None
    client.model.eval()
    images, _ = client.test.batch(torch.arange(3))
    shift = own(run, client.id, "parts.offset.")["value"]
    assert torch.equal(predictor(images), client.model.head(client.model.body(images) + shift))
    assert same(copy_tensors(client.model), run.server.groups[client.architecture])


def test_local_work_the_opening_and_messages_cost_what_the_formulas_say(small_spec: SpecMaker) -> None:
    run = Run(small_spec("feddbe", **ALONE))
    opening, record = list(run.rounds())
    price = prices(run, record.cohort[0])
    assert record.client_flops == price.samples * 2 * 3 * price.model
    assert record.scalars_up == record.scalars_down == price.model_scalars
    assert opening.cohort == list(range(6))
    assert opening.client_flops == sum(prices(run, k).samples * 2 * 3 * prices(run, k).model for k in range(6))
    assert opening.scalars_up == opening.scalars_down == 6 * 16  # d each way for every client


@pytest.mark.parametrize("bias", [True, False])
def test_without_mean_regularisation_there_is_no_opening(bias: bool, small_spec: SpecMaker) -> None:
    opening = records_of(small_spec({"name": "feddbe", "mean_weight": 0, "train_bias": bias}))[0]
    assert opening.client_flops == opening.scalars_up == opening.scalars_down == 0
