"""Class-conditional images made from a seed: smooth textures, shifted, dimmed, covered and noisy."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from engine.data.card import DataCard, SetSpec
from engine.data.dataset import Dataset
from engine.data.errors import DataTooLarge
from engine.data.normalisation import IMAGENET
from engine.kit.rng import numpy_generator

MOST_BYTES = 2 * 2**30
"""Largest set that is made: it lives in memory, not in a file."""

OWN, SHARED = 0.6, 0.8  # weight of a class's own texture and of those it has in common with other classes
COMMON = 12  # textures all classes draw from
CLUTTER, CLUTTERS = 0.8, 64  # weight and number of textures that mean nothing, one of them laid over every image
CHUNK_PIXELS = 1 << 22  # values worked on at a time: large enough to be fast, small enough to stay in the cache


class Synthetic(SetSpec):
    """Class-conditional images made from a seed: learnable, but not at a glance."""

    name: Literal["synthetic"]
    labels: Literal["fine"] = "fine"
    classes: int = Field(10, ge=2, le=1000, description="Number of classes")
    samples_per_class: int = Field(600, ge=2, le=20_000, description="Images of each class, test part included")
    channels: int = Field(3, ge=1, le=4, description="Colour channels")
    size: int = Field(32, ge=8, le=256, description="Height and width in pixels")
    patterns_per_class: int = Field(3, ge=1, le=64, description="Different looks one class can have")
    noise: float = Field(
        0.35, ge=0, le=4, description="Standard deviation of the pixel noise, in units of the contrast"
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the images themselves, apart from the experiment's")


def make(spec: Synthetic) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """Images (n, H, W, C), labels (n,) and the test part (n,): every sixth image of each class, at least one."""
    count = spec.classes * spec.samples_per_class
    looks = spec.classes * spec.patterns_per_class
    size, channels = spec.size, spec.channels
    needed = size * size * channels * (count + 4 * looks)
    if needed > MOST_BYTES:
        raise DataTooLarge(
            f"a synthetic set must fit into {MOST_BYTES:,} bytes, but classes={spec.classes}, samples_per_class="
            f"{spec.samples_per_class}, patterns_per_class={spec.patterns_per_class}, channels={channels}, size={size} "
            f"needs {needed:,}; make one of them smaller"
        )
    textures = _textures(spec)  # (looks, H, W, C), unit variance
    clutter = CLUTTER * _smooth(numpy_generator(spec.seed, "clutter"), CLUTTERS, size, channels)
    # the classes take turns, so that any stretch of the set holds all of them
    labels = np.arange(count, dtype=np.int64) % spec.classes
    images = np.empty((count, size, size, channels), np.uint8)
    step = max(1, CHUNK_PIXELS // (size * size * channels))
    for number, start in enumerate(range(0, count, step)):
        part = labels[start : start + step]
        images[start : start + step] = _draw(spec, textures, clutter, part, number)
    turn = np.arange(count) // spec.classes
    return images, labels, turn >= spec.samples_per_class - max(1, spec.samples_per_class // 6)


def _textures(spec: Synthetic) -> NDArray[np.float32]:
    rng = numpy_generator(spec.seed, "textures")
    looks = spec.classes * spec.patterns_per_class
    own = _smooth(rng, looks, spec.size, spec.channels)
    common = _smooth(rng, COMMON, spec.size, spec.channels)
    # two common textures for each look, so that one local detail never gives the class away
    first = rng.integers(COMMON, size=looks)
    second = (first + rng.integers(1, COMMON, size=looks)) % COMMON
    mixed = OWN * own + SHARED * np.float32(0.5**0.5) * (common[first] + common[second])
    return _unit(mixed)


def _smooth(rng: np.random.Generator, count: int, size: int, channels: int) -> NDArray[np.float32]:
    """Random periodic textures of low frequencies (count, H, W, C)."""
    noise = rng.standard_normal((count, channels, size, size), dtype=np.float32)
    across = np.fft.rfftfreq(size, 1 / size)
    along = np.fft.fftfreq(size, 1 / size)
    radius = np.sqrt(along[:, None] ** 2 + across[None, :] ** 2)
    keep = np.exp(-((radius / 3.0) ** 2)) * (radius > 0)
    waves = np.fft.irfft2(np.fft.rfft2(noise) * keep, s=(size, size))
    return _unit(np.ascontiguousarray(waves.transpose(0, 2, 3, 1)).astype(np.float32))


def _unit(textures: NDArray[np.float32]) -> NDArray[np.float32]:
    spread = np.sqrt(np.mean(np.square(textures), axis=(1, 2, 3), keepdims=True))
    unit: NDArray[np.float32] = (textures / spread).astype(np.float32)
    return unit


def _draw(
    spec: Synthetic,
    textures: NDArray[np.float32],
    clutter: NDArray[np.float32],
    labels: NDArray[np.int64],
    chunk: int,
) -> NDArray[np.uint8]:
    rng = numpy_generator(spec.seed, "images", chunk)
    count, size = len(labels), spec.size
    look = labels * spec.patterns_per_class + rng.integers(spec.patterns_per_class, size=count)
    reach = max(1, size // 8)
    place = np.arange(size)
    values = _moved(textures, look, rng.integers(-reach, reach + 1, size=(2, count)))
    values += _moved(clutter, rng.integers(CLUTTERS, size=count), rng.integers(size, size=(2, count)))
    # a grey rectangle of up to half the height and width hides a part
    extent = rng.integers(0, size // 2 + 1, size=(2, count, 1))
    corner = rng.integers(0, size, size=(2, count, 1))
    hidden = ((place >= corner[0]) & (place < corner[0] + extent[0]))[:, :, None] & (
        (place >= corner[1]) & (place < corner[1] + extent[1])
    )[:, None, :]
    values[hidden] = 0
    if spec.noise:
        values += np.float32(spec.noise) * rng.standard_normal(values.shape, dtype=np.float32)
    contrast = rng.uniform(18, 48, size=(count, 1, 1, 1)).astype(np.float32)
    brightness = rng.uniform(100, 155, size=(count, 1, 1, 1)).astype(np.float32)
    values *= contrast
    values += brightness
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def _moved(textures: NDArray[np.float32], which: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.float32]:
    """textures[which], each rolled by its own shift (2, n) down and to the right."""
    place = np.arange(textures.shape[1])
    row, column = (place - shift[:, :, None]) % len(place)  # (n, H), (n, W)
    moved: NDArray[np.float32] = textures[which[:, None, None], row[:, :, None], column[:, None, :]]
    return moved


def _dataset(spec: Synthetic) -> Dataset:
    images, labels, test = make(spec)
    return Dataset(
        spec.name,
        torch.from_numpy(images),
        torch.from_numpy(labels),
        spec.classes,
        torch.from_numpy(test),
        class_names=tuple(f"class {number}" for number in range(spec.classes)),
    )


CARD = DataCard(
    name="synthetic",
    title="Synthetic textures",
    shape=(3, 32, 32),
    classes=10,
    images=6_000,
    normalisation=IMAGENET,
    spec=Synthetic,
    make=_dataset,
)
