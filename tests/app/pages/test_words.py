"""Parts of a spec in a few words."""

import pytest

from app.pages.words import partition_text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"name": "pathological", "classes_per_client": 2}, "pathological, 2 classes"),
        ({"name": "pathological", "classes_per_client": 1}, "pathological, 1 class"),
        ({"name": "practical", "gamma": 0.5}, "practical, γ 0.5"),
        ({"name": "dirichlet", "beta": 0.1}, "dirichlet, β 0.1"),
    ],
)
def test_a_partition_is_named_with_what_makes_it_skewed(spec: dict[str, object], text: str) -> None:
    assert partition_text(spec) == text
