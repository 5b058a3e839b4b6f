import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.data import library
from engine.data.datasets import load
from engine.data.download import FetchError, Remote
from engine.data.errors import DataDamaged, DataMissing, DataPresent
from engine.data.sets import REGISTRY
from engine.data.spec import ImageSet, ImportedSet
from engine.vision import torchvision
from tests.engine.data import layouts
from tests.engine.data.layouts import pixels
from tests.engine.data.server import Site, serving

BATCHES = [pixels(4, seed=seed) for seed in range(6)]
IDS = [[(seed + n) % 10 for n in range(4)] for seed in range(6)]


def ignore(*_: object) -> None:
    """Progress nobody looks at."""


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return buffer.getvalue()


def remote(site: Site, file: str, body: bytes) -> Remote:
    site.files[file] = body
    return Remote(file, (site.url(file),), f"md5:{hashlib.md5(body, usedforsecurity=False).hexdigest()}", packed=True)


def test_get_fetches_unpacks_and_leaves_only_the_data_set(site: Site, tmp_path: Path) -> None:
    layouts.write_cifar10_pickles(tmp_path / "made/cifar-10-batches-py", BATCHES, IDS)
    source = remote(site, "cifar-10-python.tar.gz", packed(tmp_path / "made/cifar-10-batches-py"))
    said: list[str] = []
    root = tmp_path / "root"
    place = library.get("cifar10", root, lambda what, *_: said.append(what), [source])
    assert place == root / "cifar10/cifar-10-batches-py"
    np.testing.assert_array_equal(load(ImageSet(name="cifar10"), root).images.numpy(), np.concatenate(BATCHES))
    assert said[0] == "fetching cifar-10-python.tar.gz"
    assert said[-1] == "unpacking cifar-10-python.tar.gz"
    assert not (root / ".downloads/cifar10").exists()


def test_get_goes_on_after_an_interruption(site: Site, tmp_path: Path) -> None:
    layouts.write_cifar10_pickles(tmp_path / "made/cifar-10-batches-py", BATCHES, IDS)
    source = remote(site, "c.tar.gz", packed(tmp_path / "made/cifar-10-batches-py"))
    site.stop_after = [500, 500, 500]
    with pytest.raises(FetchError, match="first 1,500 bytes are kept"):
        library.get("cifar10", tmp_path / "root", ignore, [source])
    library.get("cifar10", tmp_path / "root", ignore, [source])
    assert ("c.tar.gz", "bytes=1500-") in site.asked


def test_get_takes_plain_files_too(site: Site, tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "made", pixels(3, channels=1), pixels(2, channels=1), zipped=True)
    sources = []
    for path in sorted((tmp_path / "made").iterdir()):
        site.files[path.name] = path.read_bytes()
        sources.append(Remote(path.name, (site.url(path.name),)))
    assert library.get("mnist", tmp_path / "root", ignore, sources) == tmp_path / "root/mnist"


def test_get_does_nothing_when_the_set_is_there(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, IDS)
    assert library.get("cifar10", tmp_path, ignore) == tmp_path / "cifar10"


def test_get_refuses_what_is_not_the_data_set_and_leaves_no_folder(site: Site, tmp_path: Path) -> None:
    (tmp_path / "made/other").mkdir(parents=True)
    source = remote(site, "c.tar.gz", packed(tmp_path / "made/other"))
    with pytest.raises(DataDamaged, match="not in a known layout"):
        library.get("cifar10", tmp_path / "root", ignore, [source])
    assert [path.name for path in (tmp_path / "root").iterdir()] == [".downloads"]


def test_get_of_a_set_without_an_address_says_where_to_find_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"no direct address; get it from its publisher \(https://.*\)") as caught:
        library.get("pacs", tmp_path, ignore)
    assert caught.value.remedy == REGISTRY["pacs"].remedy


@pytest.mark.parametrize(
    ("name", "words"), [("digits", "built in"), ("imagenet", "unknown data set 'imagenet'; known:")]
)
def test_get_of_other_names_says_what_is_wrong(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(DataMissing, match=words):
        library.get(name, tmp_path, ignore)


def test_addresses_and_checksums_are_those_torchvision_uses() -> None:
    datasets = torchvision.datasets
    for name, theirs in (("mnist", datasets.MNIST), ("fmnist", datasets.FashionMNIST)):
        expected = [(file, f"md5:{digest}") for file, digest in theirs.resources]
        assert [(remote.file, remote.checksum) for remote in REGISTRY[name].remotes] == expected
        assert [f"{mirror}{expected[0][0]}" for mirror in theirs.mirrors] == list(REGISTRY[name].remotes[0].urls)
    for name, cifar in (("cifar10", datasets.CIFAR10), ("cifar100", datasets.CIFAR100)):
        (source,) = REGISTRY[name].remotes
        assert (source.urls, source.checksum) == ((cifar.url,), f"md5:{cifar.tgz_md5}")
    flowers = datasets.Flowers102
    assert {(source.file, source.checksum) for source in REGISTRY["flowers102"].remotes} == {
        (file, f"md5:{digest}") for file, digest in flowers._file_dict.values()
    }
    assert REGISTRY["flowers102"].remotes[1].urls == (f"{flowers._download_url_prefix}imagelabels.mat",)
    parts = [*datasets.CIFAR100.train_list, *datasets.CIFAR100.test_list]
    assert REGISTRY["cifar100"].file_sums == {file: f"md5:{digest}" for file, digest in parts}


def test_import_copies_the_files_of_the_layout_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "from/cifar-10-batches-bin"
    layouts.write_cifar10_binary(source, BATCHES, IDS)
    (source / "private.txt").write_text("not part of it")
    made = library.import_folder("cifar10", source.parent, tmp_path / "root", ignore)
    assert (made.images, made.classes, made.clients) == (24, 10, 0)
    assert {path.name for path in (tmp_path / "root/cifar10").iterdir()} == {
        *(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin", "batches.meta.txt",
    }  # fmt: skip
    assert len(load(ImageSet(name="cifar10"), tmp_path / "root")) == 24


def test_import_can_link_instead_of_copying(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "elsewhere", BATCHES, IDS)
    library.import_folder("cifar10", tmp_path / "elsewhere", tmp_path / "root", ignore, link=True)
    assert (tmp_path / "root/cifar10").is_symlink()
    assert len(load(ImageSet(name="cifar10"), tmp_path / "root")) == 24


def test_import_keeps_what_is_there_unless_told_to_replace_it(tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "one", pixels(3, channels=1), pixels(2, channels=1))
    layouts.write_idx(tmp_path / "two", pixels(7, channels=1), pixels(2, channels=1))
    root = tmp_path / "root"
    library.import_folder("mnist", tmp_path / "one", root, ignore)
    with pytest.raises(DataPresent, match="already there"):
        library.import_folder("mnist", tmp_path / "two", root, ignore)
    library.import_folder("mnist", tmp_path / "two", root, ignore, replace=True)
    assert len(load(ImageSet(name="mnist"), root)) == 9
    assert [path.name for path in root.iterdir() if path.name.startswith(".mnist")] == []


def test_import_of_a_damaged_folder_copies_nothing(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "from", BATCHES, IDS)
    path = tmp_path / "from/test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataDamaged, match="whole records"):
        library.import_folder("cifar10", tmp_path / "from", tmp_path / "root", ignore)
    assert not (tmp_path / "root/cifar10").exists()


@pytest.mark.parametrize(("name", "words"), [("cifar10", "does not hold cifar10"), ("mine", "not a folder of PFLlib")])
def test_import_of_a_folder_nobody_knows_says_what_was_expected(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "from").mkdir()
    with pytest.raises(DataMissing, match=words):
        library.import_folder(name, tmp_path / "from", tmp_path / "root", ignore)


def test_clients_are_imported_once_unless_told_to_replace_them(tmp_path: Path) -> None:
    folder = layouts.Clients(2).write(tmp_path / "from")
    library.import_folder("mine", folder, tmp_path, ignore)
    with pytest.raises(DataPresent, match="already there"):
        library.import_folder("mine", folder, tmp_path, ignore)
    library.import_folder("mine", layouts.Clients(4).write(tmp_path / "other"), tmp_path, ignore, replace=True)
    assert len(load(ImportedSet(name="imported", set="mine"), tmp_path).imported_shares) == 4
    (row,) = [row for row in library.list_sets(tmp_path) if row.imported]
    assert (row.name, row.clients, row.classes, row.shape) == ("mine", 4, 4, (3, 8, 8))


def failed(checks: tuple[library.Check, ...]) -> list[str]:
    return [check.what for check in checks if not check.passed]


def test_verify_compares_with_the_published_size_and_content(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, IDS)
    assert failed(library.verify("cifar10", tmp_path, ignore)) == ["images", "content"]


def test_verify_passes_on_the_content_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, IDS)
    tensors = {
        "images": np.concatenate(BATCHES),
        "labels": np.array([label for batch in IDS for label in batch]),
        "official_test": np.arange(24) >= 20,
    }
    monkeypatch.setitem(REGISTRY, "cifar10", replace(REGISTRY["cifar10"], content_sum=library.content_sum(tensors)))
    checks = library.verify("cifar10", tmp_path, ignore)
    assert failed(checks) == ["images"]
    assert checks[1].detail == "24 of 60,000"


def test_verify_reads_the_sources_even_if_the_cache_has_them(tmp_path: Path) -> None:
    layouts.write_picture(tmp_path / "PACS/photo/dog/a.png")
    load(ImageSet(name="pacs"), tmp_path)
    path = tmp_path / "PACS/photo/dog/a.png"
    path.write_bytes(path.read_bytes()[:-30])
    assert "readable" in failed(library.verify("pacs", tmp_path, ignore))


def test_verify_checks_the_published_sums_of_single_files(tmp_path: Path) -> None:
    layouts.write_flowers(tmp_path / "flowers-102", [1, 2, 3], train=[1], valid=[2], test=[3])
    assert {"imagelabels.mat", "setid.mat"} <= set(failed(library.verify("flowers102", tmp_path, ignore)))


def test_verify_notices_a_damaged_imported_set(tmp_path: Path) -> None:
    made = library.import_folder("mine", layouts.Clients(2).write(tmp_path / "from"), tmp_path, ignore)
    assert failed(library.verify("mine", tmp_path, ignore)) == []
    data = bytearray(made.location.read_bytes())
    data[-3] ^= 1
    made.location.write_bytes(data)
    assert failed(library.verify("mine", tmp_path, ignore)) == ["checksum"]


def test_verify_of_a_missing_set_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.put_system_folders(monkeypatch)
    with pytest.raises(DataMissing, match="fmnist is missing"):
        library.verify("fmnist", tmp_path, ignore)
    with pytest.raises(DataMissing, match=r"no data set 'mine' to verify; known: mnist, .*, domainnet$"):
        library.verify("mine", tmp_path, ignore)
