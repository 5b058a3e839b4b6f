"""FedKD: identities, the loss and its gradients by hand, the compressed messages and who holds which base."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from engine.kit.compression import compress, decompress
from engine.kit.contract import Upload
from engine.kit.tensors import copy_tensors, count_scalars, shares, weighted_mean
from engine.methods.fedkd import Memory
from engine.models import SplitModel
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.mutual import (
    ONE_OF_TEN,
    by_preset,
    forward_prices,
    histories,
    models_after_every_round,
    only_record,
)

KD: dict[str, Any] = {"name": "fedkd", "small_model": "compfl-cnn"}  # its matrices are decomposed in no time
LABELS_ONLY = {**KD, "kd_weight": 0, "hidden_weight": 0}
STRICT = {**KD, "strict_wire": True, "energy_start": 0.5}
PLAIN = {"epochs": 1, "batch_size": 1000, "lr": 0.1, "momentum": 0, "weight_decay": 0, "clip": None}


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_with_labels_only_its_mentors_are_standalone_bit_for_bit(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    assert histories(small_spec(LABELS_ONLY, evaluation=evaluation)) == histories(small_spec(evaluation=evaluation))


@pytest.mark.parametrize(("kd", "hidden"), [(1.0, 1.0), (2.0, 0.0), (0.0, 3.0)])
def test_one_step_by_hand(kd: float, hidden: float, small_spec: SpecMaker) -> None:
    """The loss and the step of F, G and W: peers and c detached, the divergence batchmean, the hidden loss once."""
    algorithm = {
        **KD,
        "kd_weight": kd,
        "hidden_weight": hidden,
        "mentee_lr": 0.2,
        "energy_start": 1,
        "energy_end": 1,
    }
    stage = Stage(Run(small_spec(algorithm, training=PLAIN)))
    client = stage.client(1)
    x, y = client.train.batch(torch.arange(len(client.train)))
    F, G, W = client.model, client.part("small", SplitModel), client.part("hidden", nn.Linear)
    for module in (F, G, W):
        module.requires_grad_(True)
    z_F, z_G = F.body(x), G.body(x)
    f, g = F.head(z_F), G.head(z_G)
    c = (cross_entropy(f, y) + cross_entropy(g, y)).item()
    to_F = kl_div(log_softmax(f, 1), softmax(g, 1).detach(), reduction="batchmean")
    to_G = kl_div(log_softmax(g, 1), softmax(f, 1).detach(), reduction="batchmean")
    apart = mse_loss(z_F, z_G @ W.weight.T)
    loss = cross_entropy(f, y) + cross_entropy(g, y) + kd * (to_F + to_G) / c + hidden * apart / c
    loss.backward()
    expected = {
        name: (parameter.detach() - lr * (0 if parameter.grad is None else parameter.grad)).clone()
        for lr, prefix, module in ((0.1, "F", F), (0.2, "G", G), (0.1, "W", W))
        for name, parameter in ((f"{prefix}.{name}", parameter) for name, parameter in module.named_parameters())
    }

    stage.algorithm.local_update(client, stage.run.server.groups["all"])

    assert client.losses == [pytest.approx(loss.item(), rel=1e-5)]
    for prefix, module in (("F", F), ("G", G), ("W", W)):
        for name, parameter in module.named_parameters():
            assert torch.allclose(parameter, expected[f"{prefix}.{name}"], atol=1e-6), (prefix, name)


def test_the_hidden_map_stays_with_its_client(small_spec: SpecMaker) -> None:
    run = Run(small_spec(KD, participation=1.0, models={"family": "tiny-cnn"}))
    list(run.rounds())
    first, second, *_ = (run.federation.states.get(k)["parts.hidden.weight"] for k in run.federation.states.ids())
    assert first.shape == (16, 128)
    assert not torch.equal(first, second)


def test_the_energy_grows_evenly_to_its_last_value(small_spec: SpecMaker) -> None:
    algorithm: Any = Run(small_spec({**KD, "energy_start": 0.5, "energy_end": 0.8}, rounds=3)).algorithm
    assert [algorithm._energy(t) for t in (1, 2, 3)] == pytest.approx([0.6, 0.7, 0.8])


def test_the_server_step_by_hand(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec(KD, partition={"name": "dirichlet", "beta": 0.5})))
    uploads = [stage.upload(k) for k in (0, 1, 2)]
    start = stage.run.server.groups["all"]
    weights = shares([upload.num_samples for upload in uploads])
    mean = weighted_mean([decompress(upload.payload, start) for upload in uploads], weights)
    sent = decompress(compress(mean, 0.95 + 0.03 / 3), start)
    server = stage.algorithm.aggregate(stage.run.server, uploads, 1)
    for name, tensor in server.groups["all"].items():
        assert torch.equal(tensor, start[name] + sent[name])


def test_with_all_energy_it_is_the_method_without_compression(small_spec: SpecMaker) -> None:
    run = Run(small_spec({**KD, "energy_start": 1, "energy_end": 1}, rounds=2))
    stage = Stage(run)
    start = copy_tensors(run.server.groups["all"])
    dense = count_scalars(start)
    iterator = run.rounds()
    next(iterator)
    first = next(iterator)
    assert (first.scalars_up, first.scalars_down) == (3 * dense, 3 * dense)
    assert first.server_flops == 0
    updates = []
    for k in first.cohort:
        client = Stage(Run(run.spec)).client(k)
        stage.algorithm.local_update(client, start)
        updates.append({name: tensor - start[name] for name, tensor in copy_tensors(client.parts["small"]).items()})
    mean = weighted_mean(updates, shares([run.setup.num_samples[k] for k in first.cohort]))
    for name, tensor in run.server.groups["all"].items():
        assert torch.equal(tensor, start[name] + mean[name]), name
    second = next(iterator)
    assert (second.scalars_up, second.scalars_down) == (3 * dense, 3 * dense)


def test_the_first_download_is_dense_and_later_ones_are_the_compressed_mean_update(small_spec: SpecMaker) -> None:
    run = Run(small_spec(KD))
    dense = None
    expected = None
    for record in run.rounds():
        if record.round == 0:
            dense = expected = count_scalars(run.server.groups["all"])
            continue
        assert dense is not None
        assert expected is not None
        assert record.scalars_down == 3 * expected
        assert record.scalars_up < 3 * dense
        expected = count_scalars(run.server.shared["update"]["all"])
        assert expected < dense


def test_a_client_that_receives_an_update_holds_the_servers_mentee_to_the_bit(small_spec: SpecMaker) -> None:
    run = Run(small_spec(KD, rounds=5))
    algorithm: Any = run.algorithm
    for record in run.rounds():
        if record.round == 0:
            continue
        for k in range(6):  # also one that has been away, or was never there
            client = run.federation.load(k, record.round + 1)
            algorithm.receive(client, algorithm.download(run.server, client))
            for name, tensor in client.parts["small"].state_dict().items():
                assert torch.equal(tensor, run.server.groups["all"][name])


def test_on_a_strict_wire_a_client_that_was_away_pays_for_the_compressed_model(small_spec: SpecMaker) -> None:
    run = Run(small_spec(STRICT, rounds=6))
    before: list[int] = []
    update = model = 0
    away = 0
    for record in run.rounds():
        if record.round > 1:
            came_back = [k for k in record.cohort if k not in before]
            stayed = len(record.cohort) - len(came_back)
            assert record.scalars_down == len(came_back) * model + stayed * update
            away += len(came_back)
        if record.round > 0:
            before = record.cohort
            update, model = (count_scalars(run.server.shared[name]["all"]) for name in ("update", "model"))
    assert away > 0
    assert update != model


def test_on_a_strict_wire_with_everyone_there_nothing_is_lost(small_spec: SpecMaker) -> None:
    everyone = {"participation": 1.0, "clients": 3}
    strict, usual = (records_of(small_spec({**STRICT, "strict_wire": on}, **everyone)) for on in (True, False))
    assert [(r.loss, r.client_accuracy, r.scalars_down) for r in strict] == [
        (r.loss, r.client_accuracy, r.scalars_down) for r in usual
    ]


def test_on_a_strict_wire_a_client_keeps_the_lossy_base_it_was_sent(small_spec: SpecMaker) -> None:
    run = Run(small_spec(STRICT, rounds=4))
    algorithm: Any = run.algorithm
    iterator = run.rounds()
    next(iterator)
    first = next(iterator)
    newcomer = next(k for k in range(6) if k not in first.cohort)
    client = run.federation.load(newcomer, 2)
    algorithm.receive(client, algorithm.download(run.server, client))
    sent = decompress(run.server.shared["model"]["all"], run.server.groups["all"])
    held = client.part("memory", Memory).mentee.state_dict()
    assert all(torch.equal(held[name], sent[name]) for name in sent)
    assert not torch.equal(held["body.fc1.weight"], run.server.groups["all"]["body.fc1.weight"])
    assert client.part("memory", Memory).round.item() == 1


def test_compressing_parameters_needs_no_base(small_spec: SpecMaker) -> None:
    run = Run(small_spec({**KD, "compressed": "parameters"}))
    list(run.rounds())
    assert set(run.server.shared) == {"model"}
    sent = decompress(run.server.shared["model"]["all"], run.server.groups["all"])
    assert all(torch.equal(tensor, sent[name]) for name, tensor in run.server.groups["all"].items())


def test_its_price_is_three_forwards_of_both_models_and_the_hidden_map() -> None:
    run, record = only_record("fedkd")
    n, F, G = forward_prices(run, record.cohort[0])
    assert record.client_flops == n * 3 * (F + G + 2 * 500 * 500)
    weights = [(16, 75), (32, 400), (500, 800), (500, 500), (10, 500)]
    svd = sum(4 * m * n * min(m, n) for m, n in weights)
    assert record.traces["svd_flops"] == {str(record.cohort[0]): svd}
    assert record.server_flops == svd
    assert record.scalars_down == 670_058
    assert record.scalars_up < 670_058


def test_without_hidden_loss_the_map_is_neither_trained_nor_paid() -> None:
    run, record = only_record({"name": "fedkd", "hidden_weight": 0})
    [k] = record.cohort
    n, F, G = forward_prices(run, k)
    assert record.client_flops == n * 3 * (F + G)
    start = run.federation.initial[run.setup.architectures[k]]["parts.hidden.weight"]
    assert torch.equal(run.federation.states.get(k)["parts.hidden.weight"], start)


def test_a_head_that_needs_its_full_rank_is_not_lost(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec(KD)))
    start = stage.run.server.groups["all"]
    full = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    full["head.weight"] = torch.eye(4, 128)
    server = stage.algorithm.aggregate(stage.run.server, [Upload(0, 5, "all", compress(full, 0.95))], 1)
    assert torch.allclose(server.groups["all"]["head.weight"], start["head.weight"] + torch.eye(4, 128), atol=1e-6)


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"energy_start": 0.5},
        {"energy_end": 1.0},
        {"mentee_lr": 0.01},
        {"kd_weight": 0.5},
        {"hidden_weight": 0.5},
        {"clip": 0.01},
        {"no_detach": True},
        {"compressed": "parameters"},
        {"slices": "kernels"},
        {"energy_start": 0.5, "strict_wire": True},
        {"small_model": "fedavgcnn"},
    ]
    few = {"clients": 4, "rounds": 3, "training": {"epochs": 1, "batch_size": 8, "lr": 0.05}}
    results = [str(models_after_every_round(small_spec({**KD, **variant}, **few))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_clients_of_different_width_each_have_a_map_that_fits() -> None:
    spec = {**ONE_OF_TEN, "models": {"family": "compfl-2"}, "algorithm": {"name": "fedkd"}}
    run = Run(ExperimentSpec.parse(spec))
    run.federation.build()
    shapes = {
        name: tuple(run.federation.initial[name]["parts.hidden.weight"].shape) for name in run.federation.networks
    }
    assert shapes == {"compfl-cnn": (128, 500), "resnet18-cifar": (512, 500)}


def test_the_energy_may_not_fall() -> None:
    with pytest.raises(SpecError, match=r"at most energy_end, but got 0\.99 and 0\.98"):
        ExperimentSpec.parse({**ONE_OF_TEN, "algorithm": {"name": "fedkd", "energy_start": 0.99}})


def test_the_presets_set_the_small_model_the_weights_and_the_clip() -> None:
    assert by_preset("fedkd", "small_model", "weighting", "clip") == {
        "small_model": ("cnn-5", "fedavgcnn", "compfl-cnn"),
        "weighting": ("samples", "uniform", "samples"),
        "clip": (None, 10.0, 10.0),
    }
