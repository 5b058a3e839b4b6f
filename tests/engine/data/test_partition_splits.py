"""Training and test samples of each client under every split."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.data.labelled import labelled, partition


def test_stratified_takes_a_fifth_of_every_class() -> None:
    data = labelled(50, 100)
    part = partition(data, 1, "iid", split="stratified-80-20")
    assert part.train_counts(data.labels).tolist() == [[40, 80]]
    assert part.test_counts(data.labels).tolist() == [[10, 20]]


@given(st.integers(1, 6), st.lists(st.integers(15, 60), min_size=1, max_size=5), st.integers(0, 99))
def test_stratified_has_the_same_class_mix_in_training_and_test(clients: int, sizes: list[int], seed: int) -> None:
    data = labelled(*sizes)
    part = partition(data, clients, "iid", seed, split="stratified-80-20")
    counts, test = part.counts(data.labels), part.test_counts(data.labels)
    assert ((test - counts / 5).abs() <= 1).all()
    assert (test.sum(1) == torch.floor(counts.sum(1) / 5 + 0.5).clamp(min=1)).all()
    assert ((counts == 0) | (counts - test > 0) | (counts == 1)).all()


def test_80_10_10_drops_the_validation_part_and_says_so() -> None:
    data = labelled(100, 200)
    part = partition(data, 1, "iid", split="80-10-10")
    assert part.train_counts(data.labels).tolist() == [[80, 160]]
    assert part.test_counts(data.labels).tolist() == [[10, 20]]
    assert part.notes == ("30 of 300 samples are a validation part, dropped",)


def test_random_75_25_rounds_the_training_part_down_and_ignores_classes() -> None:
    data = labelled(20, 21)
    part = partition(data, 1, "iid", split="random-75-25")
    assert (len(part.shares[0].train), len(part.shares[0].test)) == (30, 11)
    mixes = {
        tuple(partition(data, 1, "iid", seed, split="random-75-25").test_counts(data.labels)[0].tolist())
        for seed in range(10)
    }
    assert len(mixes) > 1


def test_authors_keeps_four_fifths_of_the_official_training_part() -> None:
    data = labelled(*[60] * 10, test=10)
    part = partition(data, 10, "iid", split="authors")
    assert part.notes == ("100 of 500 official training samples are a validation part, dropped",)
    assert [(len(share.train), len(share.test)) for share in part.shares] == [(40, 10)] * 10


def test_authors_draws_the_validation_part_at_random() -> None:
    data = labelled(*[60] * 2, test=10)
    trained = [set(partition(data, 1, "iid", seed, split="authors").shares[0].train.tolist()) for seed in range(2)]
    assert trained[0] != trained[1]


def test_official_gives_every_client_of_pathological_test_samples_of_its_own_classes_only() -> None:
    data = labelled(*[60] * 5, test=10)
    part = partition(data, 5, "pathological", classes_per_client=2, split="official")
    assert torch.equal(part.train_counts(data.labels) > 0, part.test_counts(data.labels) > 0)


def test_feature_shift_keeps_the_official_parts_of_each_domain() -> None:
    data = labelled(*[40] * 3, test=8, domains=("photo", "sketch"))
    part = partition(data, 2, "feature-shift", split="official")
    assert part.train_counts(data.labels).tolist() == [[16] * 3] * 2
    assert part.test_counts(data.labels).tolist() == [[4] * 3] * 2


def test_quantity_skew_splits_the_official_test_part_in_the_proportion_of_the_training_part() -> None:
    data = labelled(*[600] * 4, test=100)
    part = partition(data, 5, "quantity-skew", split="official")
    for share in part.shares:
        assert abs(len(share.train) / 5 - len(share.test)) < 1.01


@pytest.mark.parametrize("split", ["stratified-80-20", "80-10-10", "random-75-25"])
def test_another_split_leaves_the_clients_what_they_have(split: str) -> None:
    data = labelled(*[60] * 5)
    one = partition(data, 5, "pathological", classes_per_client=2, split="stratified-80-20")
    other = partition(data, 5, "pathological", classes_per_client=2, split=split)
    assert torch.equal(one.counts(data.labels) > 0, other.counts(data.labels) > 0)


def test_a_client_of_two_samples_trains_on_one_and_is_tested_on_the_other() -> None:
    data = labelled(3, 3)
    for split in ("stratified-80-20", "80-10-10", "random-75-25"):
        part = partition(data, 3, "iid", split=split)
        assert [(len(share.train), len(share.test)) for share in part.shares] == [(1, 1)] * 3
