"""CIFAR-100: 60,000 small photographs of 100 classes, which make up 20 coarse ones (Krizhevsky)."""

from typing import Literal

from pydantic import Field

from engine.data.card import DataCard, SetSpec
from engine.data.download import Remote
from engine.data.formats.cifar import PUBLISHER, CifarForm, cifar_layouts
from engine.data.normalisation import CIFAR100

FORM = CifarForm(
    train=("train",),
    test="test",
    names="meta",
    label_bytes=2,
    keys=("coarse_labels", "fine_labels"),
    name_keys=("coarse_label_names", "fine_label_names"),
    classes=(20, 100),
)


class Cifar100(SetSpec):
    """CIFAR-100 with its 100 fine or its 20 coarse labels."""

    name: Literal["cifar100"]
    labels: Literal["fine", "coarse"] = Field("fine", description="100 fine or 20 coarse labels")


CARD = DataCard(
    name="cifar100",
    title="CIFAR-100",
    shape=(3, 32, 32),
    classes=100,
    coarse_classes=20,
    images=60_000,
    normalisation=CIFAR100,
    spec=Cifar100,
    layouts=cifar_layouts(
        FORM, "cifar-100-binary", "cifar-100-python", ("coarse_label_names.txt", "fine_label_names.txt")
    ),
    remotes=(
        Remote(
            "cifar-100-python.tar.gz",
            (f"{PUBLISHER}/cifar-100-python.tar.gz",),
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
            packed=True,
        ),
    ),
    file_sums={
        "train": "md5:16019d7e3df5f24257cddd939b257f8d",
        "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
)
