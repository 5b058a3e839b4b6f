"""The published sets themselves, where this machine has them: FEDARENA_DATA or a package of the system."""

import os
from pathlib import Path

import numpy as np
import pytest

from engine.data import readers
from engine.data.datasets import PUBLISHED
from engine.data.library import CONTENT_SUMS, content_sum

ROOT = Path(os.environ["FEDARENA_DATA"]) if os.environ.get("FEDARENA_DATA") else None  # read before a test hides it


def contents(name: str) -> readers.Contents:
    found = readers.find(name, ROOT)
    if found is None:
        pytest.skip(f"{name} is not on this machine; set FEDARENA_DATA to a folder that holds it")
    layout, folder = found
    return layout.read(folder)


@pytest.mark.parametrize("name", readers.LAYOUTS)
def test_a_published_set_has_the_published_number_of_images_and_classes(name: str) -> None:
    found, published = contents(name), PUBLISHED[name]
    assert len(found.labels) == published.images
    assert found.classes == published.classes
    assert np.unique(found.labels).size == published.classes
    assert (found.shape[3], *found.shape[1:3]) == published.shape


@pytest.mark.parametrize("name", CONTENT_SUMS)
def test_a_published_set_is_decoded_to_the_known_bytes(name: str) -> None:
    found = contents(name)
    images = np.empty(found.shape, np.uint8)
    found.fill(images, readers.quiet)
    tensors = {"images": images, "labels": found.labels, "official_test": found.official_test}
    assert content_sum(tensors) == CONTENT_SUMS[name]


@pytest.mark.parametrize(("name", "test"), [("mnist", 10_000), ("cifar100", 10_000), ("flowers102", 6_149)])
def test_a_published_set_has_its_official_test_part(name: str, test: int) -> None:
    assert int(contents(name).official_test.sum()) == test
