from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from engine.data.datasets import load
from engine.data.errors import DataTooLarge
from engine.data.sets import synthetic
from engine.data.spec import Synthetic


def spec(**fields: Any) -> Synthetic:
    return Synthetic.model_validate({"name": "synthetic", **fields})


SMALL = {"classes": 4, "samples_per_class": 12, "channels": 2, "size": 16}


def test_the_images_have_the_form_the_spec_asks_for() -> None:
    found = load(spec(**SMALL), None)
    assert tuple(found.images.shape) == (48, 16, 16, 2)
    assert found.shape == (2, 16, 16)
    assert found.classes == 4
    assert found.labels.bincount().tolist() == [12] * 4


def test_every_class_has_a_test_part_of_one_sixth() -> None:
    found = load(spec(**SMALL), None)
    assert found.labels[found.official_test].bincount().tolist() == [2] * 4
    smallest = load(spec(**{**SMALL, "samples_per_class": 2}), None)
    assert smallest.labels[smallest.official_test].bincount().tolist() == [1] * 4


def test_the_same_spec_gives_the_same_images() -> None:
    images, labels, test = synthetic.make(spec(**SMALL))
    again = synthetic.make(spec(**SMALL))
    np.testing.assert_array_equal(images, again[0])
    np.testing.assert_array_equal(labels, again[1])
    np.testing.assert_array_equal(test, again[2])


@pytest.mark.parametrize("change", [{"seed": 1}, {"noise": 0.0}, {"patterns_per_class": 1}, {"samples_per_class": 13}])
def test_every_field_changes_the_images(change: dict[str, Any]) -> None:
    images, other = synthetic.make(spec(**SMALL))[0], synthetic.make(spec(**{**SMALL, **change}))[0]
    assert not np.array_equal(images, other[: len(images)])


def test_more_noise_makes_neighbouring_pixels_differ_more() -> None:
    def roughness(noise: float) -> float:
        images = synthetic.make(spec(**{**SMALL, "noise": noise}))[0].astype(np.float32)
        return float(np.abs(np.diff(images, axis=2)).mean())

    assert roughness(0.0) < roughness(0.35) < roughness(2.0)


def test_a_class_with_more_patterns_looks_less_alike() -> None:
    def contrast_of_the_mean_image(patterns: int) -> float:
        images, labels, _ = synthetic.make(spec(classes=3, samples_per_class=80, patterns_per_class=patterns, size=16))
        return float(np.mean([images[labels == number].mean(axis=0).std() for number in range(3)]))

    assert contrast_of_the_mean_image(1) > 1.5 * contrast_of_the_mean_image(16)


def test_the_smallest_and_widest_images_can_be_made() -> None:
    assert synthetic.make(spec(classes=2, samples_per_class=2, size=8, channels=1))[0].shape == (4, 8, 8, 1)
    assert synthetic.make(spec(classes=2, samples_per_class=2, size=128, channels=4))[0].shape == (4, 128, 128, 4)


def test_a_set_that_cannot_fit_into_memory_is_refused_with_numbers() -> None:
    with pytest.raises(DataTooLarge, match=r"must fit into 2,147,483,648 bytes, but classes=1000"):
        synthetic.make(spec(classes=1000, samples_per_class=20_000, size=256))


def test_classes_can_be_learnt_but_not_at_a_glance() -> None:
    found = load(spec(samples_per_class=180), None)
    features = found.images[:, ::2, ::2].flatten(1).float().div(255).sub(0.5).numpy()
    labels, test = found.labels.numpy(), found.official_test.numpy()
    model = LogisticRegression(max_iter=30, C=0.01, tol=1e-2).fit(features[~test], labels[~test])
    accuracy = model.score(features[test], labels[test])
    assert 0.3 < accuracy < 0.95  # chance is 0.1


def test_any_stretch_of_the_set_holds_all_classes() -> None:
    labels = load(spec(**SMALL), None).labels
    assert torch.equal(labels[8:12].sort().values, torch.arange(4))
