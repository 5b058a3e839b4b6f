"""Training and test samples of each client under every split."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.data.partition import Partition
from tests.engine.data.labelled import Labelled, labelled, partition


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


def test_80_10_10_keeps_the_validation_part_and_says_so() -> None:
    data = labelled(100, 200)
    part = partition(data, 1, "iid", split="80-10-10")
    validation = part.shares[0].validation
    assert data.labels[validation].bincount().tolist() == [10, 20]
    assert validation.tolist() == sorted(validation.tolist())
    assert part.train_counts(data.labels).tolist() == [[80, 160]]
    assert part.test_counts(data.labels).tolist() == [[10, 20]]
    assert part.notes == ("30 of 300 samples are a validation part: tested in each round, never trained on",)


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
    told = "100 of 500 official training samples are a validation part: tested in each round, never trained on"
    assert part.notes == (told,)
    sizes = [(len(share.train), len(share.test), len(share.validation)) for share in part.shares]
    assert sizes == [(40, 10, 10)] * 10


def test_authors_draws_the_validation_part_at_random() -> None:
    data = labelled(*[60] * 2, test=10)
    trained = [set(partition(data, 1, "iid", seed, split="authors").shares[0].train.tolist()) for seed in range(2)]
    assert trained[0] != trained[1]


PINNED = {
    ("80-10-10", "pathological"): "d3b6a645bd2fbeef7b241ffb29f69666a36237eaf1513264409b1243d9bd4d54",
    ("80-10-10", "practical"): "ffa1e66fd9d879272a7a28a4134b9d82ec5e9658cd7a1f59b981e85f6f0405dd",
    ("80-10-10", "dirichlet"): "6ad4206e03a3498061119ac5be3567d92beb2138e1c29e07e026975daa14a89e",
    ("80-10-10", "balanced"): "4db20466b8544b8dd3677d479ede78bab756755ee28c3b7121b9786b5d706456",
    ("80-10-10", "dirichlet-mix"): "31090cfe43a3d7115d6fcf542544f70f72a2bde16ac4c22443689f4145d00d7e",
    ("80-10-10", "iid"): "2d0ac83414586ff00812c647794cc819732b4b9f8379065ee9f9d42deac7980e",
    ("80-10-10", "quantity-skew"): "d73175a6d1cdc58f5157d5876ae38f1b7efbbbd219d703b2d7b53bedd9ae9e1e",
    ("80-10-10", "feature-shift"): "c24d8b8d58703567063bd466ba9ccae6199f340958f75cc9d706e11b02d6adc0",
    ("authors", "pathological"): "62467aa0dd0019312bc963bfbe208fad05d60e853e584edc8f25457a9243773d",
    ("authors", "practical"): "138596d066594b93467fa9bd1f779e7c248cd06eaa67aaac574d735a5e5f2939",
    ("authors", "dirichlet"): "835bd9ae8a6371d98f2ea241a3dc7682343df79789c01b89d9a0b6a8bd7ea30a",
    ("authors", "balanced"): "c2191679a02e3fde4bcbee2bb7d67da2297eccba38d6f079c9e654cfc95a764c",
    ("authors", "dirichlet-mix"): "82b0f2c7957576b64274ecd5e68cfc306da973fa82f2954522a7b737c19fb3b8",
    ("authors", "iid"): "a14de5f6262abae0f3e4f1ac4a90e736913998670e81e79d115930ab06f84ccb",
    ("authors", "quantity-skew"): "9ffe2caafe7d1dce511e96a4afd8c2f1cbe04ecc1fb02895c6bf0e20d92a985a",
    ("authors", "feature-shift"): "c78be0cab61f783f3c1f2a7b71bdb57ecf7c97088409595b011423ad58bf477e",
}
"""As they were when no client had validation samples: they name what is stored."""
SCHEMES: dict[str, dict[str, Any]] = {
    "pathological": {"classes_per_client": 2},
    "practical": {},
    "dirichlet": {"beta": 0.5},
    "balanced": {"classes_per_client": 2, "local_size": 40, "labels": "independent"},
    "dirichlet-mix": {"local_size": 30},
    "iid": {},
    "quantity-skew": {},
    "feature-shift": {},
}


def dealt(scheme: str, split: str, size: int = 60) -> tuple[Labelled, Partition]:
    domains = ("photo", "sketch") if scheme == "feature-shift" else ()
    data = labelled(*[size] * 5, test=size // 6, domains=domains)
    return data, partition(data, len(domains) or 5, scheme, split=split, **SCHEMES[scheme])


@pytest.mark.parametrize(("split", "scheme"), PINNED)
def test_training_and_test_parts_are_what_they_were_before_there_was_validation(split: str, scheme: str) -> None:
    assert dealt(scheme, split)[1].fingerprint == PINNED[split, scheme]


@pytest.mark.parametrize(("split", "scheme"), PINNED)
def test_nobody_trains_on_or_is_tested_on_a_validation_sample(split: str, scheme: str) -> None:
    part = dealt(scheme, split)[1]
    used = {sample for share in part.shares for own in (share.train, share.test) for sample in own.tolist()}
    for share in part.shares:
        assert len(share.validation) > 0
        assert not used & set(share.validation.tolist())


@pytest.mark.parametrize("split", ["80-10-10", "authors"])
@pytest.mark.parametrize("scheme", ["pathological", "balanced", "iid"])
def test_validation_samples_have_the_class_mix_of_the_test_samples(scheme: str, split: str) -> None:
    data, part = dealt(scheme, split, 1200)
    for share in part.shares:
        test, validation = (data.labels[own].bincount(minlength=5) / len(own) for own in (share.test, share.validation))
        assert (test - validation).abs().max() < 0.1


def test_a_client_of_feature_shift_validates_on_its_own_domain() -> None:
    data, part = dealt("feature-shift", "authors")
    assert data.domains is not None
    for domain, share in enumerate(part.shares):
        assert set(data.domains[share.validation].tolist()) == {domain}


@pytest.mark.parametrize("split", ["stratified-80-20", "random-75-25", "official"])
def test_other_splits_have_no_validation_part(split: str) -> None:
    part = partition(labelled(*[60] * 5, test=10), 5, "iid", split=split)
    assert [len(share.validation) for share in part.shares] == [0] * 5


@pytest.mark.parametrize("seed", range(10))
def test_private_ids_cover_every_validation_sample(seed: int) -> None:
    data = labelled(*[12] * 8)
    part = partition(data, 4, "pathological", seed, classes_per_client=2, split="80-10-10", labels="independent")
    for share in part.shares:
        assert share.label_map is not None
        assert (share.label_map[data.labels[share.validation]] >= 0).all()


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
