"""Sets brought in from PFLlib or HtFLlib: one file with the images and the clients of each."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from engine.data import files
from engine.data.dataset import Dataset, tensor
from engine.data.formats.client_folders import ClientFolder

IMPORTED = "imported"
"""The name in a spec, and of the folder in which they lie."""


def imported_path(name: str, root: Path) -> Path:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise ValueError(
            "the name of an imported set must be 1 to 64 of a-z, 0-9 and '-', beginning with a letter or digit, "
            f"but got {name!r}"
        )
    return root / IMPORTED / f"{name}.safetensors"


def imported_files(root: Path | None) -> dict[str, Path]:
    folder = None if root is None else root / IMPORTED
    if folder is None or not folder.is_dir():
        return {}
    return {path.stem: path for path in folder.glob("*.safetensors") if path.is_file() and not path.is_symlink()}


def store_imported(name: str, folder: ClientFolder, root: Path) -> Path:
    """Keep an imported set and its clients as one file in the data folder."""
    path = imported_path(name, root)
    about = {"classes": folder.classes, "ranges": folder.ranges}

    def fill(out: NDArray[Any]) -> None:
        start = 0
        for part in folder.parts:
            out[start : start + len(part)] = part
            start += len(part)

    shape = (len(folder.labels), *folder.parts[0].shape[1:])
    large = ("images", shape, folder.kind, fill)
    files.write_tensors(path, {"labels": folder.labels}, {"about": json.dumps(about)}, large=large)
    return path


def load_imported(path: Path) -> Dataset:
    tensors, notes = files.read_tensors(path)
    about = json.loads(notes["about"])
    shares = tuple((torch.arange(train, test), torch.arange(test, end)) for train, test, end in about["ranges"])
    labels = tensor(tensors["labels"])
    return Dataset(
        IMPORTED,
        tensor(tensors["images"]),
        labels,
        int(about["classes"]),
        torch.zeros(len(labels), dtype=torch.bool),
        imported_shares=shares,
    )
