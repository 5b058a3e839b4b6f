"""Write tiny data sets in the layouts people have on disk."""

import gzip
import io
import json
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from engine.data.sets import REGISTRY

Pixels = NDArray[np.uint8]


def put_system_folders(patch: pytest.MonkeyPatch, name: str = "fmnist", *folders: Path) -> None:
    """Let a data set be looked for in these folders of the system, and in no other one."""
    patch.setitem(REGISTRY, name, replace(REGISTRY[name], system_folders=folders))


def pixels(count: int, *, side: int = 32, channels: int = 3, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, channels), dtype=np.uint8)


def write_idx(folder: Path, train: Pixels, test: Pixels, *, zipped: bool = False, dotted: bool = False) -> None:
    """Grey images (n, H, W, 1); the label of image i is i mod 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, images in (("train", train), ("t10k", test)):
        labels = (np.arange(len(images)) % 10).astype(np.uint8)
        for kind, number, array in (("images", 3, images[..., 0]), ("labels", 1, labels)):
            data = struct.pack(">I", 0x800 | number) + b"".join(struct.pack(">I", n) for n in array.shape)
            data += array.tobytes()
            name = f"{stem}-{kind}{'.' if dotted else '-'}idx{number}-ubyte"
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / name).write_bytes(data)


def rows(images: Pixels) -> Pixels:
    """CIFAR's order: one row of 3,072 bytes per image, colour after colour."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_cifar10_binary(folder: Path, batches: list[Pixels], labels: list[list[int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    for name, images, ids in zip(names, batches, labels, strict=True):
        records = np.concatenate([np.array(ids, np.uint8)[:, None], rows(images)], axis=1)
        (folder / name).write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"thing {n}" for n in range(10)) + "\n\n")


def write_cifar10_pickles(folder: Path, batches: list[Pixels], labels: list[list[int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    for name, images, ids in zip(names, batches, labels, strict=True):
        (folder / name).write_bytes(python2_pickle({b"data": rows(images), b"labels": ids, b"batch_label": b"one"}))
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": [f"thing {n}".encode() for n in range(10)]}))


def write_cifar100_binary(folder: Path, train: Pixels, test: Pixels) -> None:
    """Fine label i mod 100, coarse label i mod 20."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in (("train", train), ("test", test)):
        number = np.arange(len(images))
        ids = np.stack([number % 20, number % 100], axis=1).astype(np.uint8)
        (folder / f"{name}.bin").write_bytes(np.concatenate([ids, rows(images)], axis=1).tobytes())
    (folder / "fine_label_names.txt").write_text("".join(f"fine {n}\n" for n in range(100)))
    (folder / "coarse_label_names.txt").write_text("".join(f"coarse {n}\n" for n in range(20)))


def write_cifar100_pickles(folder: Path, train: Pixels, test: Pixels) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in (("train", train), ("test", test)):
        number = range(len(images))
        content = {
            b"data": rows(images),
            b"fine_labels": [n % 100 for n in number],
            b"coarse_labels": [n % 20 for n in number],
        }
        (folder / name).write_bytes(python2_pickle(content))
    names = {
        b"fine_label_names": [f"fine {n}".encode() for n in range(100)],
        b"coarse_label_names": [f"coarse {n}".encode() for n in range(20)],
    }
    (folder / "meta").write_bytes(python2_pickle(names))


def python2_pickle(value: Any) -> bytes:
    """Protocol 2 as Python 2 wrote it: byte strings, and arrays through numpy.core.multiarray."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key) + _python2(item) for key, item in value.items()) + b"u"
    if isinstance(value, np.ndarray):
        kind = b"cnumpy\ndtype\n" + _python2((value.dtype.str[1:].encode(), 0, 1)) + b"R"
        kind += _python2((3, value.dtype.str[:1].encode(), None, None, None, -1, -1, 0)) + b"b"
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2((0,)) + _python2(b"b") + b"tR"
        return made + b"(" + _python2(1) + _python2(value.shape) + kind + b"\x89" + _python2(value.tobytes()) + b"tb"
    raise TypeError(type(value))


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (80, 70)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def write_picture(path: Path, colour: tuple[int, int, int] = (10, 200, 30), size: tuple[int, int] = (80, 70)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, "JPEG" if path.suffix.lower() in {".jpg", ".jpeg"} else None)


def write_flowers(folder: Path, labels: list[int], train: list[int], valid: list[int], test: list[int]) -> None:
    """Image k (from 1) is a grey of value 20·k."""
    for number in range(1, len(labels) + 1):
        write_picture(folder / "jpg" / f"image_{number:05d}.jpg", (20 * number,) * 3)
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels], np.uint8)})
    parts = {"trnid": train, "valid": valid, "tstid": test}
    savemat(folder / "setid.mat", {key: np.array([ids], np.uint16) for key, ids in parts.items()})


class Clients:
    """A folder as PFLlib writes it."""

    def __init__(self, count: int = 3, *, channels: int = 3, side: int = 8, classes: int = 4) -> None:
        rng = np.random.default_rng(5)
        self.classes = classes
        self.parts: dict[str, list[tuple[NDArray[np.float32], NDArray[np.int64]]]] = {
            part: [
                (
                    rng.standard_normal((size + client, channels, side, side)).astype(np.float32),
                    rng.integers(0, classes, size + client),
                )
                for client in range(count)
            ]
            for part, size in (("train", 6), ("test", 2))
        }

    def write(self, folder: Path) -> Path:
        for part, clients in self.parts.items():
            (folder / part).mkdir(parents=True, exist_ok=True)
            for client, (x, y) in enumerate(clients):
                with (folder / part / f"{client}.npz").open("wb") as file:
                    np.savez_compressed(file, data=np.array({"x": x, "y": y}, dtype=object))
        config = {"num_clients": len(self.parts["train"]), "num_classes": self.classes, "non_iid": True}
        (folder / "config.json").write_text(json.dumps(config))
        return folder


class Attack:
    """Unpickled by Python itself, it writes a file."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def attack(victim: Path) -> bytes:
    return pickle.dumps({"data": Attack(victim), "labels": [0]})
