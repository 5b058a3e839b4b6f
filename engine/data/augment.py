"""Pixels to network inputs: the transforms of the papers' code, for a whole batch at once.

| transform | normalisation | training only |
|---|---|---|
| none | x / 255 | |
| a (pFedAFM, pFedES) | that of the data set's card | flip, erasing, crop with padding 4: in this order, after it |
| b (FedARC's library) | mean 0.5, deviation 0.5 | where its card says so: random resized crop and flip |
| c (CompFL's authors) | CIFAR-10 statistics | crop with padding 4, flip: in this order, before it |

Padding and erasing write zeros: after normalisation in a (the mean colour), before it in c (black). A crop has the size
of the image itself. Grey images are normalised with the constants of the first channel and never augmented: a mirrored
digit is another sign, and the code of the papers does not augment them either. Images with two or four channels take
the mean of the three constants. An imported float set is already normalised and passes unchanged.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from engine.data.imported import IMPORTED
from engine.data.normalisation import CIFAR10, HALF, IMAGENET, Constants
from engine.data.sets import REGISTRY

_OF_ALL_SETS: Mapping[str, Constants] = {"b": HALF, "c": CIFAR10}

PADDING = 4
FLIP = 0.5
ERASE = 0.5  # torchvision's default, which the authors' code does not change
ERASE_AREA = (0.04, 0.2)
ERASE_RATIO = (0.5, 2.0)
RESIZED_AREA = (0.75, 1.0)
RESIZED_RATIO = (3 / 4, 4 / 3)
_TRIES = 10  # rectangles drawn until one fits, as in torchvision


def decide(images: Tensor, count: int, transform: str, dataset: str, generator: torch.Generator) -> Tensor | None:
    """The random decisions for a training batch of so many of these images: (k, count) integers on the CPU.

    None: nothing is random.
    """
    augmentation = _augmentation(images, transform, dataset)
    if augmentation is None:
        return None
    _, height, width, _ = images.shape
    return torch.stack([part.long() for part in augmentation.decide(count, height, width, generator)])


def prepare(batch: Tensor, transform: str, dataset: str, decisions: Tensor | None = None) -> Tensor:
    """(B, H, W, C) uint8 to (B, C, H, W) float32 in channels_last memory; every sample has its own random decisions.

    `decisions` are those of `decide`, on the batch's device; None: the batch is not augmented.
    """
    if batch.is_floating_point():
        return batch.permute(0, 3, 1, 2).to(torch.float32)
    augmentation = None if decisions is None else _augmentation(batch, transform, dataset)
    if decisions is None or augmentation is None:
        return _normalised(batch, transform, dataset).permute(0, 3, 1, 2)
    return augmentation.apply(batch, dataset, *decisions.unbind()).permute(0, 3, 1, 2)


def constants(transform: str, dataset: str, channels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel."""
    means, deviations = _OF_ALL_SETS.get(transform) or _of_the_set(dataset)
    if channels == 1:
        return [means[0]], [deviations[0]]
    if channels == 3:
        return list(means), list(deviations)
    return [sum(means) / 3] * channels, [sum(deviations) / 3] * channels


def _of_the_set(name: str) -> Constants:
    """Nobody declared what fits the images of a folder; KeyError for a set without a card."""
    return IMAGENET if name == IMPORTED else REGISTRY[name].normalisation


def _normalised(batch: Tensor, transform: str, dataset: str) -> Tensor:
    """((x / 255) - mean) / deviation in the order torchvision computes it, so the values agree to the last bit."""
    values = batch.to(torch.float32).div_(255)
    return values if transform == "none" else _standardised(values, transform, dataset)


def _standardised(values: Tensor, transform: str, dataset: str) -> Tensor:
    # constants as long as an image: along a last axis of three the same operation takes four times as long
    constants_of = _local.tiled
    mean, deviation = constants_of(
        transform, dataset, values.shape[3], values.shape[1] * values.shape[2], values.device
    )
    values.view(len(values), -1).sub_(mean).div_(deviation)
    return values


def _tiled(transform: str, dataset: str, channels: int, pixels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    mean, deviation = constants(transform, dataset, channels)
    return torch.tensor(mean, device=device).repeat(pixels), torch.tensor(deviation, device=device).repeat(pixels)


class _Local(threading.local):
    """Each thread makes its own constants: on a GPU it has a stream of its own, which waits for no other one."""

    def __init__(self) -> None:
        self.tiled = lru_cache(maxsize=16)(_tiled)


_local = _Local()


class _Augmentation(NamedTuple):
    """What is random: first drawn on the CPU, then done to a batch on its device."""

    decide: Callable[[int, int, int, torch.Generator], Sequence[Tensor]]
    apply: Callable[..., Tensor]


def _augmentation(images: Tensor, transform: str, dataset: str) -> _Augmentation | None:
    if images.is_floating_point() or images.shape[3] == 1:
        return None
    if transform == "a":
        return _Augmentation(_decide_a, _augment_a)
    if transform == "b" and dataset != IMPORTED and REGISTRY[dataset].resized_crops:
        return _Augmentation(_decide_resized, _augment_resized)
    if transform == "c":
        return _Augmentation(_decide_c, _augment_c)
    return None


def _decide_a(count: int, height: int, width: int, generator: torch.Generator) -> Sequence[Tensor]:
    return (
        draw_flips(count, generator),
        *draw_erasing(count, height, width, generator),
        *draw_crops(count, generator),
    )


def _augment_a(
    batch: Tensor,
    dataset: str,
    flip: Tensor,
    top: Tensor,
    left: Tensor,
    tall: Tensor,
    wide: Tensor,
    down: Tensor,
    right: Tensor,
) -> Tensor:
    """Flip, erase, crop. Erasing moves behind the crop, where the same pixels are blanked together with the padding."""
    count, height, width, channels = batch.shape
    values = _normalised(_cropped(batch, flip, down, right), "a", dataset)
    row = _places(height, batch) + down[:, None] - PADDING  # (B, H), places in the flipped image
    column = _places(width, batch) + right[:, None] - PADDING  # (B, W)
    kept_row, kept_column = _within(row, 0, height), _within(column, 0, width, channels)
    hit_row = _within(row, top[:, None], tall[:, None])
    hit_column = _within(column, left[:, None], wide[:, None], channels)
    lines = values.view(count, height, width * channels)
    lines.mul_(kept_row[:, :, None]).mul_(kept_column[:, None, :])
    lines.addcmul_(lines, hit_row[:, :, None] * hit_column[:, None, :], value=-1)  # v - v·1 = 0
    return values


def _places(size: int, batch: Tensor) -> Tensor:
    return torch.arange(size, device=batch.device)


def _within(place: Tensor, start: int | Tensor, length: int | Tensor, repeat: int = 1) -> Tensor:
    """1 where the place lies in [start, start + length), else 0; floats, because products of booleans are slow."""
    return ((place >= start) & (place < start + length)).to(torch.float32).repeat_interleave(repeat, dim=1)


def _decide_c(count: int, _height: int, _width: int, generator: torch.Generator) -> Sequence[Tensor]:
    down, right = draw_crops(count, generator)
    return draw_flips(count, generator), down, right


def _augment_c(batch: Tensor, dataset: str, flip: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Crop, flip, then normalise: the padding is black before normalisation."""
    # flipping the crop at offset r is cropping the flipped image at 2·padding - r
    right = torch.where(flip > 0, 2 * PADDING - right, right)
    return _normalised(_cropped(batch, flip, down, right), "c", dataset)


def _cropped(batch: Tensor, flip: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Every image, mirrored where `flip` says so, padded with zeros and cut at its own offsets."""
    count, height, width, channels = batch.shape
    inner = slice(PADDING, -PADDING)
    padded = batch.new_zeros(2, count, height + 2 * PADDING, width + 2 * PADDING, channels)
    padded[0, :, inner, inner] = batch
    padded[1, :, inner, inner] = batch.flip(2)
    side, image, row, column, _ = padded.stride()
    offsets = 2 * PADDING + 1
    windows = padded.as_strided(
        (2, count, offsets, offsets, height, width * channels), (side, image, row, column, row, 1)
    )
    return windows[flip, _places(count, batch), down, right].view(batch.shape)


def _decide_resized(count: int, height: int, width: int, generator: torch.Generator) -> Sequence[Tensor]:
    box = draw_resized_crops(count, height, width, generator)
    return draw_flips(count, generator), *box


def _augment_resized(
    batch: Tensor, dataset: str, flip: Tensor, top: Tensor, left: Tensor, tall: Tensor, wide: Tensor
) -> Tensor:
    """Random resized crop, then flip.

    The library crops each file once, when it writes its folder. Here the crop is taken from the image of 64×64, anew in
    every epoch.
    """
    _, height, width, _ = batch.shape
    low_row, high_row, down = _stretch(top, tall, height)
    low_column, high_column, right = _stretch(left, wide, width)
    mirror = flip[:, None] > 0
    low_column, high_column, right = (
        torch.where(mirror, part.flip(1), part) for part in (low_column, high_column, right)
    )
    down, right = down[:, :, None, None], right[:, None, :, None]
    values = batch.to(torch.float32)
    upper = _gather(values, low_row, low_column).lerp_(_gather(values, low_row, high_column), right)
    lower = _gather(values, high_row, low_column).lerp_(_gather(values, high_row, high_column), right)
    return _standardised(upper.lerp_(lower, down).div_(255), "b", dataset)


def _stretch(start: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each output place the two source places and the weight of the second: bilinear, half-pixel centres."""
    place = (_places(size, start) + 0.5) * (length[:, None] / size) - 0.5  # (B, size)
    place = torch.minimum(place.clamp(min=0), length[:, None] - 1.0)
    low = place.floor()
    high = torch.minimum(low + 1, length[:, None] - 1.0)
    return (start[:, None] + low).long(), (start[:, None] + high).long(), place - low


def _gather(values: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Pixels (B, H, W, C) at the given rows (B, H) and columns (B, W)."""
    count, height, width, channels = values.shape
    start = _places(count, values)[:, None] * (height * width)
    place = (start + row * width)[:, :, None] + column[:, None, :]
    return values.reshape(-1, channels).index_select(0, place.view(-1)).view(values.shape)


# --- the random decisions: always drawn on the CPU, one call per kind, so a batch has the same ones on every device ---


class Boxes(NamedTuple):
    """One rectangle per sample, (B,) each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def draw_flips(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator) < FLIP


def draw_crops(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Offsets down and right into the padded image, 0..2·padding."""
    down, right = torch.randint(0, 2 * PADDING + 1, (2, count), generator=generator)
    return down, right


def draw_erasing(count: int, height: int, width: int, generator: torch.Generator) -> Boxes:
    """The rectangle to blank; of height 0 where the coin says no, or where no rectangle fits."""
    chosen = torch.rand(count, generator=generator) < ERASE
    tall, wide, fits = _draw_sizes(count, height, width, ERASE_AREA, ERASE_RATIO, strict=True, generator=generator)
    tall, wide = torch.where(chosen & fits, tall, 0), torch.where(chosen & fits, wide, 0)
    return _placed(tall, wide, height, width, generator)


def draw_resized_crops(count: int, height: int, width: int, generator: torch.Generator) -> Boxes:
    """The rectangle to stretch; the whole image where none of the tries fits."""
    wide, tall, fits = _draw_sizes(count, width, height, RESIZED_AREA, RESIZED_RATIO, strict=False, generator=generator)
    return _placed(torch.where(fits, tall, height), torch.where(fits, wide, width), height, width, generator)


def _draw_sizes(
    count: int,
    first: int,
    second: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    *,
    strict: bool,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Lengths along two axes of the first try that fits: √(area·ratio) and √(area/ratio), the ratio log-uniform."""
    surface = first * second * torch.empty(count, _TRIES).uniform_(*area, generator=generator)
    low, high = torch.tensor(ratio).log().tolist()
    proportion = torch.empty(count, _TRIES).uniform_(low, high, generator=generator).exp_()
    along = (surface * proportion).sqrt_().round_().long()
    across = (surface / proportion).sqrt_().round_().long()
    fits = (along < first) & (across < second) if strict else (along <= first) & (across <= second)
    fits &= (along > 0) & (across > 0)
    best = fits.to(torch.uint8).argmax(dim=1, keepdim=True)  # the first of the largest
    return along.gather(1, best)[:, 0], across.gather(1, best)[:, 0], fits.any(dim=1)


def _placed(tall: Tensor, wide: Tensor, height: int, width: int, generator: torch.Generator) -> Boxes:
    """Each rectangle at a uniformly drawn place."""
    draw = torch.rand(2, len(tall), generator=generator, dtype=torch.float64)
    top = (draw[0] * (height - tall + 1)).long()
    left = (draw[1] * (width - wide + 1)).long()
    return Boxes(top, left, tall, wide)
