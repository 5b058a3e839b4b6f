"""Validation: tested with the test, on the same clients, and nothing else changes by it."""

from dataclasses import replace

import pytest
import torch

from engine.kit.contract import Client, Payload
from engine.kit.work import Tested
from engine.records import VALIDATED_SPLITS, has_validation
from engine.runtime.evaluation import round_accuracy, validation_accuracy
from engine.runtime.run import Run
from engine.spec.evaluation import EvaluationSpec
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SMALL, SpecMaker, records_of

PARTITION = {**SMALL["partition"], "split": "80-10-10"}


def right_answers(job: Run, clients: list[int]) -> list[tuple[int, int]]:
    """Right answers and number of the validation samples, asked one image at a time."""

    def ask(client: Client, received: Payload) -> tuple[int, int]:
        job.algorithm.prepare(client, received)
        predictor = job.algorithm.predictor(client)
        assert predictor is not None
        client.model.eval()
        right = 0
        with torch.no_grad():
            for position in range(len(client.validation)):
                image, label = client.validation.batch(torch.tensor([position]))
                right += int(predictor(image).argmax()) == int(label)
        return right, len(client.validation)

    return job.query_clients(clients, ask)


@pytest.mark.parametrize("algorithm", ["fedavg", "standalone"])
def test_protocol_b_counts_right_answers_over_all_validation_samples(small_spec: SpecMaker, algorithm: str) -> None:
    job = Run(small_spec(algorithm, partition=PARTITION, evaluation={"protocol": "B"}))
    *_, last = job.rounds()
    found = right_answers(job, list(range(6)))
    assert sum(samples for _, samples in found) == 16
    assert last.validation_accuracy == sum(right for right, _ in found) / 16


def test_protocol_a_is_the_mean_over_the_cohort(small_spec: SpecMaker) -> None:
    job = Run(small_spec("standalone", partition=PARTITION))
    *_, last = job.rounds()
    found = right_answers(job, last.cohort)
    assert last.validation_accuracy == sum(right / samples for right, samples in found) / 3


def test_a_client_without_validation_samples_does_not_count() -> None:
    tests = {
        0: Tested(1, 2, 0, {}, validation_correct=3, num_validation_samples=4),
        1: Tested(0, 2, 0, {}),
        2: Tested(0, 2, 0, {}, "diverged", num_validation_samples=1),
    }
    a, b = EvaluationSpec(protocol="A"), EvaluationSpec(protocol="B")
    assert (validation_accuracy(a, tests), validation_accuracy(b, tests)) == (0.375, 0.6)
    assert (round_accuracy(a, tests), round_accuracy(b, tests)) == (0.5 / 3, 1 / 6)
    assert validation_accuracy(a, {1: tests[1]}) is None


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
@pytest.mark.parametrize("algorithm", ["fedavg-ft", "pfedafm"])
def test_a_validation_part_changes_nothing_but_its_own_number(
    small_spec: SpecMaker, algorithm: str, protocol: str
) -> None:
    spec = small_spec(algorithm, partition=PARTITION, evaluation={"protocol": protocol})
    blind = Run(spec)
    empty = torch.empty(0, dtype=torch.int64)
    blind.federation.shares = [replace(share, validation=empty) for share in blind.partition.shares]
    seeing = [record.without_times() for record in records_of(spec)]
    numbers = [record.pop("validation_accuracy", None) for record in seeing]
    assert numbers[-1] is not None
    assert seeing == [record.without_times() for record in blind.rounds()]  # what tuning a copy costs, too


def test_without_a_validation_part_there_is_no_number(small_spec: SpecMaker) -> None:
    records = records_of(small_spec())
    assert {record.validation_accuracy for record in records} == {None}
    assert "validation_accuracy" not in records[-1].without_times()


@pytest.mark.parametrize("split", ["stratified-80-20", "80-10-10", "random-75-25", "official", "authors"])
def test_the_splits_that_are_said_to_have_a_validation_part_have_one(split: str) -> None:
    dataset = {**SMALL["dataset"], "samples_per_class": 60}
    spec = ExperimentSpec.parse({**SMALL, "dataset": dataset, "partition": {"name": "iid", "split": split}})
    kept = sum(len(share.validation) for share in Run(spec).partition.shares)
    assert has_validation(spec.canonical()) == (split in VALIDATED_SPLITS) == (kept > 0)
