"""Tiny-ImageNet: its training part alone, 100,000 images of 200 classes."""

from pathlib import Path

from engine.data.card import DataCard
from engine.data.download import Remote
from engine.data.formats.image_folders import (
    class_images,
    count_images,
    folder_of_classes,
    has_class_images,
    subfolders,
)
from engine.data.formats.layout import Contents, Layout
from engine.data.normalisation import IMAGENET


def _files(folder: Path) -> list[Path]:
    words = [folder / "words.txt"] if (folder / "words.txt").is_file() else []
    train = folder / "train"
    return [*words, *(path for name in subfolders(train) for path in class_images(train / name))]


def _read(folder: Path) -> Contents:
    contents = folder_of_classes([(folder / "train", False)], folder)
    if not (folder / "words.txt").is_file():
        return contents
    lines = (line.partition("\t") for line in (folder / "words.txt").read_text("utf-8", errors="replace").splitlines())
    words = {wnid: text.split(",")[0].strip() for wnid, _, text in lines if text}
    fields = {name: getattr(contents, name) for name in contents.__dataclass_fields__}
    return Contents(**{**fields, "class_names": tuple(words.get(name, name) for name in contents.class_names)})


CARD = DataCard(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    shape=(3, 64, 64),
    classes=200,
    images=100_000,
    normalisation=IMAGENET,
    layouts=(
        Layout(
            "tiny-imagenet-200",
            ("tiny-imagenet-200",),
            lambda folder: has_class_images(folder / "train"),
            _files,
            _read,
            count_images(_files),
        ),
    ),
    remotes=(
        Remote(
            "tiny-imagenet-200.zip",
            ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
            "md5:90528d7ca1a48142e341f4ef8d21d0de",
            packed=True,
        ),
    ),
)
