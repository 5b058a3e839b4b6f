from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from engine.data import augment
from engine.kit.rng import generator


def images(count: int = 40, side: int = 32, channels: int = 3) -> Tensor:
    return torch.randint(0, 256, (count, side, side, channels), dtype=torch.uint8, generator=generator(0, "images"))


def prepare(
    batch: Tensor, transform: str, dataset: str, *, training: bool, generator: torch.Generator | None
) -> Tensor:
    drawn = augment.decide(batch, len(batch), transform, dataset, generator) if training and generator else None
    return augment.prepare(batch, transform, dataset, drawn)


def one_by_one(batch: Tensor) -> list[Tensor]:
    """Each image as torchvision's ToTensor gives it."""
    return [image.permute(2, 0, 1).float() / 255 for image in batch]


def normalise(image: Tensor, mean: list[float], deviation: list[float]) -> Tensor:
    return (image - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]


A10 = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
A100 = ([0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762])
HALF = ([0.5] * 3, [0.5] * 3)
C = ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010])


@pytest.mark.parametrize(
    ("transform", "dataset", "expected"),
    [
        ("a", "cifar10", A10),
        ("a", "cifar100", A100),
        ("a", "flowers102", A10),
        ("b", "cifar10", HALF),
        ("c", "cifar10", C),
        ("c", "cifar100", C),
    ],
)
def test_without_training_images_are_only_normalised(
    transform: str, dataset: str, expected: tuple[list[float], list[float]]
) -> None:
    batch = images()
    found = prepare(batch, transform, dataset, training=False, generator=None)
    assert torch.equal(found, torch.stack([normalise(image, *expected) for image in one_by_one(batch)]))


@pytest.mark.parametrize("training", [False, True])
def test_none_scales_and_nothing_else(training: bool) -> None:
    batch = images()
    found = prepare(batch, "none", "cifar10", training=training, generator=None)
    assert torch.equal(found, torch.stack(one_by_one(batch)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dataset", ["mnist", "fmnist", "digits"])
def test_grey_images_are_normalised_with_the_first_channel_and_never_augmented(dataset: str, training: bool) -> None:
    batch = images(side=28, channels=1)
    plain = torch.stack(one_by_one(batch))
    for transform, (mean, deviation) in {"a": (0.5071, 0.2673), "b": (0.5, 0.5), "c": (0.4914, 0.2023)}.items():
        found = prepare(batch, transform, dataset, training=training, generator=None)
        assert torch.equal(found, (plain - mean) / deviation)


def test_images_with_other_numbers_of_channels_take_the_mean_constants() -> None:
    mean, deviation = augment.constants("a", "synthetic", 4)
    assert mean == pytest.approx([sum(A10[0]) / 3] * 4)
    assert deviation == pytest.approx([sum(A10[1]) / 3] * 4)
    assert prepare(images(channels=4), "a", "synthetic", training=False, generator=None).shape == (40, 4, 32, 32)


def reference_a(batch: Tensor, draws: torch.Generator) -> Tensor:
    count, height, width, _ = batch.shape
    flips = augment.draw_flips(count, draws)
    boxes = augment.draw_erasing(count, height, width, draws)
    down, right = augment.draw_crops(count, draws)
    made = []
    for k, image in enumerate(one_by_one(batch)):
        value = normalise(image, *A10)
        if flips[k]:
            value = value.flip(2)
        top, left, tall, wide = (int(part[k]) for part in boxes)
        value = value.clone()
        value[:, top : top + tall, left : left + wide] = 0
        padded = functional.pad(value, (4, 4, 4, 4))
        made.append(padded[:, down[k] : down[k] + height, right[k] : right[k] + width])
    return torch.stack(made)


def reference_c(batch: Tensor, draws: torch.Generator) -> Tensor:
    count, height, width, _ = batch.shape
    down, right = augment.draw_crops(count, draws)
    flips = augment.draw_flips(count, draws)
    made = []
    for k, image in enumerate(one_by_one(batch)):
        padded = functional.pad(image, (4, 4, 4, 4))
        value = padded[:, down[k] : down[k] + height, right[k] : right[k] + width]
        made.append(normalise(value.flip(2) if flips[k] else value, *C))
    return torch.stack(made)


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize(("transform", "reference"), [("a", reference_a), ("c", reference_c)])
def test_training_batches_equal_the_steps_done_image_by_image(
    transform: str, reference: Callable[[Tensor, torch.Generator], Tensor], side: int
) -> None:
    batch = images(60, side)
    found = prepare(batch, transform, "cifar10", training=True, generator=generator(3, "augment"))
    assert torch.equal(found, reference(batch, generator(3, "augment")))


def test_images_that_are_not_square_are_augmented_as_well() -> None:
    batch = images(30)[:, :, :20].contiguous()
    found = prepare(batch, "a", "cifar10", training=True, generator=generator(3, "augment"))
    assert torch.equal(found, reference_a(batch, generator(3, "augment")))


def test_domainnet_crops_stretches_and_flips_in_training() -> None:
    batch = images(30, 64)
    found = prepare(batch, "b", "domainnet", training=True, generator=generator(4, "augment"))
    draws = generator(4, "augment")
    boxes = augment.draw_resized_crops(30, 64, 64, draws)
    flips = augment.draw_flips(30, draws)
    made = []
    for k, image in enumerate(one_by_one(batch)):
        top, left, tall, wide = (int(part[k]) for part in boxes)
        part = image[None, :, top : top + tall, left : left + wide]
        value = functional.interpolate(part, size=(64, 64), mode="bilinear", align_corners=False)[0]
        made.append(normalise(value.flip(2) if flips[k] else value, *HALF))
    torch.testing.assert_close(found, torch.stack(made), rtol=0, atol=1e-5)


def test_b_augments_no_other_set() -> None:
    batch = images()
    trained = prepare(batch, "b", "cifar10", training=True, generator=generator(0, "augment"))
    assert torch.equal(trained, prepare(batch, "b", "cifar10", training=False, generator=None))


@pytest.mark.parametrize("transform", ["none", "a", "b", "c"])
@pytest.mark.parametrize("training", [False, True])
def test_batches_are_float_and_channels_last(transform: str, training: bool) -> None:
    found = prepare(images(), transform, "cifar10", training=training, generator=generator(0, "augment"))
    assert found.dtype == torch.float32
    assert found.shape == (40, 3, 32, 32)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("transform", "dataset"), [("a", "cifar10"), ("c", "cifar10"), ("b", "domainnet")])
def test_the_generator_alone_decides(transform: str, dataset: str) -> None:
    def made(seed: int) -> Tensor:
        return prepare(images(), transform, dataset, training=True, generator=generator(seed, "augment"))

    torch.manual_seed(1)
    first = made(5)
    torch.manual_seed(2)
    assert torch.equal(first, made(5))
    assert not torch.equal(first, made(6))


def test_the_batch_itself_is_never_changed() -> None:
    batch = images()
    before = batch.clone()
    for transform in ("none", "a", "b", "c"):
        prepare(batch, transform, "cifar10", training=True, generator=generator(0, "augment"))
    assert torch.equal(batch, before)


def test_nothing_is_drawn_where_nothing_is_random() -> None:
    for transform, dataset, channels in (("none", "cifar10", 3), ("b", "cifar10", 3), ("a", "mnist", 1)):
        draws = generator(0, "augment")
        assert augment.decide(images(channels=channels), 40, transform, dataset, draws) is None
        assert torch.equal(draws.get_state(), generator(0, "augment").get_state())


def test_constants_made_in_one_thread_are_not_used_in_another() -> None:
    """On a GPU every thread has a stream of its own, and would read them before they are written."""

    def constants() -> tuple[Tensor, Tensor]:
        return augment._local.tiled("a", "cifar10", 3, 64, torch.device("cpu"))

    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(constants).result()[0] is not constants()[0]
    assert constants()[0] is constants()[0]


def test_an_imported_float_set_passes_unchanged() -> None:
    batch = torch.randn(5, 8, 8, 3, generator=generator(0, "floats"))
    found = prepare(batch, "a", "imported", training=True, generator=None)
    assert torch.equal(found, batch.permute(0, 3, 1, 2))


def test_a_batch_of_one_works() -> None:
    assert prepare(images(1), "a", "cifar10", training=True, generator=generator(0, "augment")).shape == (1, 3, 32, 32)


def test_erased_rectangles_have_the_area_and_ratio_they_should() -> None:
    boxes = augment.draw_erasing(20_000, 32, 32, generator(0, "boxes"))
    chosen = boxes.height > 0
    assert 0.48 < chosen.float().mean() < 0.52
    tall, wide = boxes.height[chosen].float(), boxes.width[chosen].float()
    area, ratio = tall * wide / 1024, tall / wide
    # sides are whole pixels, so the limits are met up to rounding
    assert (area.min() > 0.03) & (area.max() < 0.22)
    assert (ratio.min() > 0.4) & (ratio.max() < 2.5)
    assert abs(float(area.mean()) - 0.12) < 0.005
    assert abs(float(ratio.log().mean())) < 0.02
    assert int((boxes.top + boxes.height).max()) == 32
    assert int(boxes.top[chosen].min()) == 0


def test_crops_take_every_offset_equally_often() -> None:
    down, right = augment.draw_crops(18_000, generator(0, "crops"))
    for offset in (down, right):
        assert offset.bincount().tolist() == pytest.approx([2000] * 9, rel=0.1)


def test_resized_crops_stay_inside_the_image() -> None:
    boxes = augment.draw_resized_crops(5000, 64, 64, generator(0, "boxes"))
    area = boxes.height * boxes.width / 64**2
    assert int((boxes.top + boxes.height).max()) <= 64
    assert int((boxes.left + boxes.width).max()) <= 64
    assert float(area.min()) > 0.72
