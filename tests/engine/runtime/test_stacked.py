"""Stacked clients learn what they learn alone."""

from typing import Any

import pytest

from engine.records import RoundRecord
from engine.runtime.run import Diverged, Interrupted, Run
from engine.spec.experiment import ExperimentSpec
from engine.testing import parts
from tests.engine.conftest import SpecMaker, records_of, same_results

# every client has another number of samples, so that steps, last batches and the moment of leaving differ
UNEVEN: dict[str, Any] = {"participation": 1.0, "clients": 7, "partition": {"name": "dirichlet", "beta": 1.0}}
NUMBERS = {"loss", "accuracy", "client_accuracy"}


def run_both(spec: ExperimentSpec, **options: Any) -> tuple[Run, Run, list[RoundRecord], list[RoundRecord]]:
    alone, together = Run(spec), Run(spec, stacked="on", **options)
    return alone, together, list(alone.rounds()), list(together.rounds())


def largest_difference(first: Run, second: Run) -> float:
    """Between the tensors that the clients and the server hold at the end."""
    pairs = list(zip(parts(first.server).values(), parts(second.server).values(), strict=True))
    pairs += [
        (first.federation.states.get(client), second.federation.states.get(client))
        for client in first.federation.states.ids()
    ]
    return max(
        (float((own[name].double() - other[name].double()).abs().max()) for own, other in pairs for name in own),
        default=0.0,
    )


@pytest.mark.parametrize("method", ["standalone", "fedavg", "lg-fedavg", "fedper", "ditto", "fedgh", "fedproto"])
def test_stacked_clients_end_where_clients_alone_end(method: str, small_spec: SpecMaker) -> None:
    alone, together, first, second = run_both(small_spec(method, **UNEVEN))
    assert alone.federation.states.ids() == together.federation.states.ids()
    assert largest_difference(alone, together) < 1e-4
    for own, other in zip(first, second, strict=True):
        assert own.loss == pytest.approx(other.loss, abs=1e-4)
        assert own.without_times() | dict.fromkeys(NUMBERS) == other.without_times() | dict.fromkeys(NUMBERS)


@pytest.mark.parametrize("training", [{"clip": None, "momentum": 0.0}, {"clip": 0.5, "momentum": 0.9}])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_clipping_momentum_and_decay_are_each_clients_own(
    training: dict[str, Any], weight_decay: float, small_spec: SpecMaker
) -> None:
    settings = {"epochs": 2, "batch_size": 8, "lr": 0.05, "augment": True, "weight_decay": weight_decay, **training}
    alone, together, *_ = run_both(small_spec(training=settings, rounds=2, **UNEVEN))
    assert largest_difference(alone, together) < 1e-4


def test_a_stack_follows_the_learning_rate_s_schedule(small_spec: SpecMaker) -> None:
    settings = {"epochs": 1, "batch_size": 8, "lr": 0.05, "schedule": "exponential", "decay": 0.1}
    alone, together, *_ = run_both(small_spec(training=settings, rounds=2, **UNEVEN))
    assert largest_difference(alone, together) < 1e-4


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_everybody_is_tested_at_the_same_moments(protocol: str, small_spec: SpecMaker) -> None:
    spec = small_spec("fedavg", evaluation={"protocol": protocol}, rounds=2)
    _, _, first, second = run_both(spec)
    assert [sorted(record.client_accuracy) for record in first] == [sorted(record.client_accuracy) for record in second]


def test_threads_do_not_change_a_bit_of_a_stacked_run(small_spec: SpecMaker) -> None:
    spec = small_spec("fedper", **UNEVEN)
    assert same_results(records_of(spec, stacked="on"), records_of(spec, stacked="on", threads=3))


def test_the_environment_says_who_is_stacked_and_why_the_others_are_not(small_spec: SpecMaker) -> None:
    spec = small_spec()
    assert Run(spec, stacked="on").environment["stacked"] == "tiny-mlp, tiny-cnn; not stacked: tiny-bn has batch norm"
    assert Run(spec).environment["stacked"] == "off"


def test_networks_with_batch_norm_train_alone_to_the_bit(small_spec: SpecMaker) -> None:
    spec = small_spec("fedavg", models={"family": "tiny-bn"})
    assert same_results(records_of(spec), records_of(spec, stacked="on"))


def test_a_diverging_client_of_a_stack_is_named(small_spec: SpecMaker) -> None:
    training = {"lr": 10.0, "clip": None, "batch_size": 8, "epochs": 20}
    spec = small_spec(training=training, rounds=50, models={"family": "tiny-cnn"})
    with pytest.raises(Diverged, match=r"client \d+ became (nan|inf) in round \d+"):
        records_of(spec, stacked="on")


def test_a_stacked_run_stops_between_two_steps_when_asked(small_spec: SpecMaker) -> None:
    polls = iter(range(10**6))
    run = Run(small_spec(models={"family": "tiny-cnn"}), stacked="on", should_stop=lambda: next(polls) > 5)
    with pytest.raises(Interrupted):
        list(run.rounds())


def test_mixed_precision_works_in_a_stack(small_spec: SpecMaker) -> None:
    spec = small_spec(models={"family": "tiny-cnn"}, rounds=2)
    exact, mixed = records_of(spec, stacked="on"), records_of(spec, stacked="on", precision="bfloat16")
    assert exact[-1].loss != mixed[-1].loss
    assert mixed[-1].loss == pytest.approx(exact[-1].loss, rel=0.05)
