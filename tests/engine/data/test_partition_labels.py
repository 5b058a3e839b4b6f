"""Label modes: which output of a client's head stands for which class."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.data.labelled import labelled, partition


def test_unified_labels_need_no_map() -> None:
    part = partition(labelled(*[20] * 4), 4, "pathological", classes_per_client=2)
    assert part.classes == 4
    assert all(share.label_map is None for share in part.shares)


@given(st.integers(1, 5), st.integers(0, 3), st.integers(1, 6), st.integers(0, 999))
def test_independent_labels_number_the_own_classes_from_zero(k: int, more: int, clients: int, seed: int) -> None:
    data = labelled(*[200] * (k + more))
    part = partition(data, clients, "balanced", seed, classes_per_client=k, local_size=5 * k, labels="independent")
    assert part.classes == k
    for share, row in zip(part.shares, part.counts(data.labels), strict=True):
        assert share.label_map is not None
        assert share.label_map[row > 0].sort().values.tolist() == list(range(k))
        assert (share.label_map[row == 0] == -1).all()


@pytest.mark.parametrize("name", ["pathological", "iid", "dirichlet", "quantity-skew"])
def test_permuted_labels_are_a_permutation_of_all_ids(name: str) -> None:
    data = labelled(*[50] * 6)
    part = partition(data, 5, name, labels="permuted")
    assert part.classes == 6
    for share in part.shares:
        assert share.label_map is not None
        assert share.label_map.sort().values.tolist() == list(range(6))


def test_independent_labels_of_dirichlet_mix_permute_all_ids() -> None:
    data = labelled(*[100] * 8)
    part = partition(data, 5, "dirichlet-mix", alpha=0.1, local_size=40, labels="independent")
    assert part.classes == 8
    for share in part.shares:
        assert share.label_map is not None
        assert share.label_map.sort().values.tolist() == list(range(8))


def test_independent_labels_of_clients_that_own_everything_permute_all_ids() -> None:
    part = partition(labelled(*[50] * 3), 2, "iid", labels="independent")
    assert part.classes == 3


def test_clients_have_private_permutations() -> None:
    part = partition(labelled(*[50] * 10), 6, "iid", labels="permuted")
    maps = {tuple(share.label_map.tolist()) for share in part.shares if share.label_map is not None}
    assert len(maps) == 6


def test_every_permutation_of_three_classes_is_equally_likely() -> None:
    part = partition(labelled(*[2000] * 3), 600, "iid", labels="permuted")
    times = Counter(tuple(share.label_map.tolist()) for share in part.shares if share.label_map is not None)
    assert len(times) == 6
    assert min(times.values()) >= 60  # the mean is 100, the standard deviation 9
    assert max(times.values()) <= 140


@pytest.mark.parametrize("mode", ["independent", "permuted"])
def test_another_label_mode_leaves_every_sample_where_it_is(mode: str) -> None:
    data = labelled(*[50] * 4)
    unified = partition(data, 4, "pathological", classes_per_client=2)
    other = partition(data, 4, "pathological", classes_per_client=2, labels=mode)
    for one, two in zip(unified.shares, other.shares, strict=True):
        assert torch.equal(one.train, two.train)
        assert torch.equal(one.test, two.test)
    assert unified.fingerprint != other.fingerprint


def test_counts_use_global_ids_whatever_the_label_mode() -> None:
    data = labelled(*[50] * 6)
    one = partition(data, 3, "balanced", classes_per_client=2, local_size=10, labels="independent")
    two = partition(data, 3, "balanced", classes_per_client=2, local_size=10)
    assert one.counts(data.labels).shape == (3, 6)
    assert torch.equal(one.counts(data.labels), two.counts(data.labels))
