"""What a spec may say about data: the data set, its transform, and how it is spread over clients."""

from typing import Annotated, Literal

from pydantic import Field

from engine.spec.frozen import Frozen

Transform = Literal["none", "a", "b", "c"]
LabelMode = Literal["unified", "independent", "permuted"]
Split = Literal["stratified-80-20", "80-10-10", "authors", "random-75-25", "official"]


class _Dataset(Frozen):
    transform: Transform = Field(
        "none",
        description="Normalisation and training augmentation: those of the pFedAFM/pFedES code (a), "
        "of FedARC's library (b), of CompFL's authors (c); none scales pixels to [0, 1] and augments nothing",
    )


class ImageSet(_Dataset):
    """A published set of labelled images, read from the data folder."""

    name: Literal["mnist", "fmnist", "cifar10", "flowers102", "tiny-imagenet", "pacs", "domainnet"]
    labels: Literal["fine"] = Field("fine", description="Only cifar100 has coarse labels")


class Cifar100(_Dataset):
    """CIFAR-100 with its 100 fine or its 20 coarse labels."""

    name: Literal["cifar100"]
    labels: Literal["fine", "coarse"] = Field("fine", description="100 fine or 20 coarse labels")


class Digits(_Dataset):
    """The 1,797 handwritten digits that scikit-learn ships, resized to 1×32×32: always there."""

    name: Literal["digits"]
    labels: Literal["fine"] = "fine"


class Synthetic(_Dataset):
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


class ImportedSet(_Dataset):
    """A set that was brought in with `fedarena data import`, under the name it was given there."""

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
