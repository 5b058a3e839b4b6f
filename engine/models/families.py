"""Families of architectures: which networks a federation is made of, and which client owns which."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch

from engine.kit import rng
from engine.models.registry import ARCHITECTURES, HTFE_8, HTFE_8_HTC_4, HTFE_WIDTH, RES34_HTC_4, with_head


@dataclass(frozen=True)
class Family:
    """Architectures in client order, and the feature width they share (None: every one keeps its own)."""

    name: str
    title: str
    members: tuple[str, ...]
    feature_dim: int | None


_DEEP_RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
_HTFE_5 = ("googlenet", "mobilenetv2", "resnet18", "resnet34", "resnet50")
_HTFE_9 = ("resnet4", "resnet6", "resnet8", "resnet10", *_DEEP_RESNETS)


def _families() -> Iterator[Family]:
    yield Family("cnn-1-5", "CNN-1 … CNN-5", ("cnn-1", "cnn-2", "cnn-3", "cnn-4", "cnn-5"), 500)
    for name, title, members in (
        ("htfe-img-2", "HtFE-img-2", ("fedavgcnn", "resnet18")),
        ("htfe-img-3", "HtFE-img-3", ("resnet10", "resnet18", "resnet34")),
        ("htfe-img-5", "HtFE-img-5", _HTFE_5),
        ("htfe-img-8", "HtFE-img-8", HTFE_8),
        ("htfe-img-9", "HtFE-img-9", _HTFE_9),
        ("res34-htc-img-4", "Res34-HtC-img-4", tuple(with_head(*pair) for pair in RES34_HTC_4)),
        ("htfe-img-8-htc-img-4", "HtFE-img-8-HtC-img-4", tuple(with_head(*pair) for pair in HTFE_8_HTC_4)),
        ("htm-img-10", "HtM-img-10", (*HTFE_8, "vit-b-16", "vit-b-32")),
    ):
        yield Family(name, title, members, HTFE_WIDTH)
    # CompFL numbers its experts from the smallest to the largest extractor, and each keeps its own feature width
    for name, title, members in (
        ("compfl-2", "CompFL: CNN, ResNet-18", ("compfl-cnn", "resnet18-cifar")),
        ("compfl-3", "CompFL: CNN, ResNet-9, ResNet-18", ("compfl-cnn", "resnet9-cifar", "resnet18-cifar")),
        ("compfl-fmnist-2", "CompFL on F-MNIST: small, large", ("fmnist-small", "fmnist-large")),
    ):
        yield Family(name, title, members, None)
    yield Family("tiny-3", "Three tiny networks, for tests", ("tiny-mlp", "tiny-cnn", "tiny-bn"), 16)
    for architecture in ARCHITECTURES.values():
        yield Family(architecture.name, architecture.title, (architecture.name,), architecture.feature_dim)


FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _families()})


Assignment = Literal["modulo", "blocks", "uniform"]


def assign(family: Family, clients: int, how: Assignment, seed: int) -> list[str]:
    """The architecture of every client: id modulo the family's size, equal blocks of ids in family order, or drawn."""
    if clients < 1:
        raise ValueError(f"a federation needs at least 1 client, but got {clients}")
    size = len(family.members)
    if how == "modulo":
        return [family.members[client % size] for client in range(clients)]
    if how == "blocks":
        return [family.members[client * size // clients] for client in range(clients)]
    drawn = torch.randint(size, (clients,), generator=rng.generator(seed, "architectures"))
    return [family.members[index] for index in drawn.tolist()]
