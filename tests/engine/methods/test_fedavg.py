"""FedAvg's server by hand, and when the methods without a personal model are tested."""

from typing import Any

import pytest
import torch

from engine.kit.contract import ServerState, Upload
from engine.runtime.run import Run
from tests.engine.conftest import SpecMaker, records_of


def sent(client: int, samples: int, group: str, value: float, batches: int) -> Upload:
    payload = {
        "weight": torch.tensor([value]),
        "running_mean": torch.tensor([10 * value]),
        "num_batches_tracked": torch.tensor(batches),
    }
    return Upload(client, samples, group, payload)


@pytest.mark.parametrize("method", ["fedavg", "fedavg-ft", "fedprox", "ditto", "fedrod", "feddbe", "fedper", "fedbabu"])
def test_the_server_averages_parameters_and_running_statistics_within_an_architecture(
    method: str, small_spec: SpecMaker
) -> None:
    """Public codes average parameters() alone, so that batch norm's statistics are never shared."""
    old = sent(0, 0, "", 7.0, 1).payload
    server = ServerState(dict.fromkeys(("tiny-mlp", "tiny-cnn", "tiny-bn"), old))
    uploads = [sent(0, 30, "tiny-bn", 1.0, 4), sent(1, 5, "tiny-mlp", 2.0, 6), sent(3, 10, "tiny-bn", 5.0, 2)]
    groups = Run(small_spec(method)).algorithm.aggregate(server, uploads, 1).groups
    assert {name: tensor.item() for name, tensor in groups["tiny-bn"].items()} == {
        "weight": 2.0,  # ¾·1 + ¼·5
        "running_mean": 20.0,
        "num_batches_tracked": 4,  # the largest
    }
    assert groups["tiny-mlp"]["weight"].item() == 2.0
    assert groups["tiny-cnn"] is old  # nobody of it took part


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", {"name": "fedavg-ft", "ft_epochs": 0}])
@pytest.mark.parametrize(("protocol", "rounds_late"), [("A", 1), ("C", 1), ("B", 0)])
def test_a_global_model_is_tested_as_it_was_received_or_under_b_as_it_became(
    method: Any, protocol: str, rounds_late: int, small_spec: SpecMaker
) -> None:
    """With one step a round from the received model all four learn what Standalone without momentum learns alone."""
    one = {
        "clients": 1,
        "partition": {"name": "iid"},
        "participation": 1.0,
        "rounds": 6,
        "evaluation": {"protocol": protocol},
        "training": {"epochs": 1, "batch_size": 1000, "lr": 0.5, "momentum": 0},
        "models": {"family": "tiny-mlp"},
    }
    received = [record.client_accuracy for record in records_of(small_spec(method, **one))]
    alone = [record.client_accuracy for record in records_of(small_spec(**one))]
    assert received[1 + rounds_late :] == alone[1 : len(alone) - rounds_late]
    assert len(set(map(str, alone[1:]))) > 1
