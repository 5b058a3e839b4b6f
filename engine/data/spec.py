"""What a spec may say about data: the data set, its transform, and how it is spread over clients."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from engine.data.card import SetSpec, Transform
from engine.data.partitions import PartitionSpec
from engine.data.sets import REGISTRY
from engine.data.sets.cifar100 import Cifar100
from engine.data.sets.digits import Digits
from engine.data.sets.synthetic import Synthetic

__all__ = ["Cifar100", "DatasetSpec", "Digits", "ImageSet", "ImportedSet", "PartitionSpec", "Synthetic", "Transform"]

if TYPE_CHECKING:
    SetName = str
else:
    SetName = Literal[tuple(name for name, card in REGISTRY.items() if card.spec is None)]


class ImageSet(SetSpec):
    """A published set of labelled images, read from the data folder."""

    name: SetName
    labels: Literal["fine"] = Field("fine", description="Only cifar100 has coarse labels")


class ImportedSet(SetSpec):
    """A set that was imported from a folder, under the name it was given then."""

    name: Literal["imported"]
    labels: Literal["fine"] = "fine"
    set: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", description="The name it was imported under")


DatasetSpec = Annotated[
    ImageSet | Cifar100 | Digits | Synthetic | ImportedSet, Field(discriminator="name", description="The data set")
]
