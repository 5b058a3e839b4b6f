"""The published sets themselves, where this machine has them: FEDARENA_DATA or a package of the system."""

import os
from pathlib import Path

import numpy as np
import pytest

from engine.data.formats.layout import Contents, quiet
from engine.data.library import content_sum
from engine.data.search import find
from engine.data.sets import REGISTRY, published

ROOT = Path(os.environ["FEDARENA_DATA"]) if os.environ.get("FEDARENA_DATA") else None  # read before a test hides it


def contents(name: str) -> Contents:
    found = find(name, ROOT)
    if found is None:
        pytest.skip(f"{name} is not on this machine; set FEDARENA_DATA to a folder that holds it")
    layout, folder = found
    return layout.read(folder)


@pytest.mark.parametrize("name", published())
def test_a_published_set_has_the_published_number_of_images_and_classes(name: str) -> None:
    found, card = contents(name), REGISTRY[name]
    assert len(found.labels) == card.images
    assert found.classes == card.classes
    assert np.unique(found.labels).size == card.classes
    assert (found.shape[3], *found.shape[1:3]) == card.shape


@pytest.mark.parametrize("name", [name for name, card in REGISTRY.items() if card.content_sum])
def test_a_published_set_is_decoded_to_the_known_bytes(name: str) -> None:
    found = contents(name)
    images = np.empty(found.shape, np.uint8)
    found.fill(images, quiet)
    tensors = {"images": images, "labels": found.labels, "official_test": found.official_test}
    assert content_sum(tensors) == REGISTRY[name].content_sum


@pytest.mark.parametrize(("name", "test"), [("mnist", 10_000), ("cifar100", 10_000), ("flowers102", 6_149)])
def test_a_published_set_has_its_official_test_part(name: str, test: int) -> None:
    assert int(contents(name).official_test.sum()) == test
