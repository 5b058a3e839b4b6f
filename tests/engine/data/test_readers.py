import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from engine.data import search
from engine.data.datasets import Dataset, available, load
from engine.data.errors import DataDamaged, DataMissing, Remedy
from engine.data.formats.client_folders import is_client_folder, read_client_folder
from engine.data.sets import domainnet
from engine.data.spec import Cifar100, DatasetSpec, ImageSet
from tests.engine.data import layouts
from tests.engine.data.layouts import pixels

BATCHES = [pixels(4, seed=seed) for seed in range(6)]
SETS: TypeAdapter[DatasetSpec] = TypeAdapter(DatasetSpec)
IDS = [[(seed + n) % 10 for n in range(4)] for seed in range(6)]


def published(name: str, root: Path) -> Dataset:
    return load(ImageSet.model_validate({"name": name}), root)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("mnist", "mnist/MNIST/raw"),
        ("fmnist", "FashionMNIST/raw"),
        ("fmnist", "fashion-mnist"),
    ],
)
def test_idx_files_are_read_plain_or_zipped(tmp_path: Path, name: str, folder: str, zipped: bool, dotted: bool) -> None:
    train, test = pixels(12, side=28, channels=1), pixels(5, side=28, channels=1, seed=1)
    layouts.write_idx(tmp_path / folder, train, test, zipped=zipped, dotted=dotted)
    found = published(name, tmp_path)
    np.testing.assert_array_equal(found.images.numpy(), np.concatenate([train, test]))
    assert found.labels.tolist() == [*(n % 10 for n in range(12)), *range(5)]
    assert found.official_test.tolist() == [False] * 12 + [True] * 5
    assert (found.classes, found.shape, len(found.class_names)) == (10, (1, 28, 28), 10)


WRITTEN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "idx": ("mnist", lambda root: layouts.write_idx(root / "mnist", pixels(4, channels=1), pixels(2, channels=1))),
    "zipped idx": (
        "fmnist",
        lambda root: layouts.write_idx(root / "fmnist", pixels(4, channels=1), pixels(3, channels=1), zipped=True),
    ),
    "binary": ("cifar10", lambda root: layouts.write_cifar10_binary(root / "cifar-10-batches-bin", BATCHES, IDS)),
    "binary, two labels": (
        "cifar100",
        lambda root: layouts.write_cifar100_binary(root / "cifar-100-binary", pixels(5), pixels(2)),
    ),
    "flowers": ("flowers102", lambda root: layouts.write_flowers(root / "flowers-102", [1, 2, 2], [1], [2], [3])),
    "class folders": ("flowers102", lambda root: picture_folders(root / "flowers-102/train", "1", "2")),
    "classes with images": (
        "tiny-imagenet",
        lambda root: picture_folders(root / "tiny-imagenet-200/train", "n1/images", "n2/images"),
    ),
    "domains": ("pacs", lambda root: picture_folders(root / "PACS", "photo/dog", "sketch/dog", "sketch/elephant")),
}


def picture_folders(root: Path, *folders: str) -> None:
    for folder in folders:
        layouts.write_picture(root / folder / "a.jpg")
        (root / folder / "note.txt").write_text("no image")


@pytest.mark.parametrize(("name", "write"), WRITTEN.values(), ids=WRITTEN)
def test_images_are_counted_without_reading_them(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    place = search.find(name, tmp_path)
    assert place is not None
    assert place[0].count(place[1]) == len(load(SETS.validate_python({"name": name}), tmp_path)) > 0


def test_the_two_sets_of_idx_files_are_not_mistaken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.put_system_folders(monkeypatch)
    layouts.write_idx(tmp_path / "MNIST/raw", pixels(3, channels=1), pixels(2, channels=1))
    assert search.find("mnist", tmp_path) is not None
    assert search.find("fmnist", tmp_path) is None


def test_the_folder_of_the_system_package_is_used_when_the_root_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.write_idx(tmp_path / "share", pixels(3, channels=1), pixels(2, channels=1), zipped=True)
    layouts.put_system_folders(monkeypatch, "fmnist", tmp_path / "share")
    assert len(published("fmnist", tmp_path / "empty")) == 5
    assert len(load(ImageSet(name="fmnist"), None)) == 5


def test_idx_files_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "mnist", pixels(3, side=28, channels=1), pixels(2, side=28, channels=1))
    path = tmp_path / "mnist/train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataDamaged, match=r"train-images-idx3-ubyte must hold 2,352 bytes .* but holds 2,252"):
        published("mnist", tmp_path)


def test_gzip_files_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "mnist", pixels(3, channels=1), pixels(2, channels=1), zipped=True)
    path = tmp_path / "mnist/t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataDamaged, match="cut off or not a gzip file"):
        published("mnist", tmp_path)


def test_files_that_are_not_idx_are_refused(tmp_path: Path) -> None:
    layouts.write_idx(tmp_path / "mnist", pixels(3, channels=1), pixels(2, channels=1))
    (tmp_path / "mnist/train-labels-idx1-ubyte").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataDamaged, match="must begin with the IDX number 0x00000801"):
        published("mnist", tmp_path)


@pytest.mark.parametrize("place", ["cifar-10-batches-{}", "cifar10", "cifar10/cifar-10-batches-{}"])
@pytest.mark.parametrize("form", ["bin", "py"])
def test_both_forms_of_cifar10_give_the_same_set(tmp_path: Path, place: str, form: str) -> None:
    write = layouts.write_cifar10_binary if form == "bin" else layouts.write_cifar10_pickles
    write(tmp_path / place.format(form), BATCHES, IDS)
    found = published("cifar10", tmp_path)
    np.testing.assert_array_equal(found.images.numpy(), np.concatenate(BATCHES))
    assert found.labels.tolist() == [label for batch in IDS for label in batch]
    assert found.official_test.tolist() == [False] * 20 + [True] * 4
    assert found.class_names[3] == "thing 3"
    assert found.images.dtype == torch.uint8


def test_the_data_folder_may_be_the_layout_folder_itself(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar-10-batches-bin", BATCHES, IDS)
    layouts.write_idx(tmp_path / "MNIST/raw", pixels(3, channels=1), pixels(2, channels=1))
    assert len(published("cifar10", tmp_path / "cifar-10-batches-bin")) == 24
    assert len(published("mnist", tmp_path / "MNIST")) == 5
    assert len(published("mnist", tmp_path / "MNIST/raw")) == 5


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path, form: str) -> None:
    train, test = pixels(110), pixels(21, seed=1)
    write = layouts.write_cifar100_binary if form == "binary" else layouts.write_cifar100_pickles
    write(tmp_path / f"cifar-100-{form}", train, test)
    fine = load(Cifar100(name="cifar100"), tmp_path)
    coarse = load(Cifar100(name="cifar100", labels="coarse"), tmp_path)
    assert fine.labels.tolist() == [*(n % 100 for n in range(110)), *range(21)]
    assert coarse.labels.tolist() == [*(n % 20 for n in range(110)), *(n % 20 for n in range(21))]
    assert (fine.classes, coarse.classes) == (100, 20)
    assert (fine.class_names[99], coarse.class_names[19]) == ("fine 99", "coarse 19")
    np.testing.assert_array_equal(fine.images.numpy(), np.concatenate([train, test]))
    assert int(fine.official_test.sum()) == 21


def test_a_binary_batch_that_is_cut_off_is_refused_with_numbers(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, IDS)
    path = tmp_path / "cifar10/data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataDamaged, match=r"data_batch_3\.bin must hold whole records of 3,073 bytes"):
        published("cifar10", tmp_path)


def test_a_label_that_no_class_has_is_refused(tmp_path: Path) -> None:
    layouts.write_cifar10_binary(tmp_path / "cifar10", BATCHES, [[10] * 4, *IDS[1:]])
    with pytest.raises(DataDamaged, match=r"classes 0\.\.9, but the largest is 10"):
        published("cifar10", tmp_path)


def test_a_pickled_batch_with_code_in_it_is_refused_and_the_code_not_run(tmp_path: Path) -> None:
    layouts.write_cifar10_pickles(tmp_path / "cifar10", BATCHES, IDS)
    victim = tmp_path / "victim"
    (tmp_path / "cifar10/data_batch_2").write_bytes(layouts.attack(victim))
    with pytest.raises(DataDamaged, match="data_batch_2 was not read"):
        published("cifar10", tmp_path)
    assert not victim.exists()


def test_flowers_in_torchvisions_layout_mark_the_official_test_part(tmp_path: Path) -> None:
    layouts.write_flowers(tmp_path / "flowers-102", [1, 102, 1, 77, 5, 5], train=[2, 5], valid=[1], test=[3, 4, 6])
    found = published("flowers102", tmp_path)
    assert found.labels.tolist() == [0, 101, 0, 76, 4, 4]
    assert found.official_test.tolist() == [False, False, True, True, False, True]
    assert (found.classes, found.shape) == (102, (3, 64, 64))
    assert [int(image.float().mean().round()) for image in found.images] == [20, 40, 60, 80, 100, 120]


def test_flowers_with_a_missing_image_are_refused(tmp_path: Path) -> None:
    layouts.write_flowers(tmp_path / "flowers-102", [1, 2, 3], train=[1], valid=[2], test=[3])
    (tmp_path / "flowers-102/jpg/image_00002.jpg").unlink()
    with pytest.raises(DataDamaged, match=r"lacks 1 of 3 images, first image_00002\.jpg"):
        published("flowers102", tmp_path)


def test_flowers_as_class_folders_keep_the_numeric_order_of_classes(tmp_path: Path) -> None:
    for part, classes in (("train", ("1", "2", "10")), ("valid", ("10",)), ("test", ("2",))):
        for name in classes:
            layouts.write_picture(tmp_path / "flowers102" / part / name / "a.jpg")
    found = published("flowers102", tmp_path)
    assert found.class_names == ("1", "2", "10")
    assert found.labels.tolist() == [0, 1, 2, 2, 1]
    assert found.official_test.tolist() == [False, False, False, False, True]


def test_flowers_without_their_labels_are_missing_and_not_one_large_class(tmp_path: Path) -> None:
    layouts.write_flowers(tmp_path / "flowers-102", [1, 2, 3], train=[1], valid=[2], test=[3])
    (tmp_path / "flowers-102/imagelabels.mat").unlink()
    with pytest.raises(DataMissing):
        published("flowers102", tmp_path)


def test_tiny_imagenet_is_its_training_folder_alone(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for name, count in (("n02", 2), ("n01", 3)):
        for number in range(count):
            layouts.write_picture(root / "train" / name / "images" / f"{name}_{number}.JPEG", size=(64, 64))
    layouts.write_picture(root / "val/images/val_0.JPEG", size=(64, 64))
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttench\n")
    found = published("tiny-imagenet", tmp_path)
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    assert found.class_names == ("goldfish", "tench")
    assert not found.official_test.any()


@pytest.mark.parametrize("folder", ["PACS", "pacs", "PACS/kfold"])
def test_pacs_records_the_domain_of_every_image(tmp_path: Path, folder: str) -> None:
    for domain in ("sketch", "art_painting", "photo", "cartoon"):
        for name in ("dog", "elephant")[: 1 if domain == "photo" else 2]:
            layouts.write_picture(tmp_path / folder / domain / name / "pic_001.jpg")
    found = published("pacs", tmp_path)
    assert found.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert found.domains is not None
    assert found.domains.tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert found.class_names == ("dog", "elephant")


def test_domainnet_marks_the_images_in_the_publishers_test_lists(tmp_path: Path) -> None:
    for domain in domainnet.DOMAINS:
        for number in range(2):
            layouts.write_picture(tmp_path / "DomainNet" / domain / "zebra" / f"{domain}_{number}.png")
    (tmp_path / "DomainNet/real_test.txt").write_text("real/zebra/real_1.png 344\n")
    found = published("domainnet", tmp_path)
    assert found.domain_names == domainnet.DOMAINS
    assert found.official_test.nonzero().flatten().tolist() == [9]


def test_an_image_that_is_cut_off_is_refused_with_its_name(tmp_path: Path) -> None:
    layouts.write_picture(tmp_path / "PACS/photo/dog/whole.png")
    (tmp_path / "PACS/photo/dog/half.png").write_bytes(layouts.picture((1, 2, 3))[:60])
    with pytest.raises(DataDamaged, match=r"half\.png is not a whole image"):
        published("pacs", tmp_path)


def test_decoding_image_files_reports_progress(tmp_path: Path) -> None:
    for number in range(5):
        layouts.write_picture(tmp_path / "PACS/photo/dog" / f"{number}.png")
    seen: list[tuple[int, int]] = []
    load(ImageSet(name="pacs"), tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)


def test_a_missing_set_names_the_places_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        published("cifar10", tmp_path)
    message = str(caught.value)
    assert "cifar10" in message
    assert str(tmp_path / "cifar-10-batches-bin") in message
    assert str(tmp_path / "cifar-10-batches-py") in message
    assert message.endswith("; fetch it")
    assert caught.value.remedy == Remedy("cifar10", "fetch")


def test_without_a_data_folder_the_message_says_so() -> None:
    with pytest.raises(DataMissing, match="no folder: no data folder is set"):
        load(ImageSet(name="cifar10"), None)


PARTS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "binary batch": (
        "cifar10",
        lambda root: layouts.write_cifar10_binary(root / "cifar10", BATCHES, IDS),
        "cifar10/data_batch_5.bin",
    ),
    "pickled batch": (
        "cifar10",
        lambda root: layouts.write_cifar10_pickles(root / "cifar10", BATCHES, IDS),
        "cifar10/test_batch",
    ),
    "idx file": (
        "mnist",
        lambda root: layouts.write_idx(root / "mnist", pixels(3, channels=1), pixels(2, channels=1)),
        "mnist/t10k-labels-idx1-ubyte",
    ),
    "labels of flowers": (
        "flowers102",
        lambda root: layouts.write_flowers(root / "flowers-102", [1, 2, 3], train=[1], valid=[2], test=[3]),
        "flowers-102/imagelabels.mat",
    ),
}


@pytest.mark.parametrize(("name", "write", "file"), PARTS.values(), ids=PARTS)
def test_a_set_without_one_of_its_files_is_missing_and_the_file_is_named(
    tmp_path: Path, name: str, write: Callable[[Path], None], file: str
) -> None:
    write(tmp_path)
    (tmp_path / file).unlink()
    told = f"{(tmp_path / file).parent} lacks {Path(file).name}"
    with pytest.raises(DataMissing, match=re.escape(f"; {told}; fetch it")):
        published(name, tmp_path)
    assert [row.lacks for row in available(tmp_path) if row.name == name] == [told]


def test_a_folder_with_none_of_the_files_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    assert search.find_part("cifar10", tmp_path) is None


def test_fewer_images_than_published_are_counted_in_every_layout_of_image_files(tmp_path: Path) -> None:
    layouts.write_cifar100_binary(tmp_path / "cifar-100-binary", pixels(110), pixels(21, seed=1))
    picture_folders(tmp_path / "PACS", "photo/dog", "sketch/dog")
    layouts.write_flowers(tmp_path / "flowers-102", [1, 2, 3], train=[1], valid=[2], test=[3])
    rows = {row.name: row for row in available(tmp_path, count=True)}
    found = {name: rows[name].found for name in ("cifar100", "pacs", "flowers102")}
    assert found == {"cifar100": 131, "pacs": 2, "flowers102": 3}
    assert all(rows[name].incomplete for name in found)


def test_the_clients_of_a_folder_must_be_numbered_without_a_gap(tmp_path: Path) -> None:
    folder = layouts.Clients(3).write(tmp_path)
    (folder / "train/1.npz").unlink()
    with pytest.raises(DataDamaged, match="without a gap"):
        read_client_folder(folder)


def test_a_client_file_with_code_in_it_is_refused_and_the_code_not_run(tmp_path: Path) -> None:
    folder = layouts.Clients(2).write(tmp_path / "clients")
    victim = tmp_path / "victim"
    with (folder / "test/1.npz").open("wb") as file:
        np.savez(file, data=np.array({"x": layouts.Attack(victim), "y": [0]}, dtype=object))
    with pytest.raises(DataDamaged, match=r"1\.npz was not read"):
        read_client_folder(folder)
    assert not victim.exists()


def test_a_client_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    folder = layouts.Clients(2).write(tmp_path)
    path = folder / "train/0.npz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataDamaged, match=r"0\.npz is not a whole npz file"):
        read_client_folder(folder)


def test_labels_beyond_the_number_of_classes_are_refused(tmp_path: Path) -> None:
    clients = layouts.Clients(2)
    clients.classes = 2
    with pytest.raises(DataDamaged, match="num_classes 2"):
        read_client_folder(clients.write(tmp_path))


def test_texts_and_other_shapes_are_refused_as_images(tmp_path: Path) -> None:
    folder = layouts.Clients(1).write(tmp_path)
    with (folder / "train/0.npz").open("wb") as file:
        np.savez(file, data=np.array({"x": np.zeros((3, 200), np.float32), "y": np.zeros(3, int)}, dtype=object))
    with pytest.raises(DataDamaged, match="must hold images x"):
        read_client_folder(folder)


def test_a_folder_without_clients_is_no_client_folder(tmp_path: Path) -> None:
    folder = layouts.Clients(1).write(tmp_path)
    assert is_client_folder(folder)
    shutil.rmtree(folder / "test")
    assert not is_client_folder(folder)
