"""The server's own training: plain steps, roles, prices and divergence."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from engine.kit.contract import Setup
from engine.kit.tensors import revive
from engine.kit.training import Diverged, Interrupted, pair_batches, server_fit
from engine.spec.training import TrainingSpec

SETUP = Setup(0, 1, 1, 2, (1, 1, 1), None, TrainingSpec(), ("tiny-mlp",), (1,))


def line(weight: float) -> nn.Linear:
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(weight)
    return module


def batches(*values: float) -> list[tuple[Tensor]]:
    return [(torch.tensor([[value]]),) for value in values]


def test_sgd_takes_plain_steps_without_momentum() -> None:
    """The loss w·x has the gradient x."""
    module = line(1.0)
    server_fit(SETUP, lambda x: module(x).sum(), batches(2.0, 3.0), update=module, lr=0.1, round=1)
    assert module.weight.item() == pytest.approx(1 - 0.1 * 2 - 0.1 * 3)


def test_the_first_step_of_adam_is_as_long_as_the_learning_rate() -> None:
    module = line(1.0)
    adam = torch.optim.Adam
    server_fit(SETUP, lambda x: module(x).sum(), batches(7.0), update=module, lr=0.1, optimiser=adam, round=1)
    assert module.weight.item() == pytest.approx(0.9)


def test_a_frozen_module_passes_the_gradient_on_and_costs_twice_its_forward() -> None:
    module, after = line(1.0), line(5.0)
    flops = server_fit(
        SETUP, lambda x: after(module(x)).sum(), batches(2.0, 2.0), update=module, through=[after], lr=0.1, round=1
    )
    assert module.weight.item() == pytest.approx(1 - 2 * 0.1 * 10)
    assert after.weight.item() == 5.0
    assert flops == 2 * (3 * 2 + 2 * 2)


def test_no_batches_change_nothing_and_cost_nothing() -> None:
    module = line(1.0)
    assert server_fit(SETUP, lambda x: module(x).sum(), [], update=module, lr=0.1, round=1) == 0
    assert module.weight.item() == 1.0


def test_a_loss_that_is_not_a_number_names_the_server_and_the_round() -> None:
    module = line(1.0)
    with pytest.raises(Diverged, match="the server became nan in round 4"):
        server_fit(SETUP, lambda x: module(x).sum(), batches(float("nan")), update=module, lr=0.1, round=4)


def test_it_stops_between_two_steps_when_asked() -> None:
    module, polls = line(1.0), iter(range(10))
    asked = replace(SETUP, interrupted=lambda: next(polls) == 2)
    with pytest.raises(Interrupted):
        server_fit(asked, lambda x: module(x).sum(), batches(1.0, 1.0, 1.0, 1.0), update=module, lr=0.1, round=1)
    assert module.weight.item() == pytest.approx(1 - 2 * 0.1)


def test_pairs_stay_together_and_every_epoch_has_its_own_order() -> None:
    first = torch.arange(10)
    draws = torch.Generator().manual_seed(0)
    found = list(pair_batches(first, first * 2, batch_size=4, epochs=2, draws=draws))
    assert [len(a) for a, _ in found] == [4, 4, 2, 4, 4, 2]
    assert all(torch.equal(a * 2, b) for a, b in found)
    one, two = torch.cat([a for a, _ in found[:3]]), torch.cat([a for a, _ in found[3:]])
    assert sorted(one.tolist()) == sorted(two.tolist()) == list(range(10))
    assert one.tolist() != two.tolist()


def test_without_draws_pairs_come_in_their_order() -> None:
    first = torch.arange(3)
    found = list(pair_batches(first, first, batch_size=1, epochs=2, draws=None))
    assert [int(a) for a, _ in found] == [0, 1, 2, 0, 1, 2]


def test_a_revived_module_has_the_values_given_and_draws_nothing() -> None:
    state = torch.get_rng_state()
    tensors = {"weight": torch.tensor([[3.0]]), "bias": torch.tensor([4.0])}
    module = revive(lambda: nn.Linear(1, 1), tensors, torch.device("cpu"))
    assert module(torch.tensor([[2.0]])).item() == 10.0
    assert module.weight.data_ptr() != tensors["weight"].data_ptr()
    assert torch.equal(torch.get_rng_state(), state)
