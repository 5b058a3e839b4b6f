"""What is declared about a data set before anything is read, and what every spec of one may say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from engine.data.dataset import Dataset
from engine.data.download import Remote
from engine.data.errors import Remedy
from engine.data.formats.layout import Layout
from engine.data.normalisation import Constants
from engine.spec.frozen import Frozen

Transform = Literal["none", "a", "b", "c"]


class SetSpec(Frozen):
    """The base of what a spec says about its data set."""

    transform: Transform = Field(
        "none",
        description="Normalisation and training augmentation: those of the pFedAFM/pFedES code (a), "
        "of FedARC's library (b), of CompFL's authors (c); none scales pixels to [0, 1] and augments nothing",
    )


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """One data set: read from the layouts in which it lies on disk, or made on the spot."""

    name: str  # in a spec
    title: str
    shape: tuple[int, int, int]  # (C, H, W)
    classes: int
    images: int
    normalisation: Constants  # of transform a
    resized_crops: bool = False  # transform b augments it
    coarse_classes: int | None = None  # where it has labels of two kinds

    spec: type[SetSpec] | None = None  # its own, where a spec can say more than the name
    layouts: tuple[Layout, ...] = ()
    system_folders: tuple[Path, ...] = ()  # where a package of the system puts it
    make: Callable[[Any], Dataset] | None = None  # from its own spec, for a set without files

    remotes: tuple[Remote, ...] = ()  # the publisher's own addresses and checksums
    page: str = ""  # the publisher's, where it has no direct address
    file_sums: Mapping[str, str] = field(default_factory=dict)  # published sums of single files, by file name
    content_sum: str | None = None
    """SHA-256 of images, labels and test marks as decoded: the same for every layout and compression."""

    @property
    def bundled(self) -> bool:
        """It is there without any file."""
        return self.make is not None

    @property
    def remedy(self) -> Remedy:
        """How to get it where it is missing."""
        return Remedy(self.name, "fetch" if self.remotes else "import", self.page)
