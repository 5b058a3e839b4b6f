"""FLOPs against torch's own counter and against the papers' numbers."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from engine.kit.flops import Meter, Price, forward_flops
from engine.models import build

MACS = {"cnn-1": 4_825_800, "cnn-2": 3_385_800, "cnn-3": 3_525_800, "cnn-4": 3_265_800, "cnn-5": 2_875_800}


@pytest.mark.parametrize(("architecture", "macs"), MACS.items())
def test_the_papers_networks_cost_what_the_reference_says(architecture: str, macs: int) -> None:
    model = build(architecture, (3, 32, 32), 10)
    assert forward_flops(model, torch.zeros(1, 3, 32, 32)) == 2 * macs


@pytest.mark.parametrize("architecture", ["cnn-3", "fedavgcnn", "resnet10", "mobilenetv2", "tiny-bn"])
def test_forward_flops_equal_those_of_torch(architecture: str) -> None:
    model = build(architecture, (3, 32, 32), 10).eval()
    images = torch.zeros(2, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(images)
    assert forward_flops(model, images) == counter.get_total_flops()


def test_prices_multiply_the_forward_cost() -> None:
    layer = nn.Linear(5, 7)
    for price, expected in ((Price.FORWARD, 70), (Price.THROUGH, 140), (Price.UPDATE, 210)):
        with Meter().watch([(layer, price)]) as reading:
            layer(torch.zeros(1, 5))
        assert reading.flops == expected


def test_a_module_that_is_called_twice_costs_twice() -> None:
    layer = nn.Linear(5, 5)
    with Meter().watch([(layer, Price.FORWARD)]) as reading:
        layer(layer(torch.zeros(3, 5)))
    assert reading.flops == 2 * 3 * 50


def test_attention_counts_its_four_projections() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.attention(x, x, x)[0]
            return out

    assert forward_flops(Block(), torch.zeros(1, 3, 8)) == 2 * 4 * 3 * 8 * 8


def test_nothing_is_counted_after_the_watch() -> None:
    layer = nn.Linear(2, 2)
    with Meter().watch([(layer, Price.FORWARD)]) as reading:
        pass
    layer(torch.zeros(1, 2))
    assert reading.flops == 0
