"""Who gets what: every partition on small data sets, by hand and as properties."""

from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from engine.data.datasets import load
from engine.data.partition import ClientShare, Partition, PartitionError, make_partition
from engine.data.spec import Synthetic
from tests.engine.data.labelled import Labelled, imported, labelled, partition, spec

POOLED = ("stratified-80-20", "80-10-10", "random-75-25")
SPLITS = (*POOLED, "official", "authors")


def _all(part: Partition, side: str) -> list[int]:
    return torch.cat([getattr(share, side) for share in part.shares]).tolist()


def _owners(part: Partition, data: Labelled) -> list[int]:
    """How many clients hold each class."""
    return (part.counts(data.labels) > 0).sum(0).tolist()


# P1 pathological


def test_pathological_with_equal_weights_halves_each_class_between_its_two_owners() -> None:
    data = labelled(10, 10, 10, 10)
    part = partition(data, 4, "pathological", classes_per_client=2, low=0.6)
    counts = part.counts(data.labels)
    assert _owners(part, data) == [2, 2, 2, 2]
    assert counts[counts > 0].tolist() == [5] * 8
    assert counts.sum(1).tolist() == [10] * 4
    assert part.notes == ()


def test_pathological_drops_unused_weights_and_renormalises_the_rest() -> None:
    # quota ⌈2·3/4⌉ = 2, but six picks: two classes have one owner, who gets all of it
    data = labelled(10, 10, 10, 10)
    part = partition(data, 3, "pathological", classes_per_client=2)
    alone = (part.counts(data.labels) > 0).sum(0) == 1
    assert alone.sum() == 2
    assert part.counts(data.labels).max(0).values[alone].tolist() == [10, 10]


def test_pathological_rounds_shares_down_and_says_how_much_is_left() -> None:
    data = labelled(10)
    part = partition(data, 3, "pathological", classes_per_client=1, low=0.6)
    assert part.counts(data.labels).flatten().tolist() == [3, 3, 3]
    assert part.notes == ("1 of 10 samples belong to no client: shares are rounded down",)


def test_pathological_says_which_classes_nobody_owns() -> None:
    part = partition(labelled(10, 10, 10), 1, "pathological", classes_per_client=2)
    assert part.notes[0].startswith("no client owns class ")
    assert part.notes[1] == "10 of 30 samples belong to no client: shares are rounded down"


def test_pathological_shares_lie_between_the_weights_that_can_be_drawn() -> None:
    data = labelled(*[600] * 10)
    part = partition(data, 20, "pathological", classes_per_client=2)
    counts = part.counts(data.labels)
    held = counts[counts > 0] / 600  # of four owners: between 0.4/2.2 and 0.6/1.8
    assert held.min() >= 0.4 / 2.2 - 1 / 600
    assert held.max() <= 0.6 / 1.8


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 9), st.integers(0, 1000))
def test_pathological_classes_have_equally_many_owners_up_to_one(clients: int, k: int, more: int, seed: int) -> None:
    classes = k + more
    data = labelled(*[clients * 20] * classes)
    part = partition(data, clients, "pathological", seed, classes_per_client=k)
    assert (part.counts(data.labels) > 0).sum(1).tolist() == [k] * clients
    assert set(_owners(part, data)) <= {k * clients // classes, -(-k * clients // classes)}


def test_pathological_uses_the_same_weights_for_the_official_parts() -> None:
    data = labelled(*[600] * 5, test=100)
    part = partition(data, 10, "pathological", classes_per_client=2, split="official")
    train, test = part.train_counts(data.labels), part.test_counts(data.labels)
    # ⌊500·w⌋ and ⌊100·w⌋ of one w
    assert ((train // 5 - test).abs() <= 1).all()
    assert ((train > 0) == (test > 0)).all()


# P2 practical and P3 dirichlet


def test_the_majority_share_is_the_mean_over_clients_of_the_commonest_class_of_a_test_set() -> None:
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 0, 1])
    none = torch.tensor([], dtype=torch.int64)
    shares = [ClientShare(none, torch.tensor(test), None) for test in ([0, 1, 2, 3], [4, 6], [5])]
    assert Partition(tuple(shares), 3, "", ()).majority_share(labels) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)


def test_practical_gives_every_client_every_class_and_ten_samples() -> None:
    data = labelled(*[100] * 5)
    part = partition(data, 8, "practical", gamma=0.1)
    counts = part.counts(data.labels)
    assert counts.min() >= 1
    assert counts.sum(1).min() >= 10
    assert counts.sum() == 500


def test_practical_says_which_classes_are_too_small_for_everybody() -> None:
    data = labelled(200, 200, 3)
    part = partition(data, 4, "practical", gamma=1.0)
    assert part.counts(data.labels)[:, :2].min() >= 1
    assert part.notes == ("not every client holds class 2: fewer samples than clients",)


def test_practical_gives_every_client_test_samples_of_every_class_of_the_official_part() -> None:
    data = labelled(*[120] * 4, test=20)
    part = partition(data, 6, "practical", gamma=0.2, split="official")
    assert part.train_counts(data.labels).min() >= 1
    assert part.test_counts(data.labels).min() >= 1


@pytest.mark.parametrize(("size", "clients", "least"), [(1000, 5, 40), (40, 4, 20)])
def test_dirichlet_repeats_until_every_client_has_its_least(size: int, clients: int, least: int) -> None:
    data = labelled(*[size] * 4)
    for seed in range(10):
        counts = partition(data, clients, "dirichlet", seed, beta=0.3).counts(data.labels)
        assert counts.sum(1).min() >= least
        assert counts.sum(0).tolist() == [size] * 4


def test_dirichlet_stops_giving_to_a_client_that_holds_its_mean_share() -> None:
    data = labelled(*[60] * 10)
    for seed in range(10):
        counts = partition(data, 6, "dirichlet", seed, beta=0.5, split="random-75-25").counts(data.labels)
        held_before_its_last_class = counts.sum(1) - torch.stack([row[row > 0][-1] for row in counts])
        assert held_before_its_last_class.max() < 100


def test_a_smaller_concentration_is_more_skewed() -> None:
    data = labelled(*[1000] * 10)
    largest = [
        partition(data, 10, "dirichlet", beta=beta).counts(data.labels).max(0).values.float().mean()
        for beta in (0.1, 1.0, 100.0)
    ]
    assert largest[0] > largest[1] > largest[2]


def test_dirichlet_tests_a_client_only_on_classes_it_trains_on_under_the_official_split() -> None:
    data = labelled(*[120] * 6, test=20)
    part = partition(data, 4, "dirichlet", beta=0.2, split="official")
    assert (part.train_counts(data.labels)[part.test_counts(data.labels) > 0] > 0).all()
    assert part.test_counts(data.labels).sum(0).tolist() == [20] * 6


# P4 balanced and P5 dirichlet-mix


def test_balanced_gives_the_remainder_to_the_last_class() -> None:
    data = labelled(*[100] * 5)
    part = partition(data, 6, "balanced", classes_per_client=3, local_size=11)
    for row in part.train_counts(data.labels):
        assert sorted(row[row > 0].tolist()) == [3, 3, 5]


def test_balanced_counts_training_samples_and_adds_test_samples_in_the_ratio_of_the_split() -> None:
    data = labelled(*[100] * 4)
    for split, test in (("stratified-80-20", 5), ("80-10-10", 3), ("random-75-25", 7)):
        part = partition(data, 3, "balanced", classes_per_client=2, local_size=20, split=split)
        assert [len(share.train) for share in part.shares] == [20] * 3
        assert [len(share.test) for share in part.shares] == [test] * 3


def test_balanced_takes_no_sample_twice_while_there_are_enough() -> None:
    data = labelled(*[100] * 4)
    part = partition(data, 7, "balanced", classes_per_client=4, local_size=40)
    assert len(set(_all(part, "train"))) == 280
    assert part.notes == ()


def test_balanced_deals_an_exhausted_class_again_and_says_so() -> None:
    data = labelled(12, test=2)
    part = partition(data, 3, "balanced", classes_per_client=1, local_size=4, split="official")
    trained = _all(part, "train")
    assert part.notes == ("class 0 was dealt again from the start",)
    assert len(set(trained)) == 10  # twelve places, ten samples: all of them, two twice
    assert all(len(set(share.train.tolist())) == 4 for share in part.shares)


def test_balanced_says_when_test_samples_are_dealt_again() -> None:
    # two clients on 8 of 9 training samples each, tested on 2 of the 3 test samples each
    part = partition(labelled(12), 2, "balanced", classes_per_client=1, local_size=8, split="random-75-25")
    assert part.notes == (
        "class 0 was dealt again from the start",
        "class 0 was dealt again from the start for testing",
    )
    assert len(set(_all(part, "test"))) == 3


def test_balanced_tests_on_all_official_test_samples_of_the_client_classes() -> None:
    data = labelled(*[30] * 5, test=7)
    part = partition(data, 10, "balanced", classes_per_client=2, local_size=10, split="official")
    for share in part.shares:
        own = torch.isin(data.labels, data.labels[share.train])
        assert share.test.tolist() == torch.nonzero(own & data.official_test).flatten().tolist()


def test_clients_of_the_same_classes_share_one_test_list() -> None:
    data = labelled(*[30] * 3, test=7)
    part = partition(data, 9, "balanced", classes_per_client=3, local_size=9, split="official")
    assert len({id(share.test) for share in part.shares}) == 1


def test_nobody_trains_on_what_another_client_is_tested_on_even_when_classes_are_dealt_again() -> None:
    data = labelled(*[20] * 4, test=4)
    for split in SPLITS:
        part = partition(data, 12, "balanced", classes_per_client=2, local_size=16, split=split)
        assert not set(_all(part, "train")) & set(_all(part, "test"))


def test_dirichlet_mix_fills_every_client_to_the_local_size() -> None:
    data = labelled(*[200] * 6)
    part = partition(data, 5, "dirichlet-mix", alpha=0.3, local_size=50)
    assert part.train_counts(data.labels).sum(1).tolist() == [50] * 5
    assert part.test_counts(data.labels).sum(1).tolist() == [13] * 5


def test_dirichlet_mix_tests_with_the_mix_it_trains_on() -> None:
    data = labelled(*[400] * 5)
    part = partition(data, 5, "dirichlet-mix", alpha=1.0, local_size=100)
    train, test = part.train_counts(data.labels), part.test_counts(data.labels)
    assert ((test - train / 4).abs() <= 1).all()


# P6 iid, P7 feature shift, quantity skew, imported


def test_iid_gives_equal_shares_up_to_one_sample() -> None:
    data = labelled(*[10] * 5)
    part = partition(data, 4, "iid")
    assert part.counts(data.labels).sum(1).tolist() == [13, 13, 12, 12]


def test_iid_splits_both_official_parts_equally() -> None:
    data = labelled(*[12] * 5, test=2)
    part = partition(data, 5, "iid", split="official")
    assert [(len(share.train), len(share.test)) for share in part.shares] == [(10, 2)] * 5


def test_feature_shift_gives_each_domain_to_its_client() -> None:
    data = labelled(*[30] * 3, domains=("photo", "sketch", "cartoon"))
    assert data.domains is not None
    part = partition(data, 3, "feature-shift")
    for client, share in enumerate(part.shares):
        assert set(data.domains[torch.cat([share.train, share.test])].tolist()) == {client}
    assert part.counts(data.labels).tolist() == [[10, 10, 10]] * 3


def test_quantity_skew_keeps_the_class_mix_at_clients_of_different_size() -> None:
    data = labelled(1000, 500, 250, 250)
    counts = partition(data, 6, "quantity-skew", beta=0.5).counts(data.labels)
    sizes = counts.sum(1, keepdim=True)
    assert sizes.min() >= 10
    assert sizes.max() > 2 * sizes.min()
    assert ((counts - sizes * torch.tensor([0.5, 0.25, 0.125, 0.125])).abs() <= 2).all()


def test_quantity_skew_gives_equal_sizes_for_a_very_large_concentration() -> None:
    data = labelled(*[100] * 5)
    sizes = partition(data, 5, "quantity-skew", beta=1000.0).counts(data.labels).sum(1)
    assert (sizes - 100).abs().max() <= 15


def test_imported_clients_are_kept_as_they_are() -> None:
    data = labelled(4, 4)
    given_lists = [(torch.tensor([5, 0, 1]), torch.tensor([2])), (torch.tensor([3]), torch.tensor([7, 6]))]
    part = make_partition(imported(data, *given_lists), spec("imported"), 2, 0)
    assert [share.train.tolist() for share in part.shares] == [[0, 1, 5], [3]]
    assert [share.test.tolist() for share in part.shares] == [[2], [6, 7]]
    assert part.notes == ()


def test_imported_clients_may_share_samples_and_it_is_said() -> None:
    one = (torch.tensor([0, 1]), torch.tensor([2]))
    part = make_partition(imported(labelled(4, 4), one, one), spec("imported"), 2, 0)
    assert part.notes == ("3 samples belong to more than one client, as imported",)


# Every partition

_FIELDS: dict[str, dict[str, Any]] = {
    "pathological": {"classes_per_client": 2},
    "practical": {"gamma": 0.5},
    "dirichlet": {"beta": 0.5},
    "balanced": {"classes_per_client": 2, "local_size": 12},
    "dirichlet-mix": {"alpha": 1.0, "local_size": 12},
    "iid": {},
    "quantity-skew": {"beta": 0.5},
    "feature-shift": {},
}
_EXCLUSIVE = [name for name in _FIELDS if name not in ("balanced", "dirichlet-mix")]
_EVERYTHING = ["practical", "dirichlet", "iid", "quantity-skew", "feature-shift"]


def _drawn(name: str, split: str, clients: int, sizes: list[int], seed: int) -> tuple[Labelled, Partition]:
    domains = tuple(f"domain {number}" for number in range(clients)) if name == "feature-shift" else ()
    data = labelled(*sizes, test=min(sizes) // 4, domains=domains)
    try:
        return data, partition(data, clients, name, seed, split=split, **_FIELDS[name])
    except PartitionError:
        reject()


_case = {
    "split": st.sampled_from(SPLITS),
    "clients": st.integers(1, 8),
    "sizes": st.lists(st.integers(20, 90), min_size=2, max_size=6),
    "seed": st.integers(0, 2**32 - 1),
}


@given(name=st.sampled_from(sorted(_FIELDS)), **_case)
def test_lists_ascend_and_training_never_meets_test(
    name: str, split: str, clients: int, sizes: list[int], seed: int
) -> None:
    _, part = _drawn(name, split, clients, sizes, seed)
    assert len(part.shares) == clients
    for share in part.shares:
        for own in (share.train, share.test):
            assert own.dtype == torch.int64
            assert len(own) >= 1
            assert (own.diff() > 0).all()
    assert not set(_all(part, "train")) & set(_all(part, "test"))


@given(name=st.sampled_from(_EXCLUSIVE), **_case)
def test_no_sample_belongs_to_two_clients(name: str, split: str, clients: int, sizes: list[int], seed: int) -> None:
    _, part = _drawn(name, split, clients, sizes, seed)
    used = _all(part, "train") + _all(part, "test")
    assert len(used) == len(set(used))


@given(name=st.sampled_from(_EVERYTHING), **{**_case, "split": st.sampled_from(["stratified-80-20", "random-75-25"])})
def test_no_sample_is_lost(name: str, split: str, clients: int, sizes: list[int], seed: int) -> None:
    _, part = _drawn(name, split, clients, sizes, seed)
    assert sorted(_all(part, "train") + _all(part, "test")) == list(range(sum(sizes)))


@given(name=st.sampled_from(sorted(_FIELDS)), **{**_case, "split": st.sampled_from(["official", "authors"])})
def test_official_parts_stay_apart(name: str, split: str, clients: int, sizes: list[int], seed: int) -> None:
    data, part = _drawn(name, split, clients, sizes, seed)
    assert not data.official_test[_all(part, "train")].any()
    assert data.official_test[_all(part, "test")].all()


@given(name=st.sampled_from(sorted(_FIELDS)), **_case)
@settings(max_examples=40)
def test_the_same_seed_gives_the_same_partition(
    name: str, split: str, clients: int, sizes: list[int], seed: int
) -> None:
    _, first = _drawn(name, split, clients, sizes, seed)
    _, second = _drawn(name, split, clients, sizes, seed)
    assert first.fingerprint == second.fingerprint
    assert first.notes == second.notes


@pytest.mark.parametrize("name", sorted(_FIELDS))
def test_another_seed_gives_another_partition(name: str) -> None:
    prints = {_drawn(name, "stratified-80-20", 4, [80] * 4, seed)[1].fingerprint for seed in range(5)}
    assert len(prints) == 5


@pytest.mark.parametrize("name", sorted(_FIELDS))
def test_a_partition_leaves_global_random_numbers_alone(name: str) -> None:
    before = torch.random.get_rng_state()
    _drawn(name, "stratified-80-20", 4, [80] * 4, 0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_counts_are_training_and_test_samples_of_each_class() -> None:
    shares = (
        ClientShare(torch.tensor([0, 1, 2]), torch.tensor([3]), None),
        ClientShare(torch.tensor([4]), torch.tensor([5]), None),
    )
    part = Partition(shares, 3, "", ())
    labels = torch.tensor([0, 0, 1, 1, 0, 0])
    assert part.train_counts(labels).tolist() == [[2, 1, 0], [1, 0, 0]]
    assert part.test_counts(labels).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert part.counts(labels).tolist() == [[2, 2, 0], [2, 0, 0]]


def test_a_loaded_data_set_can_be_partitioned() -> None:
    data = load(Synthetic(name="synthetic", classes=3, samples_per_class=20, channels=1, size=8), None)
    part = make_partition(data, spec("iid"), 3, 0)
    assert part.counts(data.labels).sum() == 60


# Fingerprint


def test_the_fingerprint_is_the_same_on_every_machine_and_day() -> None:
    part = partition(labelled(*[30] * 4), 4, "pathological", classes_per_client=2, labels="independent")
    assert part.fingerprint == "b3014f1e216cbbf589f3353ac38bb37ed73780149cf52e1b606b2f1518ad30c0"


def test_the_fingerprint_covers_lists_and_label_maps() -> None:
    data, one = labelled(4, 4), (torch.tensor([0, 1]), torch.tensor([2]))
    other = (torch.tensor([3, 4]), torch.tensor([5]))

    def printed(*clients: tuple[torch.Tensor, torch.Tensor], labels: str = "unified", seed: int = 0) -> str:
        return make_partition(imported(data, *clients), spec("imported", labels=labels), len(clients), seed).fingerprint

    prints = [
        printed(one, other),
        printed(other, one),
        printed(one),
        printed((torch.tensor([0, 1]), torch.tensor([6])), other),
        printed((torch.tensor([0, 2]), torch.tensor([1])), other),
        printed(one, other, labels="permuted"),
        printed(one, other, labels="permuted", seed=1),
        printed(one, other, labels="permuted", seed=2),
    ]
    # two classes have two permutations: of the three seeds at least two differ from each other
    assert len(set(prints)) >= 7
    assert printed(one, other) == printed(one, other, seed=1)
