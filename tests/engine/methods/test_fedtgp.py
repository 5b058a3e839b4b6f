"""FedTGP: the margin, the server's training and its price by hand; what it shares with FedProto is tested there."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from engine.kit.contract import ServerState, Upload
from engine.kit.tensors import copy_tensors, load_tensors
from engine.methods.fedtgp import TrainablePrototypes
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker
from tests.engine.methods.test_proposed import DIGITS, essence


def sent(client: int, classes: list[int], means: list[list[float]]) -> Upload:
    counts = torch.ones(len(classes), dtype=torch.int64)
    payload = {"classes": torch.tensor(classes), "means": torch.tensor(means), "counts": counts}
    return Upload(client, 10, "all", payload)


def fedtgp(small_spec: SpecMaker, **params: Any) -> Any:
    return Run(small_spec({"name": "fedtgp", **params})).algorithm


TRIANGLE = {
    "classes": torch.tensor([0, 1, 1, 3]),
    "means": torch.tensor([[0.0, 0.0], [2.0, 4.0], [4.0, 4.0], [0.0, 12.0]]),
    "counts": torch.ones(4, dtype=torch.int64),
}
"""Centres (0, 0), (3, 4) and (0, 12): distances 5, √73 and 12, so the gaps are 5, 5 and √73."""


@pytest.mark.parametrize(
    ("params", "margin"),
    [({}, 73**0.5), ({"margin": "max_pair"}, 12.0), ({"margin_limit": 6.0}, 6.0), ({"margin_limit": 0}, 0.0)],
    ids=str,
)
def test_the_margin_is_the_largest_gap_within_the_limit(
    params: dict[str, Any], margin: float, small_spec: SpecMaker
) -> None:
    assert fedtgp(small_spec, **params)._margin(TRIANGLE) == pytest.approx(margin)


def test_with_one_class_the_margin_is_the_limit(small_spec: SpecMaker) -> None:
    alone = {name: tensor[1:3] for name, tensor in TRIANGLE.items()}
    assert fedtgp(small_spec, margin_limit=17.0)._margin(alone) == 17.0


def start() -> ServerState:
    network = TrainablePrototypes(4, 2)
    generator = torch.Generator().manual_seed(3)
    tensors = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in copy_tensors(network).items()}
    return ServerState({"all": {}}, {"network": {"all": tensors}})


def test_one_step_of_the_server_follows_the_printed_loss(small_spec: SpecMaker) -> None:
    """The loss written out with sums and logarithms, and one step along its gradient."""
    algorithm = fedtgp(small_spec, server_epochs=1, server_lr=0.1)
    uploads = [sent(0, [0, 1], [[0.0, 0.0], [3.0, 4.0]]), sent(2, [1], [[3.0, 2.0]])]
    state = algorithm.aggregate(start(), uploads, 1)

    network = TrainablePrototypes(4, 2)
    load_tensors(network, start().shared["network"]["all"])
    δ = 3 * 2**0.5  # centres (0, 0) and (3, 3)
    loss = torch.zeros(())
    for p, c in (([0.0, 0.0], 0), ([3.0, 4.0], 1), ([3.0, 2.0], 1)):
        rows = network()
        D = [((torch.tensor(p) - rows[j]) ** 2).sum().sqrt() + (δ if j == c else 0.0) for j in range(4)]
        loss = loss + (D[c] + torch.stack([torch.exp(-value) for value in D]).sum().log()) / 3
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    for (name, parameter), gradient in zip(network.named_parameters(), gradients, strict=True):
        assert torch.allclose(state.shared["network"]["all"][name], parameter - 0.1 * gradient, atol=1e-5), name


def test_the_server_emits_a_prototype_for_every_class(small_spec: SpecMaker) -> None:
    state = fedtgp(small_spec).aggregate(start(), [sent(0, [1], [[3.0, 4.0]])], 1)
    assert state.groups["all"]["classes"].tolist() == [0, 1, 2, 3]
    network = TrainablePrototypes(4, 2)
    load_tensors(network, state.shared["network"]["all"])
    assert torch.equal(network(), state.groups["all"]["means"])
    assert not state.groups["all"]["means"].requires_grad


def test_a_prototype_that_meets_its_target_gives_no_nan(small_spec: SpecMaker) -> None:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in start().shared["network"]["all"].items()}
    state = fedtgp(small_spec).aggregate(
        ServerState({"all": {}}, {"network": {"all": zeros}}), [sent(0, [1], [[0.0, 0.0]])], 1
    )
    assert state.groups["all"]["means"].isfinite().all()


def test_training_draws_a_prototype_to_what_was_sent_for_its_class(small_spec: SpecMaker) -> None:
    uploads = [sent(k, [0, 1], [[4.0, 0.0], [0.0, 4.0]]) for k in range(2)]
    state = fedtgp(small_spec, server_epochs=300).aggregate(start(), uploads, 1)
    received = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    nearest = torch.cdist(received, state.groups["all"]["means"]).argmin(1)
    assert nearest.tolist() == [0, 1]


def test_the_network_is_kept_over_rounds_and_starts_from_the_seed(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedtgp"))
    seen = [run.server.shared["network"]["all"]["embedding.weight"].clone() for _ in run.rounds()]
    assert seen[0].shape == (4, 16)
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))
    again = Run(small_spec("fedtgp"))
    next(again.rounds())
    assert torch.equal(again.server.shared["network"]["all"]["embedding.weight"], seen[0])


def test_messages_and_server_work_are_priced_as_the_formula_says() -> None:
    spec = {**DIGITS, "algorithm": {"name": "fedtgp", "server_epochs": 3, "server_batch": 3}, "participation": 0.2}
    run = Run(ExperimentSpec.parse({**spec, "rounds": 2}))
    _, first, second = run.rounds()
    d, L, S = 500, 10, 3
    protos = first.scalars_up // d
    assert (first.scalars_down, second.scalars_down) == (0, len(second.cohort) * L * d)
    assert first.server_flops == S * -(-protos // 3) * L * 3 * 4 * d * d + S * protos * L * 2 * d


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"weight": 1.0},
        {"server_epochs": 5},
        {"margin_limit": 0.01},
        {"margin": "max_pair"},
        {"server_lr": 0.001},
        {"server_batch": 2},
        {"readout": "proto"},
    ]
    results = [
        str(essence(small_spec({"name": "fedtgp", **variant}, partition={"name": "iid"}))) for variant in variants
    ]
    assert len(set(results)) == len(variants)


def test_without_own_values_the_server_trains_like_a_client(small_spec: SpecMaker) -> None:
    given = {"name": "fedtgp", "server_lr": 0.05, "server_batch": 8}  # what the clients of the small spec use
    assert essence(small_spec(given)) == essence(small_spec("fedtgp"))
