"""The handwritten digits of scikit-learn: there without any download."""

from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from engine.data.card import DataCard, SetSpec
from engine.data.dataset import Dataset
from engine.data.normalisation import CIFAR100


class Digits(SetSpec):
    """The 1,797 handwritten digits that scikit-learn ships, resized to 1×32×32: always there."""

    name: Literal["digits"]
    labels: Literal["fine"] = "fine"


def _dataset(spec: Digits) -> Dataset:
    from sklearn.datasets import load_digits  # imported here: it takes a second

    bunch = load_digits()
    grey = torch.from_numpy(np.asarray(bunch.images, np.float32))[:, None] * (255 / 16)  # (n, 1, 8, 8), 0..16
    large = functional.interpolate(grey, size=(32, 32), mode="bilinear", align_corners=False)
    images = large.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    labels = torch.from_numpy(np.asarray(bunch.target, np.int64))
    return Dataset(
        spec.name, images, labels, 10, torch.zeros(len(labels), dtype=torch.bool), class_names=tuple("0123456789")
    )


CARD = DataCard(
    name="digits",
    title="scikit-learn digits",
    shape=(1, 32, 32),
    classes=10,
    images=1_797,
    normalisation=CIFAR100,  # as for MNIST
    spec=Digits,
    make=_dataset,
)
