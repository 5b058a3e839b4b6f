"""Dropout draws from the generator it was given and from nothing else."""

import copy
from collections.abc import Callable

import pytest
import torch

from engine.models import ARCHITECTURES, SeededDropout, SplitModel, build, seed_dropout

X = torch.rand(64, 50) + 0.5


def seeded(seed: int, p: float = 0.2) -> SeededDropout:
    dropout = SeededDropout(p)
    seed_dropout(dropout, torch.Generator().manual_seed(seed))
    return dropout


def test_the_same_generator_state_gives_the_same_masks() -> None:
    first, second = seeded(1), seeded(1)
    assert torch.equal(first(X), second(X))
    assert torch.equal(first(X), second(X))


def test_another_seed_and_the_next_draw_give_other_masks() -> None:
    dropout = seeded(1)
    once = dropout(X)
    assert not torch.equal(once, seeded(2)(X))
    assert not torch.equal(once, dropout(X))


def test_dropout_neither_reads_nor_moves_the_global_generator() -> None:
    torch.manual_seed(0)
    first = seeded(1)(X)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert torch.equal(seeded(1)(X), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_kept_values_are_scaled_and_dropped_values_are_zero() -> None:
    dropped = seeded(1, p=0.5)(X)
    kept = dropped != 0
    assert 0.4 < kept.float().mean().item() < 0.6
    torch.testing.assert_close(dropped[kept], X[kept] * 2)


def test_gradients_flow_only_through_kept_values() -> None:
    x = X.clone().requires_grad_()
    dropped = seeded(1)(x)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, dropped != 0)


def test_dropout_does_nothing_in_evaluation_or_at_rate_zero() -> None:
    assert torch.equal(SeededDropout(0.2).eval()(X), X)
    assert torch.equal(SeededDropout(0.0)(X), X)


def test_training_without_a_generator_is_refused() -> None:
    with pytest.raises(RuntimeError, match="seed_dropout"):
        SeededDropout(0.2)(X)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="must be in"):
        SeededDropout(rate)


def test_a_deep_copy_draws_the_same_masks_from_a_generator_of_its_own() -> None:
    dropout = seeded(1)
    twin = copy.deepcopy(dropout)
    assert torch.equal(twin(X), dropout(X))
    assert twin.generator is not dropout.generator


def test_googlenet_trains_reproducibly_from_its_generator() -> None:
    torch.manual_seed(0)
    model = build("googlenet", (3, 32, 32), 10)
    x = torch.rand(2, 3, 32, 32)

    def features(seed: int) -> torch.Tensor:
        twin = copy.deepcopy(model)
        seed_dropout(twin, torch.Generator().manual_seed(seed))
        result: torch.Tensor = twin.body(x)
        return result

    assert torch.equal(features(1), features(1))
    assert not torch.equal(features(1), features(2))


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_no_architecture_draws_from_the_global_generator(
    architecture: str, weightless: Callable[..., SplitModel]
) -> None:
    parts = list(weightless(architecture).modules())
    rates = [part.p for part in parts if isinstance(part, torch.nn.Dropout)]
    rates += [part.dropout for part in parts if isinstance(part, torch.nn.MultiheadAttention)]
    assert all(rate == 0 for rate in rates)


def test_only_googlenet_has_a_dropout(weightless: Callable[..., SplitModel]) -> None:
    with_dropout = {
        architecture
        for architecture in ARCHITECTURES
        if any(isinstance(part, SeededDropout) for part in weightless(architecture).modules())
    }
    assert with_dropout == {"googlenet", "googlenet-mlp512"}
