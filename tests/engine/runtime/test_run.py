"""The one loop: cohorts, costs, protocols, determinism, interruption."""

from collections import Counter
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.kit.tensors import copy_tensors
from engine.models import build, count
from engine.runtime.run import Diverged, Interrupted, Run
from tests.engine.conftest import SpecMaker, records_of, same_results


def test_round_zero_comes_first_and_every_round_follows(small_spec: SpecMaker) -> None:
    assert [record.round for record in records_of(small_spec())] == [0, 1, 2, 3]


def test_round_zero_costs_nothing_and_is_not_tested_under_a(small_spec: SpecMaker) -> None:
    opening = records_of(small_spec())[0]
    assert opening.accuracy is None
    assert opening.loss is None
    assert opening.client_flops == opening.scalars_up == opening.scalars_down == 0
    assert opening.cohort == []


def test_runs_that_share_a_seed_share_their_cohorts(small_spec: SpecMaker) -> None:
    alone, together = records_of(small_spec("standalone")), records_of(small_spec("fedavg"))
    assert [record.cohort for record in alone] == [record.cohort for record in together]
    assert {len(record.cohort) for record in alone[1:]} == {3}


def test_another_seed_draws_other_cohorts_and_another_partition(small_spec: SpecMaker) -> None:
    first, second = Run(small_spec(seed=1, rounds=6)), Run(small_spec(seed=2, rounds=6))
    assert first.partition_fingerprint != second.partition_fingerprint
    assert [r.cohort for r in first.rounds()] != [r.cohort for r in second.rounds()]


@pytest.mark.parametrize("labels", ["unified", "permuted"])
def test_a_run_knows_what_naming_the_commonest_class_of_each_client_reaches(labels: str, small_spec: SpecMaker) -> None:
    """Whatever names the clients have for their classes."""
    run = Run(small_spec(partition={"name": "dirichlet", "beta": 0.5, "labels": labels}))
    tests = [Counter(run.dataset.labels[share.test].tolist()) for share in run.partition.shares]
    assert run.majority_share == pytest.approx(fmean(max(t.values()) / t.total() for t in tests))


def test_the_partition_seed_can_stay_while_the_seed_changes(small_spec: SpecMaker) -> None:
    partition = {"name": "pathological", "seed": 3}
    prints = {Run(small_spec(seed=seed, partition=partition)).partition_fingerprint for seed in (1, 2)}
    assert len(prints) == 1


@pytest.mark.parametrize("algorithm", ["standalone", "fedavg"])
@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_the_same_spec_gives_the_same_bits_serial_or_in_threads(
    small_spec: SpecMaker, algorithm: str, protocol: str
) -> None:
    spec = small_spec(algorithm, evaluation={"protocol": protocol})
    serial = records_of(spec)
    assert same_results(serial, records_of(spec))
    assert same_results(serial, records_of(spec, threads=3))


def test_the_global_generator_has_no_influence(small_spec: SpecMaker) -> None:
    torch.manual_seed(0)
    first = records_of(small_spec("fedavg"))
    torch.manual_seed(1)
    assert same_results(first, records_of(small_spec("fedavg")))


def test_fedavg_sends_the_whole_model_of_each_client_both_ways(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg"))
    for record in list(run.rounds())[1:]:
        scalars = sum(sum(count(build(run.setup.architectures[k], (1, 16, 16), 4, 16))) for k in record.cohort)
        assert record.scalars_up == record.scalars_down == scalars
        assert record.bytes_up == record.bytes_down == 4 * scalars


def test_standalone_sends_nothing(small_spec: SpecMaker) -> None:
    assert {record.scalars_up + record.scalars_down for record in records_of(small_spec())} == {0}


@pytest.mark.parametrize("algorithm", ["standalone", "fedavg"])
def test_training_costs_three_forward_passes_per_sample_and_epoch(small_spec: SpecMaker, algorithm: str) -> None:
    run = Run(small_spec(algorithm))
    records = list(run.rounds())
    for record in records[1:]:
        expected = sum(
            3 * run.federation.forward_flops[run.setup.architectures[k]] * run.setup.num_samples[k] * 2
            for k in record.cohort
        )
        assert record.client_flops == expected


def test_accuracy_is_the_plain_mean_over_the_cohort_under_a(small_spec: SpecMaker) -> None:
    for record in records_of(small_spec(evaluation={"protocol": "A"}))[1:]:
        assert sorted(map(int, record.client_accuracy)) == record.cohort
        assert record.accuracy == pytest.approx(sum(record.client_accuracy.values()) / len(record.cohort))


def test_accuracy_is_weighted_by_samples_over_all_clients_under_b(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedavg", evaluation={"protocol": "B"}))
    sizes = [len(share.test) for share in run.partition.shares]
    for record in run.rounds():
        assert len(record.client_accuracy) == 6
        correct = sum(sizes[int(k)] * accuracy for k, accuracy in record.client_accuracy.items())
        assert record.accuracy == pytest.approx(correct / sum(sizes))


def test_c_tests_the_idle_clients_in_the_last_round_only(small_spec: SpecMaker) -> None:
    records = records_of(small_spec(evaluation={"protocol": "C"}))
    assert [len(record.client_accuracy) for record in records] == [0, 3, 3, 6]


def test_rounds_between_two_tests_have_no_accuracy_and_the_last_is_always_tested(small_spec: SpecMaker) -> None:
    records = records_of(small_spec(rounds=5, evaluation={"every": 2}))
    assert [record.accuracy is not None for record in records] == [False, False, True, False, True, True]


def test_testing_less_often_does_not_change_what_is_learned(small_spec: SpecMaker) -> None:
    often, seldom = (records_of(small_spec("fedavg", evaluation={"every": every})) for every in (1, 3))
    assert [record.loss for record in often] == [record.loss for record in seldom]
    assert often[-1].client_accuracy == seldom[-1].client_accuracy


def test_learning_beats_the_start(small_spec: SpecMaker) -> None:
    losses = [record.loss for record in records_of(small_spec(rounds=12, participation=1.0))[1:]]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def test_fedavg_with_one_client_is_standalone(small_spec: SpecMaker) -> None:
    one = {"clients": 1, "partition": {"name": "iid"}, "evaluation": {"protocol": "B"}}
    alone, averaged = records_of(small_spec("standalone", **one)), records_of(small_spec("fedavg", **one))
    assert [(r.loss, r.client_accuracy) for r in alone] == [(r.loss, r.client_accuracy) for r in averaged]


def test_fedavg_is_tested_with_the_received_model_before_local_work_under_a(small_spec: SpecMaker) -> None:
    one = {"clients": 1, "partition": {"name": "iid"}}
    late = [record.accuracy for record in records_of(small_spec("fedavg", **one))]
    prompt = [record.accuracy for record in records_of(small_spec("standalone", **one))]
    assert late[2:] == prompt[1:-1]


def test_a_client_that_was_idle_keeps_its_weights(small_spec: SpecMaker) -> None:
    run = Run(small_spec("standalone", rounds=1))
    record = list(run.rounds())[-1]
    assert run.federation.states.ids() == record.cohort


def test_a_loss_that_is_not_finite_ends_the_run_with_round_and_client(small_spec: SpecMaker) -> None:
    spec = small_spec(training={"lr": 10.0, "clip": None, "batch_size": 8, "epochs": 20}, rounds=50)
    with pytest.raises(Diverged, match=r"client \d+ became (nan|inf) in round \d+") as caught:
        records_of(spec)
    assert caught.value.round >= 1


def test_a_run_stops_between_two_batches_when_asked(small_spec: SpecMaker) -> None:
    polls = iter(range(10**6))
    run = Run(small_spec(rounds=1000), should_stop=lambda: next(polls) > 40)
    with pytest.raises(Interrupted):
        list(run.rounds())
    assert next(polls) == 42


def test_the_step_of_a_round_is_as_long_as_its_learning_rate(small_spec: SpecMaker) -> None:
    """One step of plain gradient descent a round: from equal models, the second step follows the schedule alone."""
    plain = {"epochs": 1, "batch_size": 1000, "lr": 0.05, "momentum": 0, "weight_decay": 0, "clip": None}

    def steps(**schedule: Any) -> list[Tensor]:
        run = Run(small_spec(clients=1, partition={"name": "iid"}, rounds=2, training={**plain, **schedule}))
        iterator, ends = run.rounds(), []
        for _record in iterator:
            [model] = run.query_clients([0], lambda client, _received: copy_tensors(client.model))
            ends.append(model["head.weight"])
        return [after - before for before, after in pairwise(ends)]

    first, second = steps()
    for schedule, factor in (({"schedule": "exponential", "decay": 0.2}, 0.2), ({"schedule": "cosine"}, 0.5)):
        alike, shorter = steps(**schedule)
        assert torch.equal(alike, first)
        assert torch.allclose(shorter, factor * second, atol=1e-7)
        assert second.abs().max() > 1e-4
