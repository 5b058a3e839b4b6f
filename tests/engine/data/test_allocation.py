"""The arithmetic of allocating samples, on numbers small enough for paper and pencil."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.data.allocation import Allocation, allocate, apportion, choose, cut, fraction, listing


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_cut_gives_runs_in_proportion_to_the_weights() -> None:
    assert cut(np.array([1.0, 1.0, 2.0]), 8).tolist() == [2, 2, 4]


def test_cut_gives_everything_away_and_nothing_for_a_weight_of_zero() -> None:
    assert cut(np.array([0.0, 0.1, 0.2, 0.0]), 10).tolist() == [0, 3, 7, 0]


def test_apportion_gives_the_rest_to_the_largest_remainder() -> None:
    # 3.5, 2.1, 1.4 of 7: the whole parts make 6, the last one goes to .5
    assert apportion(np.array([[0.5, 0.3, 0.2]]), 7).tolist() == [[4, 2, 1]]


def test_apportion_breaks_ties_for_the_lower_column() -> None:
    assert apportion(np.array([[1.0, 1.0, 1.0]]), 4).tolist() == [[2, 1, 1]]


def test_a_fifth_of_even_cells_is_even() -> None:
    assert fraction(np.array([[5, 5], [10, 20]]), 1, 5, _rng(), at_least=1).tolist() == [[1, 1], [2, 4]]


def test_what_rounding_leaves_over_spares_the_only_sample_of_a_class() -> None:
    # ten samples, two of them wanted: 8/5 gives one, the second also comes from the large cell
    assert fraction(np.array([[1, 1, 8]]), 1, 5, _rng(), at_least=1).tolist() == [[0, 0, 2]]


def test_two_samples_are_enough_for_one_of_each_kind() -> None:
    assert fraction(np.array([[0, 2, 0]]), 1, 5, _rng(), at_least=1).tolist() == [[0, 1, 0]]


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=4, max_size=4), min_size=1, max_size=5),
    st.sampled_from([(1, 5), (1, 10), (1, 9), (1, 3), (10, 37)]),
    st.integers(0, 5),
)
def test_a_fraction_is_exact_in_the_row_and_within_one_sample_in_the_cell(
    rows: list[list[int]], ratio: tuple[int, int], seed: int
) -> None:
    counts, (part, whole) = np.array(rows), ratio
    taken = fraction(counts, part, whole, _rng(seed), at_least=0)
    assert (taken.sum(axis=1) == np.floor(counts.sum(axis=1) * part / whole + 0.5)).all()
    assert (np.abs(taken - counts * part / whole) <= 1).all()
    assert ((taken >= 0) & (taken <= counts)).all()


def test_a_class_is_given_in_runs_and_again_from_the_start_when_it_is_exhausted() -> None:
    labels = np.zeros(10, dtype=np.int64)
    allocation = allocate(np.arange(10), labels, np.array([[4], [4], [4]]), _rng())
    first, second, third = (allocation.index[allocation.owner == client].tolist() for client in range(3))
    assert len({*first, *second}) == 8
    assert third[2:] == first[:2]
    assert {*first, *second, *third[:2]} == set(range(10))


def test_allocating_gives_exactly_the_counts_asked_for() -> None:
    labels = np.array([0, 1, 2] * 5)
    asked = np.array([[1, 0, 4], [3, 2, 1]])
    assert (allocate(np.arange(15), labels, asked, _rng()).counts(labels, 2, 3) == asked).all()


def test_choosing_marks_the_wanted_number_of_each_class_at_each_client() -> None:
    labels = np.array([0, 1] * 6)
    allocation = Allocation(np.repeat([0, 1], 6), np.arange(12))
    wanted = np.array([[1, 2], [3, 0]])
    assert (allocation.keep(choose(allocation, labels, wanted, _rng())).counts(labels, 2, 2) == wanted).all()


def test_a_long_listing_is_cut_short() -> None:
    assert listing("class", np.array([3])) == "class 3"
    assert listing("class", np.array([1, 2, 5])) == "classes 1, 2 and 5"
    assert listing("client", np.arange(46)) == "clients 0, 1, 2, 3, 4, 5 and 40 more"
