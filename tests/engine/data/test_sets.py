"""What every data set's card must say."""

import pkgutil
from typing import Any, get_args

import pytest

from engine.data import augment, sets
from engine.data.card import DataCard
from engine.data.sets import REGISTRY, published
from engine.data.spec import DatasetSpec

MEMBERS = get_args(get_args(DatasetSpec)[0])
CARDS = pytest.mark.parametrize("card", REGISTRY.values(), ids=REGISTRY)


def test_every_file_of_the_folder_is_in_the_registry() -> None:
    files = {module.name for module in pkgutil.iter_modules(sets.__path__)}
    assert files == {name.replace("-", "_") for name in REGISTRY}


def test_a_spec_can_name_every_set_and_an_imported_one() -> None:
    names = [name for member in MEMBERS for name in get_args(member.model_fields["name"].annotation)]
    assert sorted(names) == sorted([*REGISTRY, "imported"])


@CARDS
def test_a_set_with_a_spec_of_its_own_is_chosen_by_it(card: DataCard) -> None:
    if card.spec is not None:
        assert card.spec in MEMBERS
        assert get_args(card.spec.model_fields["name"].annotation) == (card.name,)


def test_a_card_without_a_normalisation_cannot_be_made() -> None:
    given: dict[str, Any] = {"name": "new", "title": "New", "shape": (3, 8, 8), "classes": 2, "images": 4}
    with pytest.raises(TypeError, match="normalisation"):
        DataCard(**given)


def test_a_set_without_a_card_has_no_normalisation() -> None:
    with pytest.raises(KeyError, match="nobody"):
        augment.constants("a", "nobody", 3)


@CARDS
def test_the_normalisation_is_that_of_pixels_between_0_and_1(card: DataCard) -> None:
    for transform in "abc":
        means, deviations = augment.constants(transform, card.name, card.shape[0])
        assert len(means) == len(deviations) == card.shape[0]
        assert all(0 < value < 1 for value in (*means, *deviations))


@pytest.mark.parametrize("card", published().values(), ids=published())
def test_a_published_set_has_layouts_and_a_way_to_get_it(card: DataCard) -> None:
    assert card.layouts
    assert bool(card.remotes) != bool(card.page)


@CARDS
def test_a_set_is_made_or_read_and_never_both(card: DataCard) -> None:
    assert card.bundled != bool(card.layouts)
