"""The measuring scripts: what they compare with is what they say."""

import pytest

from scripts.bench_queue import best_split


@pytest.mark.parametrize(
    ("seconds", "longest"),
    [([3.0, 1.0, 1.0, 1.0], 3.0), ([5.0, 4.0, 3.0, 3.0, 3.0], 9.0), ([2.0, 2.0], 2.0)],
)
def test_no_split_has_a_shorter_longest_share_and_none_is_left_out(seconds: list[float], longest: float) -> None:
    split = best_split(seconds)
    assert sorted(split[0] + split[1]) == list(range(len(seconds)))
    assert max(sum(seconds[number] for number in share) for share in split) == longest
