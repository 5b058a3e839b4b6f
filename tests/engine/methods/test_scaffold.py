"""SCAFFOLD: control variates by hand, and FedAvg where there is nothing to correct."""

from typing import Any

import pytest
import torch

from engine.kit.contract import ServerState, Upload
from engine.kit.modules import Shadow
from engine.kit.sgd import SGD
from engine.kit.tensors import join_groups, split_groups
from engine.runtime.run import Run
from engine.testing import EQUAL, same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import (
    ALONE,
    PLAIN,
    UNEQUAL,
    close,
    finished,
    grad,
    local_work,
    own,
    prices,
    server_history,
)

NOISY = {"epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9}
ONE_CLIENT: dict[str, Any] = {"clients": 1, "partition": {"name": "iid"}, "participation": 1.0}


def models(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{group: state for group, state in round.items() if "control" not in group} for round in history]


def same_models(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    pairs = zip(models(first), models(second), strict=True)
    return all(a.keys() == b.keys() and all(same(a[group], b[group]) for group in a) for a, b in pairs)


@pytest.mark.parametrize("training", [PLAIN, NOISY], ids=["plain", "with momentum"])
def test_without_control_it_is_uniform_fedavg_without_momentum(training: dict[str, Any], small_spec: SpecMaker) -> None:
    off = server_history(small_spec({"name": "scaffold", "use_control": False}, training=training, **EQUAL))
    assert same_models(off, server_history(small_spec("fedavg", training=PLAIN, **EQUAL)))


def test_its_first_round_is_uniform_fedavg_and_its_second_is_not(small_spec: SpecMaker) -> None:
    controlled = server_history(small_spec("scaffold", **EQUAL))
    plain = server_history(small_spec("fedavg", training=PLAIN, **EQUAL))
    assert same_models(controlled[:2], plain[:2])
    assert not same_models(controlled[2:3], plain[2:3])


def test_weights_by_samples_without_control_are_fedavg(small_spec: SpecMaker) -> None:
    by_samples = {"name": "scaffold", "use_control": False, "weights": "samples"}
    fedavg = server_history(small_spec("fedavg", training=PLAIN, **UNEQUAL))
    assert same_models(server_history(small_spec(by_samples, **UNEQUAL)), fedavg)
    assert not same_models(server_history(small_spec({**by_samples, "weights": "uniform"}, **UNEQUAL)), fedavg)


def test_a_client_keeps_the_mean_of_its_gradients(small_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """g with clipping and weight decay, before the correction: seen by the optimiser minus c - c_i = 0 in round 1."""
    seen: list[dict[str, torch.Tensor]] = []
    step = SGD.step

    def recorded(self: SGD) -> None:
        [group] = self.groups
        seen.append({str(i): grad(p) + group.weight_decay * p.detach() for i, p in enumerate(group.parameters)})
        step(self)

    monkeypatch.setattr(SGD, "step", recorded)
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05, "weight_decay": 0.01, "clip": 0.5}
    for work in local_work(Run(small_spec("scaffold", training=training))):
        mean = {name: torch.stack([gradients[name] for gradients in seen]).mean(0) for name in seen[0]}
        kept = work.client.part("control", Shadow).tensors().values()
        assert close({str(i): tensor for i, tensor in enumerate(kept)}, mean)
        seen.clear()


def test_its_variate_is_the_gradient_also_where_the_learning_rate_fades(
    small_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients: dict[str, torch.Tensor] = {}
    step = SGD.step

    def recorded(self: SGD) -> None:
        [group] = self.groups
        gradients.update({str(i): grad(p).clone() for i, p in enumerate(group.parameters)})
        step(self)

    monkeypatch.setattr(SGD, "step", recorded)
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.05, "weight_decay": 0, "schedule": "exponential", "decay": 0.1}
    run = finished(small_spec("scaffold", clients=1, partition={"name": "iid"}, training=training, rounds=2))
    kept = own(run, 0, "parts.control.").values()
    assert close({str(i): tensor for i, tensor in enumerate(kept)}, gradients)


def test_with_all_clients_the_server_keeps_the_mean_of_their_variates(small_spec: SpecMaker) -> None:
    run = finished(small_spec("scaffold", participation=1.0, rounds=1))
    for group in dict.fromkeys(run.setup.architectures):
        members = [k for k, name in enumerate(run.setup.architectures) if name == group]
        own_variates = [own(run, k, "parts.control.") for k in members]
        mean = {
            name.replace("/", "."): torch.stack([c[name] for c in own_variates]).mean(0) for name in own_variates[0]
        }
        assert close(run.server.shared["control"][group], mean)


def test_one_client_is_standalone_without_momentum(small_spec: SpecMaker) -> None:
    controlled, alone = Run(small_spec("scaffold", **ONE_CLIENT)), Run(small_spec(training=PLAIN, **ONE_CLIENT))
    for _ in zip(controlled.rounds(), alone.rounds(), strict=True):
        [group] = controlled.server.groups
        if alone.federation.states.ids():
            assert close(controlled.server.groups[group], own(alone, 0, "model."))


def upload(client: int, y: float, delta: float, samples: int = 1) -> Upload:
    model = {"w": torch.tensor([y]), "running_mean": torch.tensor([y])}
    return Upload(client, samples, "tiny-mlp", join_groups({"model": model, "control": {"w": torch.tensor([delta])}}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 4.0),  # (2 + 6) / 2
        ({"server_lr": 0.5}, 7.0),  # ½·10 + ½·4
        ({"server_lr": 0}, 10.0),
        ({"server_lr": 2}, -2.0),  # -10 + 2·4
        ({"weights": "samples"}, 5.0),  # (1·2 + 3·6) / 4
    ],
)
def test_the_server_by_hand(options: dict[str, Any], expected: float, small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "scaffold", **options}, models={"family": "tiny-mlp"}))
    x = {"w": torch.tensor([10.0]), "running_mean": torch.tensor([0.0])}
    server = ServerState({"tiny-mlp": x}, {"control": {"tiny-mlp": {"w": torch.tensor([1.0])}}})
    new = run.algorithm.aggregate(server, [upload(0, 2.0, 3.0), upload(4, 6.0, 9.0, samples=3)], 1)
    assert new.groups["tiny-mlp"]["w"].item() == expected
    assert new.groups["tiny-mlp"]["running_mean"].item() == (5.0 if "weights" in options else 4.0)  # never η_g
    assert new.shared["control"]["tiny-mlp"]["w"].item() == 1 + 12 / 6  # six clients own it, two took part


def test_the_second_round_corrects_every_step_by_hand(small_spec: SpecMaker) -> None:
    """Two runs of one client that differ in c alone: after one step the models differ by η·c, and c_i not at all."""
    training = {"epochs": 1, "batch_size": 1000, "lr": 0.1, "momentum": 0, "weight_decay": 0, "clip": None}
    run = Run(small_spec("scaffold", training=training, models={"family": "tiny-mlp"}))
    plain = next(local_work(run))
    variate = {name: tensor.clone() for name, tensor in plain.client.part("control", Shadow).tensors().items()}
    sent = split_groups(plain.sent)["model"]
    group = plain.client.architecture
    c = {name: torch.full_like(tensor, 0.25) for name, tensor in variate.items()}
    shifted = ServerState(run.server.groups, {"control": {group: c}})
    client = run.federation.fresh(0, 1)
    corrected = split_groups(run.algorithm.local_update(client, run.algorithm.download(shifted, client)))
    for name, tensor in corrected["model"].items():
        assert torch.allclose(tensor, sent[name] - 0.1 * 0.25, atol=1e-6)
    assert close(client.part("control", Shadow).tensors(), variate)  # c_i⁺ is the mean gradient, whatever c is
    assert close(corrected["control"], variate)


def test_an_idle_client_keeps_its_old_variate(small_spec: SpecMaker) -> None:
    run = Run(small_spec("scaffold", rounds=6))
    before: dict[int, dict[str, torch.Tensor]] = {}
    for record in run.rounds():
        for k in before:
            assert same(own(run, k, "parts.control."), before[k]) == (k not in record.cohort)
        before = {k: own(run, k, "parts.control.") for k in run.federation.states.ids()}


@pytest.mark.parametrize("use_control", [True, False])
def test_local_work_and_messages_cost_what_the_formulas_say(use_control: bool, small_spec: SpecMaker) -> None:
    bn = {"models": {"family": "tiny-bn"}}
    run = Run(small_spec({"name": "scaffold", "use_control": use_control}, **ALONE, **bn))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.client_flops == price.samples * 2 * 3 * price.model
    parameters = sum(p.numel() for p in run.setup.model("tiny-bn").parameters())
    assert parameters < price.model_scalars  # the buffers go once
    assert record.scalars_up == record.scalars_down == price.model_scalars + use_control * parameters


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"server_lr": 0.5}, {"use_control": False}, {"weights": "samples"}]
    results = [[r.loss for r in records_of(small_spec({"name": "scaffold", **v}, **UNEQUAL))] for v in variants]
    assert len(set(map(str, results))) == len(variants)


def test_it_says_why_it_cannot_run_with_a_learning_rate_of_zero(small_spec: SpecMaker) -> None:
    run = Run(small_spec("scaffold", training={"lr": 0}))
    assert "training.lr must be above 0" in str(run.algorithm.why_not())
    assert Run(small_spec({"name": "scaffold", "use_control": False}, training={"lr": 0})).algorithm.why_not() is None
