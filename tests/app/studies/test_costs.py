"""The written costs of a round are those that a rehearsal finds."""

import pytest

from app.studies.costs import rehearsed, written
from engine.methods import REGISTRY


def test_every_method_is_in_the_file() -> None:
    assert list(written()) == list(REGISTRY), "make docs writes it anew"


@pytest.mark.parametrize("method", REGISTRY)
def test_the_file_holds_what_a_rehearsal_finds(method: str) -> None:
    """The last bits of a processor decide the ranks of FedKD's update, and nothing else."""
    found, held = rehearsed(method), written()[method]
    assert found.keys() == held.keys() == {"round", "opening"}
    for part in found:
        assert held[part] == pytest.approx(found[part], rel=0.1 if method == "fedkd" else 0), "make docs writes it anew"
