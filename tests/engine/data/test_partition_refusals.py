"""What cannot be partitioned is refused: the field, the numbers, and what to change."""

from typing import Any

import pytest
import torch

from engine.data.partition import PartitionError, make_partition
from engine.data.partitions import dirichlet
from tests.engine.data.labelled import Labelled, imported, labelled, partition, spec

REFUSALS: dict[str, tuple[Labelled, int, str, dict[str, Any], str, str]] = {
    "more classes than exist (pathological)": (
        labelled(9, 9),
        2,
        "pathological",
        {"classes_per_client": 3},
        "partition.classes_per_client",
        "a client cannot own 3 classes: toy has 2; choose at most 2",
    ),
    "more classes than exist (balanced)": (
        labelled(9, 9),
        2,
        "balanced",
        {"classes_per_client": 3},
        "partition.classes_per_client",
        "a client cannot own 3 classes: toy has 2; choose at most 2",
    ),
    "fewer samples than two for each client": (
        labelled(9, 9),
        10,
        "iid",
        {},
        "clients",
        "each of 10 clients needs two samples, but toy has 18 samples; use at most 9 clients",
    ),
    "an official test part smaller than the clients": (
        labelled(9, 9, test=2),
        5,
        "iid",
        {"split": "official"},
        "clients",
        "each of 5 clients needs a training and a test sample, but toy has 14 training and 4 test samples; "
        "use at most 4 clients",
    ),
    "shares too small for a test sample": (
        labelled(30, 30, test=1),
        2,
        "pathological",
        {"classes_per_client": 2, "split": "official", "low": 0.6},
        "clients",
        "each of 2 clients needs a training and a test sample, but clients 0 and 1 would not have both "
        "(client 0: 28 training, 0 test); use fewer clients or a less skewed partition",
    ),
    "ten samples each (practical)": (
        labelled(60, 39),
        10,
        "practical",
        {},
        "clients",
        "10 clients of at least 10 samples need 100, but toy has 99 to deal; use at most 9 clients",
    ),
    "ten samples each (quantity-skew)": (
        labelled(60, 39),
        10,
        "quantity-skew",
        {},
        "clients",
        "10 clients of at least 10 samples need 100, but toy has 99 to deal; use at most 9 clients",
    ),
    "no domains": (
        labelled(9, 9),
        2,
        "feature-shift",
        {},
        "partition.name",
        "feature-shift needs a data set with domains, but toy has none; use pacs or domainnet",
    ),
    "clients that are not the domains": (
        labelled(9, 9, domains=("photo", "sketch")),
        3,
        "feature-shift",
        {},
        "clients",
        "feature-shift gives each domain to one client: toy has 2 domains (photo, sketch), "
        "so clients must be 2, but got 3",
    ),
    "no official test part": (
        labelled(9, 9),
        2,
        "iid",
        {"split": "official"},
        "partition.split",
        "'official' needs the publisher's own training and test parts, but toy has 18 training and 0 test samples; "
        "use stratified-80-20, 80-10-10 or random-75-25",
    ),
    "no official test part for the authors' split": (
        labelled(9, 9),
        2,
        "balanced",
        {"split": "authors", "classes_per_client": 1, "local_size": 2},
        "partition.split",
        "'authors' needs the publisher's own training and test parts, but toy has 18 training and 0 test samples; "
        "use stratified-80-20, 80-10-10 or random-75-25",
    ),
    "a local size below the classes": (
        labelled(9, 9, 9),
        2,
        "balanced",
        {"classes_per_client": 3, "local_size": 2},
        "partition.local_size",
        "2 samples cannot be spread over 3 classes; use at least 3",
    ),
    "a local size above what a class has": (
        labelled(50, 50),
        1,
        "balanced",
        {"classes_per_client": 2, "local_size": 90},
        "partition.local_size",
        "client 0 would need 45 different training samples of class 0, but toy has 40 (local_size is 90); "
        "lower local_size",
    ),
    "a local size above what a class has (dirichlet-mix)": (
        labelled(50),
        3,
        "dirichlet-mix",
        {"local_size": 41},
        "partition.local_size",
        "client 0 would need 41 different training samples of class 0, but toy has 40 (local_size is 41); "
        "lower local_size",
    ),
    "more dealt samples than memory should hold": (
        labelled(50),
        10_000,
        "balanced",
        {"classes_per_client": 1, "local_size": 3000},
        "partition.local_size",
        "10,000 clients × 3,000 samples are 30,000,000, more than the 20,000,000 that are allowed; use at most 2,000",
    ),
    "an imported partition of a set without one": (
        labelled(9, 9),
        2,
        "imported",
        {},
        "partition.name",
        "imported needs a data set that was imported together with its clients, but toy has none; "
        "choose such a set or another partition",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_with_field_numbers_and_advice(case: str) -> None:
    data, clients, name, fields, field, message = REFUSALS[case]
    with pytest.raises(PartitionError) as refusal:
        partition(data, clients, name, **fields)
    assert (refusal.value.field, refusal.value.message) == (field, message)
    assert str(refusal.value) == message


def test_a_repeated_draw_ends_after_a_thousand_times() -> None:
    with pytest.raises(PartitionError) as refusal:
        partition(labelled(50, 50), 10, "practical", gamma=0.01)
    assert refusal.value.field == "partition.gamma"
    assert refusal.value.message.startswith(
        "each of 10 clients needs 10 of 100 samples and a test sample, but in 1,000 draws of Dirichlet(0.01) "
        "the smallest had at most "
    )
    assert refusal.value.message.endswith("; use fewer clients or a larger value")


def test_large_draws_are_repeated_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "_MAX_NUMBERS", 2000)
    with pytest.raises(PartitionError, match=r"each of 20 clients needs 3 of 100 .* in 50 draws") as refusal:
        partition(labelled(50, 50), 20, "dirichlet", beta=0.01)
    assert refusal.value.field == "partition.beta"


def test_independent_labels_need_equally_many_classes_everywhere() -> None:
    with pytest.raises(PartitionError) as refusal:
        partition(labelled(*[60] * 5), 4, "dirichlet", beta=0.1, labels="independent")
    assert refusal.value.field == "partition.labels"
    assert refusal.value.message.startswith("independent labels need equally many classes at every client, but client ")
    assert refusal.value.message.endswith("; use unified or permuted")


def test_too_many_test_indices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.partition.MAX_ALLOCATED", 20)
    with pytest.raises(PartitionError, match=r"2 clients on whole classes needs 30 test indices, more than the 20"):
        partition(labelled(40, test=30), 2, "balanced", classes_per_client=1, local_size=3, split="official")


def test_imported_clients_must_be_as_many_as_the_spec_says() -> None:
    one = (torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(PartitionError, match="toy holds 1 clients, so clients must be 1, but got 2") as refusal:
        make_partition(imported(labelled(4, 4), one), spec("imported"), 2, 0)
    assert refusal.value.field == "clients"


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 8], [1], "imported client 0 names samples 0 to 8, but toy has samples 0 to 7; import the folder again"),
        ([0, 1], [-1], "imported client 0 names samples -1 to 1, but toy has samples 0 to 7; import the folder again"),
        ([0, 1], [1], "imported client 0 has 1 of its 3 samples twice, in one of its sets or in both"),
        ([0, 0], [1], "imported client 0 has 1 of its 3 samples twice, in one of its sets or in both"),
        ([], [1], "each of 1 clients needs a training and a test sample, but client 0 would not have both"),
    ],
)
def test_imported_lists_are_checked(train: list[int], test: list[int], message: str) -> None:
    share = (torch.tensor(train, dtype=torch.int64), torch.tensor(test, dtype=torch.int64))
    with pytest.raises(PartitionError, match=message):
        make_partition(imported(labelled(4, 4), share), spec("imported"), 1, 0)
