"""LG-FedAvg: one linear head for all clients whose heads have one shape."""

from typing import Any

import pytest
import torch

from engine.algorithm import ServerState, Upload
from engine.executor import Bench
from engine.run import Run
from engine.spec import ExperimentSpec
from tests.engine.algorithms.test_proposed import DIGITS, essence, prices
from tests.engine.conftest import SpecMaker

HEAD_METHODS = ["lg-fedavg"]
ONE_CLIENT: dict[str, Any] = {"clients": 1, "partition": {"name": "iid"}}
PROTOCOLS = ["A", "B", "C"]


def opened(spec: ExperimentSpec) -> Run:
    """A run whose networks are built and whose server is as in round 0."""
    run = Run(spec)
    next(run.rounds())
    return run


def digits(method: str | dict[str, Any], **changes: Any) -> ExperimentSpec:
    named = {"name": method} if isinstance(method, str) else method
    return ExperimentSpec.parse({**DIGITS, "algorithm": named, **changes})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lg_fedavg_with_one_client_is_standalone(protocol: str, small_spec: SpecMaker) -> None:
    changes = {**ONE_CLIENT, "evaluation": {"protocol": protocol}}
    assert essence(small_spec("lg-fedavg", **changes)) == essence(small_spec(**changes))


@pytest.mark.parametrize("method", HEAD_METHODS)
@pytest.mark.parametrize("family", ["res34-htc-img-4", "htm-img-10"])
def test_a_head_of_several_layers_is_refused_with_its_name(method: str, family: str, small_spec: SpecMaker) -> None:
    dataset = {"name": "synthetic", "classes": 4, "samples_per_class": 40, "size": 32}
    run = Run(small_spec(method, models={"family": family}, dataset=dataset, clients=10))
    reason = str(run.algorithm.why_not())
    assert "linear" in reason
    assert ("resnet34-mlp512" if family == "res34-htc-img-4" else "vit-b-16") in reason


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_heads_of_one_shape_are_one_group_across_architectures(method: str, small_spec: SpecMaker) -> None:
    run = opened(small_spec(method))
    assert "16x4" in run.server.groups
    bench = Bench(run._originals)
    assert {run.algorithm.group(run._seat(bench, k, 1)) for k in range(6)} == {"16x4"}


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_heads_of_different_shapes_form_groups_that_start_from_their_lowest_client(method: str) -> None:
    spec = digits(method, models={"family": "compfl-2", "assign": "blocks"})
    run = Run(spec)
    run._build_networks()
    assert set(run.server.groups) == {"128x10", "512x10"}
    for group, architecture in (("128x10", "compfl-cnn"), ("512x10", "resnet18-cifar")):
        head = run._originals[architecture].model.head
        held = run.server.groups[group]
        assert any(torch.equal(tensor, head.weight) for tensor in held.values())  # type: ignore[arg-type]


def test_the_server_averages_heads_by_samples_and_leaves_an_absent_group_alone() -> None:
    run = Run(digits("lg-fedavg", models={"family": "compfl-2", "assign": "blocks"}))
    old = {"weight": torch.tensor([[5.0]]), "bias": torch.tensor([5.0])}
    server = ServerState({"128x10": old, "512x10": old})
    uploads = [
        Upload(0, 30, "128x10", {"weight": torch.tensor([[1.0]]), "bias": torch.tensor([0.0])}),
        Upload(1, 10, "128x10", {"weight": torch.tensor([[3.0]]), "bias": torch.tensor([4.0])}),
    ]
    groups = run.algorithm.aggregate(server, uploads).groups
    assert groups["128x10"]["weight"].item() == 1.5
    assert groups["128x10"]["bias"].item() == 1.0
    assert groups["512x10"] is old


def test_lg_fedavg_ships_the_head_and_costs_what_standalone_costs() -> None:
    run = Run(digits("lg-fedavg"))
    record = list(run.rounds())[1]
    [k] = record.cohort
    head = run._originals["cnn-1"].model.head
    n, body, linear, _ = prices(run, k, run._originals[run.setup.architectures[k]].model.body)
    assert record.scalars_up == record.scalars_down == sum(p.numel() for p in head.parameters()) == 5_010
    assert record.client_flops == n * 3 * (body + linear)


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_a_head_is_never_private_and_a_body_never_travels(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec(method))
    list(run.rounds())
    for client in run._states.ids():
        kept = run._states.get(client)
        assert kept
        assert all(name.startswith("model.body.") for name in kept)


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_a_and_c_test_with_the_local_head_and_b_with_the_newest_global_one(method: str, small_spec: SpecMaker) -> None:
    run = opened(small_spec(method, evaluation={"protocol": "B"}))
    client = run._seat(Bench(run._originals), 0, 1)
    received = dict(run.algorithm.download(run.server, client))
    run.algorithm.local_update(client, received)
    trained = client.model.head.weight.detach().clone()  # type: ignore[operator]
    run.algorithm.predictor(client, None)
    assert torch.equal(client.model.head.weight, trained)  # type: ignore[arg-type]
    run.algorithm.predictor(client, received)
    assert not torch.equal(client.model.head.weight, trained)  # type: ignore[arg-type]


def test_lg_fedavg_is_not_standalone_with_several_clients(small_spec: SpecMaker) -> None:
    assert essence(small_spec("lg-fedavg")) != essence(small_spec())
