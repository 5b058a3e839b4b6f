import logging
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.data import datasets, files
from engine.data.datasets import Dataset, load
from engine.data.errors import DataDamaged
from engine.data.spec import Digits, ImageSet
from tests.engine.data import layouts
from tests.engine.data.layouts import pixels

SPEC = ImageSet(name="cifar10")
BATCHES = [pixels(4, seed=seed) for seed in range(6)]
IDS = [[(seed + n) % 10 for n in range(4)] for seed in range(6)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, IDS)
    return tmp_path


def as_a_new_process(root: Path) -> Dataset:
    """Forget what this process has loaded, then load."""
    datasets._recent.clear()
    datasets._in_use.clear()
    return load(SPEC, root)


def cached(root: Path) -> list[Path]:
    return sorted((root / ".cache").iterdir())


def test_the_same_spec_gives_the_same_object(root: Path) -> None:
    assert load(SPEC, root) is load(SPEC, root)


def test_the_transform_does_not_make_another_object(root: Path) -> None:
    assert load(SPEC, root) is load(ImageSet(name="cifar10", transform="a"), root)


def test_other_data_sets_are_loaded_while_one_is_being_decoded(root: Path) -> None:
    datasets._recent.clear()
    datasets._in_use.clear()
    begun, go_on, found = threading.Event(), threading.Event(), []

    def hold(*_: object) -> None:
        begun.set()
        go_on.wait(60)

    threads = [threading.Thread(target=lambda: found.append(load(SPEC, root, hold)))]
    threads[0].start()
    assert begun.wait(60)
    threads += [
        threading.Thread(target=lambda: found.append(load(SPEC, root))),
        threading.Thread(target=lambda: found.append(load(Digits(name="digits"), root))),
    ]
    for thread in threads[1:]:
        thread.start()
    threads[2].join(10)
    so_far = [dataset.name for dataset in found]
    go_on.set()
    for thread in threads:
        thread.join()
    assert so_far == ["digits"]
    assert len({id(dataset) for dataset in found if dataset.name == "cifar10"}) == 1, "decoded once"


def test_decoding_leaves_one_file_any_safetensors_reader_can_open(root: Path) -> None:
    found = as_a_new_process(root)
    (path,) = cached(root)
    tensors = load_file(path)
    np.testing.assert_array_equal(tensors["images"], found.images.numpy())
    np.testing.assert_array_equal(tensors["labels"], found.labels.numpy())


def test_the_second_process_reads_the_cache_and_not_the_sources(root: Path) -> None:
    first = as_a_new_process(root)
    path = root / "cifar10/data_batch_1.bin"
    status = path.stat()
    path.write_bytes(bytes(status.st_size))  # other content, but the same name, size and time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert torch.equal(as_a_new_process(root).images, first.images)


def test_a_changed_source_is_decoded_again_and_the_old_cache_removed(root: Path) -> None:
    as_a_new_process(root)
    (before,) = cached(root)
    layouts.write_cifar10_binary(root / "cifar10", [*BATCHES[:5], pixels(4, seed=99)], IDS)
    os.utime(root / "cifar10/test_batch.bin", ns=(1, 1))
    found = as_a_new_process(root)
    np.testing.assert_array_equal(found.images[-4:].numpy(), pixels(4, seed=99))
    (after,) = cached(root)
    assert after != before


@pytest.mark.parametrize("place", [12, 700, -5])
def test_a_damaged_cache_is_noticed_and_made_again(root: Path, place: int, caplog: pytest.LogCaptureFixture) -> None:
    first = as_a_new_process(root).images.clone()
    (path,) = cached(root)
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(as_a_new_process(root).images, first)
    assert "is damaged" in caplog.text
    assert torch.equal(as_a_new_process(root).images, first)


def test_a_changed_name_in_the_header_is_noticed_too(root: Path) -> None:
    as_a_new_process(root)
    (path,) = cached(root)
    path.write_bytes(path.read_bytes().replace(b"thing 3", b"think 3"))
    with pytest.raises(DataDamaged, match="checksum"):
        files.read_tensors(path)


def test_a_cache_that_is_cut_off_is_noticed(root: Path) -> None:
    as_a_new_process(root)
    (path,) = cached(root)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataDamaged, match="other than its header says"):
        files.read_tensors(path)


def test_a_root_that_cannot_be_written_is_read_into_memory(root: Path) -> None:
    (root / ".cache").write_text("a file where the folder should be")
    found = as_a_new_process(root)
    np.testing.assert_array_equal(found.images.numpy(), np.concatenate(BATCHES))


def test_a_failed_decoding_leaves_no_file_behind(root: Path) -> None:
    layouts.write_picture(root / "PACS/photo/dog/whole.png")
    (root / "PACS/photo/dog/half.png").write_bytes(layouts.picture((1, 2, 3))[:60])
    with pytest.raises(DataDamaged):
        load(ImageSet(name="pacs"), root)
    assert cached(root) == []


def test_leftovers_of_writers_that_died_are_swept_but_not_those_at_work(root: Path) -> None:
    cache = root / ".cache"
    cache.mkdir()
    for name, age in (("cifar10-old.safetensors.1.tmp", 7200), ("cifar10-new.safetensors.2.tmp", 0)):
        (cache / name).touch()
        os.utime(cache / name, (time.time() - age, time.time() - age))
    (cache / "cifar100-other.safetensors").touch()
    as_a_new_process(root)
    names = {path.name for path in cached(root)}
    assert "cifar10-old.safetensors.1.tmp" not in names
    assert {"cifar10-new.safetensors.2.tmp", "cifar100-other.safetensors"} <= names


def test_writing_into_the_images_never_reaches_the_file(root: Path) -> None:
    found = as_a_new_process(root)
    before = found.images.clone()
    found.images.zero_()
    assert torch.equal(as_a_new_process(root).images, before)


def test_tensors_of_all_kinds_come_back_as_they_were_written(tmp_path: Path) -> None:
    tensors = {
        "flags": np.array([True, False, True]),
        "bytes": np.arange(7, dtype=np.uint8),
        "numbers": np.arange(-3, 3),
        "floats": np.linspace(0, 1, 5, dtype=np.float32).reshape(5, 1),
        "nothing": np.empty((0, 4), np.float32),
    }
    files.write_tensors(tmp_path / "x.safetensors", tensors, {"note": "é"})
    found, notes = files.read_tensors(tmp_path / "x.safetensors")
    assert notes["note"] == "é"
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
