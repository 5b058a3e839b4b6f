"""FedAvg-FT and FedBABU: a copy is tuned for the test and leaves no trace."""

from typing import Any

import pytest
import torch

from engine.kit.tensors import live_tensors
from engine.runtime.run import Run
from engine.testing import same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import ALONE, finished, local_work, own, prices, same_servers, server_history

TUNED = ["fedavg-ft", "fedbabu"]


@pytest.mark.parametrize("part", ["head", "full"])
@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_tuning_for_the_test_leaves_the_parameters_of_fedavg(part: str, protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    tuned = small_spec({"name": "fedavg-ft", "ft_part": part}, evaluation=evaluation)
    assert same_servers(tuned, small_spec("fedavg", evaluation=evaluation))


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_epochs_of_tuning_fedavg_ft_is_fedavg(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    untuned = records_of(small_spec({"name": "fedavg-ft", "ft_epochs": 0}, evaluation=evaluation))
    plain = records_of(small_spec("fedavg", evaluation=evaluation))
    assert [record.without_times() for record in untuned] == [record.without_times() for record in plain]


@pytest.mark.parametrize("method", TUNED)
def test_every_option_of_tuning_changes_the_accuracy_and_nothing_else(method: str, small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"ft_epochs": 1}, {"ft_lr": 0.001}, {"ft_part": "full"}]
    hard = {"training": {"epochs": 1, "batch_size": 8, "lr": 0.01, "momentum": 0}}
    runs = [records_of(small_spec({"name": method, **variant}, **hard)) for variant in variants]
    assert len({str([(record.client_accuracy, record.eval_flops) for record in run]) for run in runs}) == len(runs)
    assert len({str([(record.loss, record.client_flops) for record in run]) for run in runs}) == 1


@pytest.mark.parametrize("method", TUNED)
def test_a_learning_rate_of_zero_tunes_nothing(method: str, small_spec: SpecMaker) -> None:
    still = records_of(small_spec({"name": method, "ft_lr": 0}))
    untuned = records_of(small_spec({"name": method, "ft_epochs": 0}))
    assert [record.client_accuracy for record in still] == [record.client_accuracy for record in untuned]


@pytest.mark.parametrize("method", TUNED)
def test_local_work_and_tuning_cost_what_the_formulas_say(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec(method, **ALONE))
    record = list(run.rounds())[1]
    n, body, head, body_scalars, head_scalars = prices(run, record.cohort[0])
    if method == "fedavg-ft":
        assert record.client_flops == n * 2 * 3 * (body + head)
        assert record.scalars_up == record.scalars_down == body_scalars + head_scalars
    else:
        assert record.client_flops == n * 2 * (3 * body + 2 * head)
        assert record.scalars_up == record.scalars_down == body_scalars
    assert record.eval_flops == n * 5 * (body + 3 * head)


@pytest.mark.parametrize("method", TUNED)
def test_tuning_the_whole_model_costs_three_passes(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": method, "ft_part": "full"}, **ALONE))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.eval_flops == price.samples * 5 * 3 * price.model


@pytest.mark.parametrize("method", TUNED)
def test_a_client_keeps_nothing(method: str, small_spec: SpecMaker) -> None:
    assert finished(small_spec(method)).federation.states.ids() == []


def test_the_head_of_fedbabu_neither_learns_nor_decays(small_spec: SpecMaker) -> None:
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05, "weight_decay": 0.1}
    run = Run(small_spec("fedbabu", training=training))
    for work in local_work(run):
        assert same(live_tensors(work.client.model.head), live_tensors(run.setup.model(work.client.architecture).head))


def test_the_body_of_fedbabu_learns(small_spec: SpecMaker) -> None:
    first, *_, last = server_history(small_spec("fedbabu", participation=1.0))
    for group in first:
        assert any(not torch.equal(first[group][name], last[group][name]) for name in first[group])
        assert not any("head" in name for name in first[group])


@pytest.mark.parametrize("method", ["fedavg", "fedavg-ft"])
def test_the_model_of_a_single_client_is_that_of_standalone(method: str, small_spec: SpecMaker) -> None:
    one: dict[str, Any] = {"clients": 1, "partition": {"name": "iid"}, "participation": 1.0}
    federated, alone = Run(small_spec(method, **one)), Run(small_spec(**one))
    for record, _ in zip(federated.rounds(), alone.rounds(), strict=True):
        [model] = federated.server.groups.values()
        assert record.round == 0 or same(model, own(alone, 0, "model."))
