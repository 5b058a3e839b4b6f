"""Ditto and FedProx: the proximal term, stragglers, and the methods they become at their limits."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.kit.training import proximity
from engine.methods.ditto import PERSONAL, DittoParams
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.testing import same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import ALONE, PLAIN, finished, local_work, own, prices, same_servers

WITH_DROPOUT: dict[str, Any] = {
    "models": {"family": "googlenet"},
    "dataset": {"name": "synthetic", "classes": 2, "samples_per_class": 8, "channels": 3, "size": 32},
    "partition": {"name": "iid"},
    "clients": 2,
    "participation": 1.0,
    "rounds": 1,
    "training": {"epochs": 1, "batch_size": 8, "lr": 0.01},
}
MODELS: list[dict[str, Any]] = [{}, WITH_DROPOUT]
NAMES = ["three tiny models", "dropout"]


def test_the_proximal_term_by_hand() -> None:
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3.0, 1.0]]))
        module.bias.fill_(2.0)
    term = proximity(module, {"weight": torch.tensor([[1.0, 0.0]]), "bias": torch.tensor([5.0])})
    assert term.item() == (4 + 1 + 9) / 2
    term.backward()
    assert module.weight.grad is not None
    assert module.bias.grad is not None
    assert module.weight.grad.tolist() == [[2.0, 1.0]]  # w - w°: the ½ takes the factor 2 away
    assert module.bias.grad.tolist() == [-3.0]


def test_the_proximal_term_leaves_running_statistics_alone() -> None:
    module = nn.BatchNorm1d(2)
    center = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.running_mean = torch.tensor([5.0, 5.0])
    assert proximity(module, center).item() == 0


@pytest.mark.parametrize("models", MODELS, ids=NAMES)
def test_the_global_branch_of_ditto_is_fedavg(models: dict[str, Any], small_spec: SpecMaker) -> None:
    assert same_servers(small_spec("ditto", **models), small_spec("fedavg", **models))


@pytest.mark.parametrize(
    ("protocol", "models"), [("A", {}), ("B", {}), ("C", {}), ("C", WITH_DROPOUT)], ids=["A", "B", "C", "dropout"]
)
def test_ditto_without_pull_is_standalone(protocol: str, models: dict[str, Any], small_spec: SpecMaker) -> None:
    changes = {**models, "evaluation": {"protocol": protocol}}
    free, alone = Run(small_spec({"name": "ditto", "weight": 0}, **changes)), Run(small_spec(**changes))
    for ditto, standalone in zip(free.rounds(), alone.rounds(), strict=True):
        assert ditto.client_accuracy == standalone.client_accuracy
        for k in alone.federation.states.ids():
            assert same(own(free, k, "parts.model."), own(alone, k, "model."))


@pytest.mark.parametrize("models", MODELS, ids=NAMES)
def test_the_upload_of_fedprox_in_round_one_is_the_personal_model_of_ditto(
    models: dict[str, Any], small_spec: SpecMaker
) -> None:
    ditto = Run(small_spec({"name": "ditto", "weight": 0.5}, **models))
    fedprox = Run(small_spec({"name": "fedprox", "mu": 0.5}, **models))
    for personal, proximal in zip(local_work(ditto), local_work(fedprox), strict=True):
        assert same(personal.client.parts[PERSONAL].state_dict(), proximal.sent)


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_fedprox_without_pull_is_fedavg(protocol: str, small_spec: SpecMaker) -> None:
    changes = {"evaluation": {"protocol": protocol}}
    free, plain = small_spec({"name": "fedprox", "mu": 0}, **changes), small_spec("fedavg", **changes)
    assert same_servers(free, plain)
    assert [r.without_times() for r in records_of(free)] == [r.without_times() for r in records_of(plain)]


def test_fedprox_with_one_step_a_round_is_fedavg(small_spec: SpecMaker) -> None:
    one_step = {"training": {"epochs": 1, "batch_size": 1000, "lr": 0.05}}
    assert same_servers(small_spec({"name": "fedprox", "mu": 10}, **one_step), small_spec("fedavg", **one_step))


def test_a_strong_pull_keeps_models_near_the_received_one(small_spec: SpecMaker) -> None:
    def distance(mu: float) -> float:
        run = Run(small_spec({"name": "fedprox", "mu": mu}, training=PLAIN))
        first = next(local_work(run))
        return sum(float((first.sent[name] - tensor).square().sum()) for name, tensor in first.received.items())

    assert distance(15.0) < distance(1.0) < distance(0.0)


def test_ditto_trains_and_pays_for_two_models_and_sends_one(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "ditto", "personal_epochs": 3}, **ALONE))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.client_flops == price.samples * 3 * price.model * (2 + 3)
    assert record.scalars_up == record.scalars_down == price.model_scalars


def test_ditto_trains_both_models_equally_long_by_default(small_spec: SpecMaker) -> None:
    run = Run(small_spec("ditto", **ALONE))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.client_flops == 2 * 3 * price.model * price.samples * 2


def test_the_personal_model_is_pulled_to_the_received_model_and_not_to_the_trained_one(small_spec: SpecMaker) -> None:
    """One step from w^0 = v: the pull to the received model is zero, the pull to the trained one would not be."""
    one_step = {"training": {"epochs": 1, "batch_size": 1000, "lr": 0.05}}
    for work in local_work(Run(small_spec({"name": "ditto", "weight": 50}, **one_step))):
        assert same(work.client.parts[PERSONAL].state_dict(), work.sent)


def test_a_personal_model_waits_at_its_start_until_its_client_takes_part(small_spec: SpecMaker) -> None:
    run = Run(small_spec("ditto", rounds=1, evaluation={"protocol": "B"}))
    opening, record = list(run.rounds())
    idle = set(map(str, range(6))) - set(map(str, record.cohort))
    assert {k: record.client_accuracy[k] for k in idle} == {k: opening.client_accuracy[k] for k in idle}


@pytest.mark.parametrize("preset", ["A", "B", "C"])
def test_no_preset_lets_momentum_make_dittos_pull_stronger_than_its_authors(preset: str) -> None:
    """A steady pull λ adds up to λ/(1-m); the authors' λ = 1 goes without momentum, and C's m = 0.5 doubles it."""
    data = {"dataset": {"name": "cifar10"}, "partition": {"name": "pathological"}, "models": {"family": "cnn-1"}}
    spec = ExperimentSpec.parse({"preset": preset, "algorithm": {"name": "ditto"}, **data})
    assert isinstance(spec.algorithm, DittoParams)
    pull = spec.algorithm.weight / (1 - spec.training.momentum)
    assert pull == pytest.approx({"A": 1, "B": 1, "C": 2}[preset])


def test_without_personal_epochs_the_personal_model_never_moves(small_spec: SpecMaker) -> None:
    run = finished(small_spec({"name": "ditto", "personal_epochs": 0}))
    for k in run.federation.states.ids():
        initial = run.setup.model(run.setup.architectures[k]).state_dict()
        assert same(own(run, k, "parts.model."), initial)


@pytest.mark.parametrize(
    "variants",
    [
        [{"name": "ditto"}, {"name": "ditto", "weight": 10}, {"name": "ditto", "personal_epochs": 1}],
        [{"name": "fedprox"}, {"name": "fedprox", "mu": 10}, {"name": "fedprox", "straggler_ratio": 1}],
    ],
    ids=["ditto", "fedprox"],
)
def test_every_option_changes_what_a_client_becomes(variants: list[dict[str, Any]], small_spec: SpecMaker) -> None:
    def outcome(variant: dict[str, Any]) -> str:
        first = next(local_work(Run(small_spec(variant, participation=1.0))))
        personal = first.client.parts.state_dict()
        return str([tensor.sum().item() for tensor in (*first.sent.values(), *personal.values())])

    assert len({outcome(variant) for variant in variants}) == len(variants)


def test_a_share_of_the_cohort_straggles_and_it_differs_from_round_to_round(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedprox", "straggler_ratio": 0.45}, participation=1.0))
    slow = [run.algorithm.stragglers(round) for round in range(1, 21)]  # type: ignore[attr-defined]
    assert {len(clients) for clients in slow} == {3}  # round(0.45 · 6)
    assert len(set(map(tuple, slow))) > 3
    assert all(set(clients) <= set(run.setup.participants(round)) for round, clients in enumerate(slow, 1))


@pytest.mark.parametrize(("epochs", "allowed"), [(1, {1}), (2, {1}), (5, {1, 2, 3, 4})])
def test_stragglers_make_one_to_one_less_than_all_epochs(epochs: int, allowed: set[int], small_spec: SpecMaker) -> None:
    training = {"epochs": epochs, "batch_size": 1000, "lr": 0.05}
    run = Run(small_spec({"name": "fedprox", "straggler_ratio": 1}, training=training, participation=1.0, rounds=5))
    made = set()
    for record in list(run.rounds())[1:]:
        whole = sum(prices(run, k).samples * 3 * prices(run, k).model for k in record.cohort)
        assert min(allowed) * whole <= record.client_flops <= max(allowed) * whole
        clients = [run.federation.fresh(k, record.round) for k in record.cohort]
        made |= {run.algorithm.epochs(client) for client in clients}  # type: ignore[attr-defined]
    assert made == allowed


def test_fedprox_pays_for_the_epochs_that_were_made(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedprox", **ALONE))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.client_flops == price.samples * 2 * 3 * price.model
    assert record.scalars_up == record.scalars_down == price.model_scalars
