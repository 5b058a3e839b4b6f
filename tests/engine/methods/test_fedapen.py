"""FedAPEN: identity, the adaptability set, the learned weight, messages, price and numbers by hand."""

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from engine.kit.distillation import learn_share
from engine.methods.fedapen import Ensemble
from engine.models import SplitModel
from engine.runtime.run import Run
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import grad
from tests.engine.methods.mutual import (
    by_preset,
    forward_prices,
    models_after_every_round,
    only_record,
)
from tests.engine.methods.test_proposed import COLOUR

LABELS_ONLY = {"name": "fedapen", "use_kl": False, "use_ensemble": False, "adaptability_ratio": 0}


def test_with_labels_only_its_private_models_are_standalone_bit_for_bit(small_spec: SpecMaker) -> None:
    assert models_after_every_round(small_spec(LABELS_ONLY)) == models_after_every_round(small_spec())


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_with_labels_only_its_private_read_out_is_standalone(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    private = [
        record.traces.get("accuracy_private", {})
        for record in records_of(small_spec(LABELS_ONLY, evaluation=evaluation))
    ]
    assert private == [record.client_accuracy for record in records_of(small_spec(evaluation=evaluation))]


def stage_of(small_spec: SpecMaker, **parameters: Any) -> Stage:
    return Stage(Run(small_spec({"name": "fedapen", **parameters})))


def test_its_loss_by_hand(small_spec: SpecMaker) -> None:
    """own = (0, 0), peer = (ln 3, 0), label 0, share ½: the ensemble's logits are (½ ln 3, 0)."""
    own, peer, y = torch.zeros(1, 2), torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])
    labels, peers = math.log(2), 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    together = math.log(1 + 1 / math.sqrt(3))
    for kl in (False, True):
        for ensemble in (False, True):
            algorithm = stage_of(small_spec, use_kl=kl, use_ensemble=ensemble).algorithm
            expected = labels + kl * peers + ensemble * together
            assert algorithm.loss(0.5, own, peer, y).item() == pytest.approx(expected, rel=1e-6)


def test_a_model_gets_no_gradient_from_its_peers_loss(small_spec: SpecMaker) -> None:
    own, peer = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    stage_of(small_spec).algorithm.loss(0.3, own, peer, torch.tensor([0])).backward()
    assert own.grad is not None
    assert peer.grad is None


def test_one_step_by_hand_with_unequal_weights(small_spec: SpecMaker) -> None:
    """a = ¼: the private model answers for a quarter in both losses, the small one for the rest."""
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.1, "momentum": 0, "weight_decay": 0, "clip": None}
    algorithm = {"name": "fedapen", "adaptability_ratio": 0, "use_kl": False, "small_model": "compfl-cnn"}
    stage = Stage(Run(small_spec(algorithm, training=training)))
    client = stage.client(1)
    client.part("ensemble", Ensemble).a.fill_(0.25)
    x, y = client.train.batch(torch.arange(len(client.train)))
    F, G = client.model.requires_grad_(True), client.part("small", SplitModel).requires_grad_(True)
    f, g = F(x), G(x)
    loss = cross_entropy(f, y) + cross_entropy(0.25 * f + 0.75 * g.detach(), y)
    loss = loss + cross_entropy(g, y) + cross_entropy(0.25 * f.detach() + 0.75 * g, y)
    loss.backward()
    expected = [(w - 0.1 * grad(w)).detach().clone() for w in [*F.parameters(), *G.parameters()]]
    stage.algorithm.local_update(client, stage.run.server.groups["all"])
    for parameter, wanted in zip([*F.parameters(), *G.parameters()], expected, strict=True):
        assert torch.allclose(parameter, wanted, atol=1e-6)


def test_the_adaptability_set_is_disjoint_from_training_and_the_same_in_every_round(small_spec: SpecMaker) -> None:
    stage = stage_of(small_spec, adaptability_ratio=0.2)
    client = stage.client()
    train, adaptability = stage.algorithm._split(client)
    n = len(client.train)
    assert len(adaptability) == n // 5
    assert sorted([*train.index.tolist(), *adaptability.index.tolist()]) == sorted(client.train.index.tolist())
    later = stage.algorithm._split(stage.run.federation.load(0, 3))[1]
    assert torch.equal(later.index, adaptability.index)


def test_the_adaptability_set_is_empty_at_ratio_zero_and_for_fewer_than_twenty_samples(small_spec: SpecMaker) -> None:
    stage = stage_of(small_spec, adaptability_ratio=0)
    client = stage.client()
    train, adaptability = stage.algorithm._split(client)
    assert len(adaptability) == 0
    assert torch.equal(train.index, client.train.index)
    stage = stage_of(small_spec)
    client = stage.client()
    client.train = client.train.subset(torch.arange(19))
    assert len(stage.algorithm._split(client)[1]) == 0


def test_two_samples_always_stay_for_training(small_spec: SpecMaker) -> None:
    stage = stage_of(small_spec, adaptability_ratio=0.5)
    client = stage.client()
    client.train = client.train.subset(torch.arange(2))
    assert [len(part) for part in stage.algorithm._split(client)] == [2, 0]


def ensemble_weights(run: Run) -> dict[int, float]:
    return {k: run.federation.states.get(k)["parts.ensemble.a"].item() for k in run.federation.states.ids()}


FAST: dict[str, Any] = {"name": "fedapen", "adaptability_ratio": 0.3, "weight_lr": 0.01}


def test_a_client_trains_with_one_half_first_and_learns_its_weight_before_every_later_training(
    small_spec: SpecMaker,
) -> None:
    run = Run(small_spec(FAST, participation=1.0))
    iterator = run.rounds()
    next(iterator)
    assert set(next(iterator).traces["ensemble_weight"].values()) == {0.5}
    assert set(ensemble_weights(run).values()) == {0.5}

    client = run.federation.load(0, 2)
    client.parts["small"].load_state_dict(run.server.groups["all"])
    held_out = run.algorithm._split(client)[1]  # type: ignore[attr-defined]
    images, y = held_out.batch(torch.arange(len(held_out)))
    with torch.no_grad():
        F, G = client.model.eval()(images), client.parts["small"].eval()(images)
    expected = learn_share(F, G, y, 0.5, lr=0.01, epochs=10, batch_size=8)

    second = next(iterator).traces["ensemble_weight"]
    assert second["0"] == pytest.approx(expected, rel=1e-5)
    assert second == {str(k): a for k, a in ensemble_weights(run).items()}
    assert len(set(second.values())) == 6
    assert all(0 <= a <= 1 for a in second.values())


def test_an_idle_client_keeps_its_weight_and_a_test_learns_only_a_copy(small_spec: SpecMaker) -> None:
    run = Run(small_spec(FAST, evaluation={"protocol": "B"}, rounds=6))
    known: dict[int, float] = {}
    for record in run.rounds():
        now = ensemble_weights(run)
        assert all(now[k] == a for k, a in known.items() if k not in record.cohort)
        assert record.eval_flops > 0
        known = now


def test_it_answers_with_the_weighted_logits_of_both_models(small_spec: SpecMaker) -> None:
    stage = stage_of(small_spec, weight_epochs=0)
    client = stage.client()
    stage.algorithm.prepare(client, stage.run.server.groups["all"])
    predictor = stage.algorithm.predictor(client)
    client.part("ensemble", Ensemble).a.fill_(0.25)
    images, _ = client.test.batch(torch.arange(len(client.test)))
    client.model.eval()
    with torch.no_grad():
        expected = 0.25 * client.model(images) + 0.75 * client.parts["small"](images)
        assert torch.equal(predictor(images), expected)


def test_the_cohort_is_tested_after_aggregation_with_the_new_small_model(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedapen", "adaptability_ratio": 0}, rounds=1))
    *_, record = run.rounds()
    for k in record.cohort:
        client = run.federation.load(k, 1)
        client.parts["small"].load_state_dict(run.server.groups["all"])
        images, y = client.test.batch(torch.arange(len(client.test)))
        with torch.no_grad():
            logits = 0.5 * client.model.eval()(images) + 0.5 * client.parts["small"](images)
        assert record.client_accuracy[str(k)] == int((logits.argmax(1) == y).sum()) / len(y)


def test_a_message_is_the_small_model_with_its_head() -> None:
    _, record = only_record("fedapen", dataset={**COLOUR, "classes": 10, "samples_per_class": 20})
    assert (record.scalars_up, record.scalars_down) == (670_058, 670_058)


def test_its_price_is_training_on_the_rest_and_one_forward_of_the_adaptability_set() -> None:
    samples = {**COLOUR, "samples_per_class": 100}
    run, record = only_record("fedapen", dataset=samples, clients=1, participation=1.0, partition={"name": "iid"})
    n, F, G = forward_prices(run, 0)
    m = n // 20
    assert m > 1
    assert record.client_flops == (n - m) * 3 * (F + G)
    assert record.eval_flops == m * (F + G)


def test_from_the_second_time_on_learning_the_weight_is_paid_by_the_client(small_spec: SpecMaker) -> None:
    run = Run(small_spec(FAST, clients=1, partition={"name": "iid"}))
    _, first, second, _ = run.rounds()
    n, F, G = forward_prices(run, 0)
    assert second.client_flops - first.client_flops == int(0.3 * n) * (F + G)


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"adaptability_ratio": 0.2},
        {"weight_lr": 0.1},
        {"weight_epochs": 1},
        {"use_kl": False},
        {"use_ensemble": False},
        {"small_model": "fedavgcnn"},
    ]
    few = {"clients": 2, "participation": 1.0, "rounds": 2}
    results = [str(models_after_every_round(small_spec({**FAST, **variant}, **few))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_clients_weigh_the_same_unless_told_otherwise(small_spec: SpecMaker) -> None:
    skewed = {"name": "dirichlet", "beta": 0.5}
    for algorithm, uniform in (({"name": "fedapen"}, True), ({"name": "fedapen", "weighting": "samples"}, False)):
        stage = Stage(Run(small_spec(algorithm, partition=skewed)))
        uploads = [stage.upload(k) for k in (0, 1, 2)]
        mean = torch.stack([upload.payload["head.bias"].double() for upload in uploads]).mean(0)
        server = stage.algorithm.aggregate(stage.run.server, uploads, 1)
        assert torch.allclose(server.groups["all"]["head.bias"].double(), mean, atol=1e-7) is uniform


def test_every_preset_weighs_clients_the_same() -> None:
    assert by_preset("fedapen", "small_model", "weighting") == {
        "small_model": ("cnn-5", "fedavgcnn", "compfl-cnn"),
        "weighting": ("uniform", "uniform", "uniform"),
    }


def test_learning_lowers_the_loss_of_the_common_answer() -> None:
    draws = torch.Generator().manual_seed(3)
    F, G, y = torch.randn(40, 4, generator=draws), torch.randn(40, 4, generator=draws), torch.arange(40) % 4
    F[torch.arange(40), y] += 2
    a = learn_share(F, G, y, 0.5, lr=0.05, epochs=10, batch_size=8)
    assert a > 0.5
    assert cross_entropy(a * F + (1 - a) * G, y) < cross_entropy((F + G) / 2, y)
