"""Averages by hand."""

import pytest
import torch
from torch import nn

from engine.kit.tensors import copy_tensors, count_scalars, live_tensors, load_tensors, shares, weighted_mean


def test_the_mean_of_two_clients_with_three_parameters() -> None:
    first = {"w": torch.tensor([1.0, 2.0, 3.0])}
    second = {"w": torch.tensor([5.0, 6.0, 7.0])}
    mean = weighted_mean([first, second], shares([30, 10]))
    assert mean["w"].tolist() == [2.0, 3.0, 4.0]  # ¾·1 + ¼·5 …


def test_one_client_alone_keeps_its_bits() -> None:
    only = {"w": torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-3}
    assert torch.equal(weighted_mean([only], shares([7]))["w"], only["w"])


def test_sums_are_made_in_double_precision_and_rounded_once() -> None:
    """In single precision 1 + 1e-8 is 1, as often as it is added."""
    members = [{"w": torch.tensor([value])} for value in (1.0, *[1e-8] * 100)]
    assert weighted_mean(members, [1.0] * 101)["w"].item() == pytest.approx(1 + 1e-6, abs=1e-7)


def test_integer_counters_take_the_largest() -> None:
    members = [{"n": torch.tensor(3)}, {"n": torch.tensor(5)}]
    assert weighted_mean(members, [0.5, 0.5])["n"].item() == 5


def test_weights_sum_to_one() -> None:
    assert sum(shares([3, 5, 11])) == pytest.approx(1, abs=1e-15)


def test_only_float_tensors_are_counted() -> None:
    assert count_scalars({"w": torch.zeros(2, 3), "ids": torch.zeros(4, dtype=torch.int64)}) == 6


def test_copies_share_no_memory() -> None:
    layer = nn.Linear(2, 2)
    copies = copy_tensors(layer)
    with torch.no_grad():
        layer.weight.fill_(9)
    assert not torch.any(copies["weight"] == 9)


def test_loading_writes_into_the_module_itself() -> None:
    layer = nn.Linear(2, 1)
    weight = layer.weight
    load_tensors(layer, {"weight": torch.ones(1, 2), "bias": torch.ones(1)})
    assert layer.weight is weight
    assert weight.tolist() == [[1, 1]]


def test_loading_other_names_is_refused() -> None:
    with pytest.raises(KeyError, match="bias"):
        load_tensors(live_tensors(nn.Linear(2, 1)), {"weight": torch.ones(1, 2)})
