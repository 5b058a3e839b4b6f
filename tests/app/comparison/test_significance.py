"""The tests of significance give the numbers that pencil and paper give."""

from math import sqrt

import pytest

from app.comparison.significance import Sample, compare, holm, over_clients, over_seeds


def sample(label: str, *clients: float, partition: str = "p", seeds: dict[int, float] | None = None) -> Sample:
    return Sample(label, {(partition, str(k)): value for k, value in enumerate(clients)}, seeds or {})


def test_six_clients_with_one_loss_of_the_largest_size() -> None:
    """Ranks 1 to 5 for the first, 6 for the second: 14 of 64 sign patterns are as extreme, on either side."""
    test = over_clients(sample("a", 0.51, 0.52, 0.53, 0.54, 0.55, 0.44), sample("b", *[0.5] * 6))
    assert (test.n, test.wins, test.losses, test.ties, test.exact) == (6, 5, 1, 0, True)
    assert test.p == pytest.approx(28 / 64)
    assert test.rank_biserial == pytest.approx((15 - 6) / 21)
    assert test.mean_difference == pytest.approx(0.09 / 6)
    assert test.median_difference == pytest.approx(0.025)


def test_equal_clients_are_left_out_and_tied_differences_share_their_rank() -> None:
    """Differences +1, +1, -2 and 0 tenths: ranks 1.5, 1.5 and 3, so both sides sum up to 3."""
    test = over_clients(sample("a", 0.4, 0.3, 0.1, 0.7), sample("b", 0.3, 0.2, 0.3, 0.7))
    assert (test.n, test.wins, test.losses, test.ties, test.exact) == (4, 2, 1, 1, True)
    assert test.rank_biserial == pytest.approx(0)
    assert test.p == pytest.approx(1)
    assert "1 equal client is left out" in test.note
    assert "With 3 differing clients no outcome is below 0.05" in test.note


@pytest.mark.parametrize(
    ("differences", "as_far", "signs"),
    [
        ([1, 1, 1, 1, 1], 2, 32),  # all to one side or all to the other
        ([1, 1, 1, 1, 1, 1], 2, 64),
        ([1, 1, -1, 2], 8, 16),  # ranks 2, 2, 2 and 4 sum up to 6: so far or farther with 4 and two or three more
    ],
)
def test_ties_are_counted_over_all_signs(differences: list[int], as_far: int, signs: int) -> None:
    """The normal approximation would call five equal wins significant, with p = 0.025."""
    test = over_clients(sample("a", *(0.5 + d / 100 for d in differences)), sample("b", *[0.5] * len(differences)))
    assert test.exact
    assert test.p == pytest.approx(as_far / signs)


def test_many_clients_are_approximated() -> None:
    test = over_clients(sample("a", *[0.6] * 51), sample("b", *[0.5] * 51))
    assert test.exact is False
    assert "Normal approximation" in test.note


def test_clients_of_different_partitions_are_not_paired() -> None:
    test = over_clients(sample("a", 0.4, 0.3), sample("b", 0.3, 0.2, partition="q"))
    assert (test.n, test.p) == (0, None)
    assert "different partitions" in test.note


def test_equal_runs_have_nothing_to_test() -> None:
    test = over_clients(sample("a", 0.4, 0.3), sample("b", 0.4, 0.3))
    assert test.p is None
    assert "All 2 clients have equal accuracy" in test.note


def test_three_seeds_by_hand() -> None:
    """Differences 1, 2 and 3 points: t = 2·√3 with 2 degrees of freedom, where p = 1 - t / √(t² + 2)."""
    a = sample("a", seeds={42: 0.81, 43: 0.82, 44: 0.83, 99: 0.5})
    b = sample("b", seeds={42: 0.80, 43: 0.80, 44: 0.80, 7: 0.1})
    test = over_seeds(a, b)
    assert (test.n, test.seeds) == (3, [42, 43, 44])
    assert test.p == pytest.approx(1 - 2 * sqrt(3) / sqrt(14))
    assert test.d_z == pytest.approx(2)
    assert (test.low, test.high) == pytest.approx((0.02 - 4.302653 * 0.01 / sqrt(3), 0.02 + 4.302653 * 0.01 / sqrt(3)))


@pytest.mark.parametrize(
    ("seeds", "reason"),
    [
        ({42: 0.8}, "there is one"),
        ({1: 0.8}, "there is none"),
        ({42: 0.8, 43: 0.9}, "the same with all 2 seeds"),
    ],
)
def test_seeds_that_cannot_be_tested_say_why(seeds: dict[int, float], reason: str) -> None:
    test = over_seeds(sample("a", seeds=seeds), sample("b", seeds={42: 0.7, 43: 0.8}))
    assert test.p is None
    assert reason in test.note


def test_holm_multiplies_step_by_step_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_a_reference_is_first_in_all_its_pairs_and_fewer_tests_are_corrected_for() -> None:
    values = [0.51, 0.52, 0.53, 0.54, 0.55, 0.56]
    samples = [sample("a", *values), sample("b", *[0.5] * 6), sample("c", 0.4, 0.39, 0.38, 0.37, 0.36, 0.35)]
    everything, against_b = compare(samples), compare(samples, "b")
    assert [(pair.first, pair.second) for pair in everything] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [(pair.first, pair.second) for pair in against_b] == [("b", "a"), ("b", "c")]
    assert everything[0].clients.p == pytest.approx(2 / 64)
    assert everything[0].clients.p_holm == pytest.approx(3 * 2 / 64)
    assert against_b[0].clients.p_holm == pytest.approx(2 * 2 / 64)
