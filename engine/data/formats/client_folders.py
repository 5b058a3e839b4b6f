"""Folders of PFLlib and HtFLlib: one npz file for each client and part."""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import DataDamaged
from engine.data.formats.layout import Progress, describe, quiet
from engine.data.unpickle import unpickle

MOST_CLASSES = 100_000


@dataclass(frozen=True, eq=False)
class ClientFolder:
    """What `config.json`, `train/<k>.npz` and `test/<k>.npz` hold, client after client."""

    parts: tuple[NDArray[Any], ...]  # (n, H, W, C) each: training, then test images of client 0, of client 1 …
    kind: type[np.uint8] | type[np.float32]
    labels: NDArray[np.int64]  # of all parts, in their order
    classes: int
    ranges: tuple[tuple[int, int, int], ...]  # per client: first training sample, first test sample, end


def is_client_folder(folder: Path) -> bool:
    return all((folder / part).exists() for part in ("config.json", "train/0.npz", "test/0.npz"))


def read_client_folder(folder: Path, progress: Progress = quiet) -> ClientFolder:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataDamaged(f"{folder / 'config.json'} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise DataDamaged(f"{folder / 'config.json'} must hold an object, but holds {type(config).__name__}")
    clients = _consecutive(folder / "train")
    if (said := config.get("num_clients", clients)) != clients:
        raise DataDamaged(
            f"{folder / 'config.json'}: num_clients must be the number of files train/<k>.npz, {clients}, "
            f"but got {said!r}"
        )
    if _consecutive(folder / "test") != clients:
        raise DataDamaged(f"{folder} must hold test/<k>.npz for the same clients 0..{clients - 1} as train/<k>.npz")
    images: list[NDArray[Any]] = []
    labels: list[NDArray[np.int64]] = []
    ranges: list[tuple[int, int, int]] = []
    end = 0
    for client in range(clients):
        bounds = [end]
        for part in ("train", "test"):
            x, y = _read_client_file(folder / part / f"{client}.npz")
            if images and x.shape[1:] != images[0].shape[1:]:
                raise DataDamaged(
                    f"{folder / part / f'{client}.npz'} holds images of {x.shape[1:]}, the first file of "
                    f"{images[0].shape[1:]} (height, width, channels)"
                )
            images.append(x)
            labels.append(y)
            end += len(y)
            bounds.append(end)
        ranges.append((bounds[0], bounds[1], bounds[2]))
        progress(client + 1, clients)
    every = np.concatenate(labels)
    if len(every) == 0:
        raise DataDamaged(f"{folder} holds no sample")
    classes = config.get("num_classes", int(every.max()) + 1)
    if not isinstance(classes, int) or isinstance(classes, bool) or not 1 <= classes <= MOST_CLASSES:
        raise DataDamaged(
            f"{folder / 'config.json'}: num_classes must be a whole number from 1 to {MOST_CLASSES}, "
            f"but got {classes!r}"
        )
    if every.min() < 0 or every.max() >= classes:
        raise DataDamaged(
            f"{folder / 'config.json'} says num_classes {classes}, but the labels are {every.min()}..{every.max()}"
        )
    whole = all(x.dtype == np.uint8 for x in images)
    return ClientFolder(tuple(images), np.uint8 if whole else np.float32, every, classes, tuple(ranges))


def _consecutive(folder: Path) -> int:
    numbers = sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())
    if numbers != list(range(len(numbers))):
        raise DataDamaged(
            f"{folder} must hold 0.npz, 1.npz … without a gap, but {len(numbers)} files end at {numbers[-1]}"
        )
    return len(numbers)


def _read_client_file(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    content = _npz_object(path, "data")
    if not isinstance(content, dict) or not {"x", "y"} <= content.keys():
        raise DataDamaged(f"{path} must hold a dict with x and y under data")
    x, y = np.asarray(content["x"]), np.asarray(content["y"]).reshape(-1)
    if x.ndim == 3:  # grey images without a channel
        x = x[:, None]
    if x.ndim != 4 or x.dtype.kind not in "fiu" or len(x) != len(y):
        raise DataDamaged(
            f"{path} must hold images x (n, channels, height, width) and n labels y, "
            f"but holds {describe(x)} and {describe(y)}"
        )
    if y.dtype.kind not in "iu" and not (y.dtype.kind == "f" and np.array_equal(y, np.floor(y))):
        raise DataDamaged(f"{path} must hold class ids under y, but holds {describe(y)}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataDamaged(f"{path} holds pixels that are not numbers")
    return x.transpose(0, 2, 3, 1), y.astype(np.int64)


_MOST_BYTES_OF_CLIENT = 8 << 30


def _npz_object(path: Path, key: str) -> Any:
    """The pickled object in an npz file. numpy would unpickle anything, so only its header reader is used."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{key}.npy")
            if member.file_size > _MOST_BYTES_OF_CLIENT:
                raise DataDamaged(
                    f"{path} announces {member.file_size:,} bytes, more than the {_MOST_BYTES_OF_CLIENT:,} allowed"
                )
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, kind = header(file)
                if not kind.hasobject or shape != ():
                    raise DataDamaged(f"{path} must hold one object under {key}, but holds {kind}{list(shape)}")
                return unpickle(file.read(), path)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error) as error:
        raise DataDamaged(f"{path} is not a whole npz file with an array {key} ({error})") from error
