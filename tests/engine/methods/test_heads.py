"""LG-FedAvg, FedGH and what FedGen shares with them: one linear head for all clients whose heads have one shape."""

from typing import Any

import pytest
import torch

from engine.kit.contract import ServerState, Upload
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker
from tests.engine.methods.test_proposed import DIGITS, essence, prices

HEAD_METHODS = ["lg-fedavg", "fedgh", "fedgen"]
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
    assert {run.algorithm.group(run.federation.load(k, 1)) for k in range(6)} == {"16x4"}


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_heads_of_different_shapes_form_groups_that_start_from_their_lowest_client(method: str) -> None:
    spec = digits(method, models={"family": "compfl-2", "assign": "blocks"})
    run = Run(spec)
    run.federation.build()
    assert {"128x10", "512x10"} <= set(run.server.groups)
    for group, architecture in (("128x10", "compfl-cnn"), ("512x10", "resnet18-cifar")):
        head = run.federation.networks[architecture].model.head
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
    groups = run.algorithm.aggregate(server, uploads, 1).groups
    assert groups["128x10"]["weight"].item() == 1.5
    assert groups["128x10"]["bias"].item() == 1.0
    assert groups["512x10"] is old


def test_lg_fedavg_ships_the_head_and_costs_what_standalone_costs() -> None:
    run = Run(digits("lg-fedavg"))
    record = list(run.rounds())[1]
    [k] = record.cohort
    head = run.federation.networks["cnn-1"].model.head
    n, body, linear, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
    assert record.scalars_up == record.scalars_down == sum(p.numel() for p in head.parameters()) == 5_010
    assert record.client_flops == n * 3 * (body + linear)


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_a_head_is_never_private_and_a_body_never_travels(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec(method))
    list(run.rounds())
    for client in run.federation.states.ids():
        kept = run.federation.states.get(client)
        assert kept
        assert all(name.startswith("model.body.") for name in kept)


@pytest.mark.parametrize("method", HEAD_METHODS)
def test_a_and_c_test_with_the_local_head_and_b_with_the_newest_global_one(method: str, small_spec: SpecMaker) -> None:
    run = opened(small_spec(method, evaluation={"protocol": "B"}))
    client = run.federation.load(0, 1)
    received = dict(run.algorithm.download(run.server, client))
    run.algorithm.local_update(client, received)
    trained = client.model.head.weight.detach().clone()  # type: ignore[operator]
    run.algorithm.prepare(client, None)
    assert torch.equal(client.model.head.weight, trained)  # type: ignore[arg-type]
    run.algorithm.prepare(client, received)
    assert not torch.equal(client.model.head.weight, trained)  # type: ignore[arg-type]


def test_lg_fedavg_is_not_standalone_with_several_clients(small_spec: SpecMaker) -> None:
    assert essence(small_spec("lg-fedavg")) != essence(small_spec())


def rows_of(client: int, classes: list[int], values: list[float]) -> Upload:
    counts = torch.ones(len(classes), dtype=torch.int64)
    means = torch.tensor(values)[:, None]
    return Upload(client, 10, "1x4", {"classes": torch.tensor(classes), "means": means, "counts": counts})


def zero_head() -> ServerState:
    return ServerState({"1x4": {"weight": torch.zeros(4, 1), "bias": torch.zeros(4)}, "2x4": {}})


def test_one_step_of_fedghs_server_is_what_one_writes_by_hand(small_spec: SpecMaker) -> None:
    """φ = 0 answers 1/4 for every class; the gradient at p = 2, c = 1 is (1/4 - [c = 1])·2 for the weights."""
    algorithm = Run(small_spec({"name": "fedgh", "server_lr": 0.1})).algorithm
    state = algorithm.aggregate(zero_head(), [rows_of(0, [1], [2.0])], 1)
    assert torch.allclose(state.groups["1x4"]["weight"][:, 0], torch.tensor([-0.05, 0.15, -0.05, -0.05]))
    assert torch.allclose(state.groups["1x4"]["bias"], torch.tensor([-0.025, 0.075, -0.025, -0.025]))
    assert state.groups["2x4"] == {}
    assert state.flops == 3 * 2 * 1 * 4


def by_hand(pairs: list[tuple[float, int]], lr: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain SGD on one linear layer, one pair a step."""
    weight, bias = torch.zeros(4), torch.zeros(4)
    for p, c in pairs:
        gradient = (weight * p + bias).softmax(0) - torch.eye(4)[c]
        weight, bias = weight - lr * gradient * p, bias - lr * gradient
    return weight, bias


def test_fedghs_server_takes_the_pairs_in_the_order_of_clients_and_clears_its_gradients(small_spec: SpecMaker) -> None:
    algorithm = Run(small_spec({"name": "fedgh", "server_lr": 0.5, "server_epochs": 2})).algorithm
    state = algorithm.aggregate(zero_head(), [rows_of(0, [1, 3], [2.0, -1.0]), rows_of(4, [0], [1.5])], 1)
    weight, bias = by_hand([(2.0, 1), (-1.0, 3), (1.5, 0)] * 2, 0.5)
    assert torch.allclose(state.groups["1x4"]["weight"][:, 0], weight, atol=1e-6)
    assert torch.allclose(state.groups["1x4"]["bias"], bias, atol=1e-6)
    assert state.flops == 2 * 3 * (3 * 2 * 1 * 4)


def test_in_batches_fedghs_server_takes_one_step_per_batch(small_spec: SpecMaker) -> None:
    """All three pairs fit one batch of 8: the step follows the mean gradient."""
    algorithm = Run(small_spec({"name": "fedgh", "server_lr": 1.0, "server_steps": "batches"})).algorithm
    state = algorithm.aggregate(zero_head(), [rows_of(0, [1, 3], [2.0, -1.0]), rows_of(4, [0], [1.5])], 1)
    p, c = torch.tensor([2.0, -1.0, 1.5]), torch.tensor([1, 3, 0])
    gradient = torch.full((3, 4), 0.25) - torch.eye(4)[c]
    assert torch.allclose(state.groups["1x4"]["weight"][:, 0], -(gradient * p[:, None]).mean(0), atol=1e-6)
    assert torch.allclose(state.groups["1x4"]["bias"], -gradient.mean(0), atol=1e-6)


def test_fedghs_head_moves_every_round_and_is_kept(small_spec: SpecMaker) -> None:
    """In the published code it never leaves its random start."""
    run = Run(small_spec("fedgh"))
    seen = [run.server.groups["16x4"]["weight"].clone() for _ in run.rounds()]
    assert len({tuple(weight.flatten().tolist()) for weight in seen}) == len(seen)


@pytest.mark.parametrize("still", [{"server_lr": 0}, {"server_epochs": 0}])
def test_fedgh_without_server_training_hands_out_the_first_head_again(
    still: dict[str, Any], small_spec: SpecMaker
) -> None:
    run = Run(small_spec({"name": "fedgh", **still}))
    rounds = run.rounds()
    next(rounds)
    first = run.server.groups["16x4"]["weight"].clone()
    list(rounds)
    assert torch.equal(run.server.groups["16x4"]["weight"], first)


def test_every_option_of_fedgh_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"server_lr": 1.0}, {"server_epochs": 7}, {"server_steps": "batches"}]
    results = [str(essence(small_spec({"name": "fedgh", **variant}))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_fedgh_ships_prototypes_up_and_a_head_down_and_books_the_servers_work() -> None:
    run = Run(digits("fedgh", participation=0.2))
    record = list(run.rounds())[1]
    flops = classes = 0
    for k in record.cohort:
        n, body, head, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
        flops += n * (3 * (body + head) + body)
        classes += len(run.federation.fresh(k, 1).train.classes())
    assert (record.scalars_up, record.scalars_down) == (classes * 500, len(record.cohort) * 5_010)
    assert record.client_flops == flops
    assert record.server_flops == classes * 3 * (2 * 500 * 10)


@pytest.mark.parametrize("preset", ["B", "C"])
def test_the_presets_of_fedgh_train_the_head_in_batches(preset: str) -> None:
    plain = {key: value for key, value in DIGITS.items() if key != "training"}
    spec = ExperimentSpec.parse({**plain, "algorithm": {"name": "fedgh"}, "preset": preset})
    assert spec.algorithm.server_steps == "batches"  # type: ignore[attr-defined]
