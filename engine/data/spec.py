"""What a spec may say about data: the data set, its transform, and how it is spread over clients."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from engine.data.card import SetSpec, Transform
from engine.data.sets import REGISTRY
from engine.data.sets.cifar100 import Cifar100
from engine.data.sets.digits import Digits
from engine.data.sets.synthetic import Synthetic
from engine.spec.frozen import Frozen

__all__ = [
    "Balanced",
    "Cifar100",
    "DatasetSpec",
    "Digits",
    "Dirichlet",
    "DirichletMix",
    "FeatureShift",
    "Iid",
    "ImageSet",
    "ImportedPartition",
    "ImportedSet",
    "LabelMode",
    "PartitionSpec",
    "Pathological",
    "Practical",
    "QuantitySkew",
    "Split",
    "Synthetic",
    "Transform",
]

LabelMode = Literal["unified", "independent", "permuted"]
Split = Literal["stratified-80-20", "80-10-10", "authors", "random-75-25", "official"]

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


class _Partition(Frozen):
    labels: LabelMode = Field(
        "unified",
        description="Global class ids, private ids 0..n-1 of the client's own classes (independent), "
        "or a private permutation of all ids (permuted)",
    )
    split: Split = Field("stratified-80-20", description="How each client's samples become training and test samples")
    seed: int | None = Field(
        None, ge=0, le=2**32 - 1, description="Seed of the partition; null takes the experiment's seed"
    )


class Pathological(_Partition):
    """P1: every client owns exactly k classes, in unequal shares."""

    name: Literal["pathological"]
    classes_per_client: int = Field(2, ge=1, le=1000, description="Classes each client owns (k)")
    low: float = Field(
        0.4, ge=0, le=0.6, description="Lower end of U(low, 0.6), from which the raw shares of a class are drawn"
    )


class Practical(_Partition):
    """P2: Dirichlet(γ) per class over clients, every client holding every class where that is possible."""

    name: Literal["practical"]
    gamma: float = Field(0.5, gt=0, le=1000, description="Concentration γ; smaller is more skewed")


class Dirichlet(_Partition):
    """P3: Dirichlet(β) per class over clients."""

    name: Literal["dirichlet"]
    beta: float = Field(0.1, gt=0, le=1000, description="Concentration β; smaller is more skewed")


class Balanced(_Partition):
    """P4: every client has the same number of samples, split evenly over its classes."""

    name: Literal["balanced"]
    classes_per_client: int = Field(5, ge=1, le=1000, description="Classes each client owns")
    local_size: int = Field(500, ge=1, le=1_000_000, description="Training samples of each client")


class DirichletMix(_Partition):
    """P5: every client draws its own class mix from Dirichlet(α) and has the same number of samples."""

    name: Literal["dirichlet-mix"]
    alpha: float = Field(0.5, gt=0, le=1000, description="Concentration α; smaller is more skewed")
    local_size: int = Field(500, ge=1, le=1_000_000, description="Training samples of each client")


class Iid(_Partition):
    """P6: an equal random share of everything."""

    name: Literal["iid"]


class FeatureShift(_Partition):
    """P7: one client per domain, all classes everywhere, different looks."""

    name: Literal["feature-shift"]


class QuantitySkew(_Partition):
    """The same class mix everywhere, client sizes from Dirichlet(β)."""

    name: Literal["quantity-skew"]
    beta: float = Field(0.5, gt=0, le=1000, description="Concentration β of the client sizes")


class ImportedPartition(_Partition):
    """The clients and their training and test samples exactly as the imported folder holds them."""

    name: Literal["imported"]


PartitionSpec = Annotated[
    Pathological
    | Practical
    | Dirichlet
    | Balanced
    | DirichletMix
    | Iid
    | FeatureShift
    | QuantitySkew
    | ImportedPartition,
    Field(discriminator="name", description="How samples are spread over clients"),
]
