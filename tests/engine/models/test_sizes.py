"""The written sizes of the networks."""

import json

import pytest

from engine.models import FAMILIES
from engine.models.sizes import FILE, all_counted, counted, sizes


def test_the_file_holds_what_the_networks_have() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == all_counted(), "make docs writes it anew"


def test_every_member_of_a_family_can_be_looked_up() -> None:
    for family in FAMILIES.values():
        for member in family.members:
            found = sizes(member, family.feature_dim)
            assert found["parameters"] == found["body_parameters"] + found["head_parameters"]


@pytest.mark.parametrize("feature_dim", [100, 123])
def test_a_width_that_is_not_written_down_is_counted(feature_dim: int) -> None:
    assert sizes("tiny-mlp", feature_dim) == counted("tiny-mlp", feature_dim)
    assert sizes("tiny-mlp", feature_dim)["head_parameters"] == feature_dim * 10 + 10
