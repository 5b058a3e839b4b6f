"""Truncated SVD: the rank rule, the length of a message and what comes back."""

import math

import pytest
import torch
from torch import Tensor, nn

from engine.kit.compression import compress, decompress, kept_rank, svd_flops
from engine.kit.tensors import count_scalars


def of_rank(rank: int, m: int, n: int) -> Tensor:
    draws = torch.Generator().manual_seed(rank)
    return torch.randn(m, rank, generator=draws) @ torch.randn(rank, n, generator=draws)


@pytest.mark.parametrize(("energy", "rank"), [(0.1, 1), (0.64, 1), (0.65, 2), (0.8, 2), (0.96, 3), (0.97, 4), (1.0, 4)])
def test_the_rank_is_the_smallest_that_carries_the_energy(energy: float, rank: int) -> None:
    singular = torch.tensor([8.0, 4.0, 4.0, 2.0])  # they carry 64, 80, 96 and 100 per cent
    assert kept_rank(singular, energy) == rank


def test_at_least_one_direction_is_kept_even_of_zeros() -> None:
    assert kept_rank(torch.zeros(5), 0.95) == 1


def test_all_directions_are_kept_when_only_all_of_them_reach_the_energy() -> None:
    assert kept_rank(torch.ones(10), 0.95) == 10
    assert kept_rank(torch.ones(10), 1 + 1e-12) == 10  # or not even they, by rounding


def test_a_stack_has_one_common_rank() -> None:
    assert kept_rank(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), 0.95) == 1
    assert kept_rank(torch.tensor([[4.0, 0.0], [2.0, 2.0]]), 0.95) == 2


@pytest.mark.parametrize("rank", [1, 3])
def test_a_matrix_costs_its_factors(rank: int) -> None:
    message = compress({"weight": of_rank(rank, 20, 30)}, 0.999999)
    assert {name: tuple(tensor.shape) for name, tensor in message.items()} == {
        "weight/u": (1, 20, rank),
        "weight/s": (1, rank),
        "weight/v": (1, rank, 30),
    }
    assert count_scalars(message) == rank * (20 + 30 + 1)


@pytest.mark.parametrize("energy", [0.5, 0.9, 0.95, 0.98, 0.9999999])
@pytest.mark.parametrize("shape", [(10, 512), (40, 60), (1, 7), (7, 1), (8, 4, 3, 3)])
def test_a_message_is_never_longer_than_the_tensor_and_keeps_its_energy(shape: tuple[int, ...], energy: float) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    message = compress({"weight": weight}, energy)
    assert count_scalars(message) <= weight.numel()
    [restored] = decompress(message, {"weight": weight}).values()
    assert restored.shape == weight.shape
    lost = (restored - weight).square().sum() / weight.square().sum()
    assert lost <= 1 - energy + 1e-6


def test_a_fresh_head_of_ten_classes_survives() -> None:
    torch.manual_seed(0)
    head = nn.Linear(512, 10).weight.detach()
    message = compress({"head": head}, 0.98)
    assert list(message) == ["head/dense"]  # rank 10 would need 5230 scalars instead of 5120
    assert torch.equal(decompress(message, {"head": head})["head"], head)


def test_factors_by_hand() -> None:
    weight = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.0]])
    message = compress({"weight": weight}, 0.95)
    assert message["weight/s"].tolist() == [[3.0]]
    assert count_scalars(message) == 3 + 3 + 1
    restored = decompress(message, {"weight": weight})["weight"]
    assert torch.allclose(restored, torch.diag(torch.tensor([3.0, 0.0, 0.0])))


def test_a_convolution_is_one_matrix_of_output_channels_by_the_rest() -> None:
    kernel = of_rank(2, 16, 8 * 25).reshape(16, 8, 5, 5)
    message = compress({"conv": kernel}, 0.999999)
    assert count_scalars(message) == 2 * (16 + 200 + 1)
    assert torch.allclose(decompress(message, {"conv": kernel})["conv"], kernel, atol=1e-4)


def test_or_a_stack_of_kernels_when_asked() -> None:
    kernel = torch.stack([of_rank(1, 5, 5) * factor for factor in range(1, 13)]).reshape(4, 3, 5, 5)
    message = compress({"conv": kernel}, 0.99, "kernels")
    assert count_scalars(message) == 12 * (5 + 5 + 1)
    assert torch.allclose(decompress(message, {"conv": kernel})["conv"], kernel, atol=1e-4)


def test_with_all_energy_everything_is_sent_as_it_is_without_an_svd() -> None:
    tensors = {"weight": of_rank(1, 20, 30), "bias": torch.ones(20)}
    message = compress(tensors, 1.0)
    assert list(message) == ["weight/dense", "bias/dense"]
    assert torch.equal(decompress(message, tensors)["weight"], tensors["weight"])
    assert svd_flops(tensors, 1.0) == 0


def test_vectors_and_counters_are_sent_as_they_are() -> None:
    tensors = {"bias": torch.arange(3.0), "batches": torch.tensor(7)}
    message = compress(tensors, 0.5)
    assert count_scalars(message) == 3
    restored = decompress(message, tensors)
    assert restored["batches"].item() == 7
    assert restored["batches"].dtype == torch.int64
    assert torch.equal(restored["bias"], tensors["bias"])


def test_a_weight_that_is_no_longer_finite_does_not_stop_the_message() -> None:
    assert list(compress({"weight": torch.full((9, 9), math.nan)}, 0.95)) == ["weight/dense"]


def test_the_price_of_the_svd() -> None:
    tensors = {"weight": torch.zeros(20, 30), "conv": torch.zeros(4, 3, 5, 5), "bias": torch.zeros(9)}
    assert svd_flops(tensors, 0.95) == 4 * (20 * 30 * 20 + 4 * 75 * 4)
    assert svd_flops(tensors, 0.95, "kernels") == 4 * (20 * 30 * 20 + 12 * 5 * 5 * 5)


def test_a_message_and_what_comes_back_share_no_memory() -> None:
    tensors = {"weight": torch.ones(3, 4), "bias": torch.ones(3)}
    message = compress(tensors, 1.0)
    restored = decompress(message, tensors)
    pointers = [tensor.data_ptr() for group in (tensors, message, restored) for tensor in group.values()]
    assert len(set(pointers)) == len(pointers)
