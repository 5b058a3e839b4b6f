"""Parts of a spec in a few words."""

import pytest

from app.pages.words import clients_text, partition_text


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


@pytest.mark.parametrize(
    ("clients", "participation", "text"),
    [
        (150, 20 / 150, "20 of 150 clients"),
        (20, 1.0, "all 20 clients"),
        (0, 0.0, "all 0 clients"),
        (10**400, 0.5, f"all {10**400} clients"),
    ],
)
def test_the_clients_of_a_round_are_counted_and_a_damaged_spec_is_shown_as_it_is(
    clients: int, participation: float, text: str
) -> None:
    assert clients_text({"clients": clients, "participation": participation}) == text
