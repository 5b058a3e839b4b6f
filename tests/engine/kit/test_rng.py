"""Draws depend on seed, purpose and keys alone."""

import torch

from engine.kit import rng


def test_the_same_keys_give_the_same_draws() -> None:
    draws = [torch.rand(4, generator=rng.generator(42, "cohort", 3)) for _ in range(2)]
    assert torch.equal(*draws)


def test_seed_purpose_and_every_key_matter() -> None:
    seeds = {
        rng.derive(42, "cohort", 1),
        rng.derive(43, "cohort", 1),
        rng.derive(42, "batches", 1),
        rng.derive(42, "cohort", 2),
        rng.derive(42, "cohort", 1, 0),
        rng.derive(42, "cohort", "1"),
    }
    assert len(seeds) == 6


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert rng.derive(42, "cohort", 1) == 1046946876961319590


def test_building_a_module_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with rng.seeded_init(1, "cnn-1", "model"):
        torch.nn.Linear(3, 3)
    assert torch.equal(torch.rand(1), expected)


def test_modules_built_with_the_same_keys_are_equal() -> None:
    layers = []
    for _ in range(2):
        with rng.seeded_init(1, "cnn-1", "model"):
            layers.append(torch.nn.Linear(3, 3))
    assert torch.equal(layers[0].weight, layers[1].weight)
