from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from engine.data import library
from engine.data.datasets import DataMissing, available, load, require
from engine.data.errors import Remedy
from engine.data.sets import REGISTRY
from engine.data.spec import Digits, ImageSet, ImportedSet
from tests.engine.data import layouts


def ignore(*_: object) -> None:
    """Progress nobody looks at."""


def test_digits_are_grey_images_of_32_pixels_over_the_whole_range() -> None:
    found = load(Digits(name="digits"), None)
    assert tuple(found.images.shape) == (1797, 32, 32, 1)
    assert found.images.dtype == torch.uint8
    assert (int(found.images.min()), int(found.images.max())) == (0, 255)
    assert found.labels.tolist() == load_digits().target.tolist()
    assert not found.official_test.any()


def test_digits_shrunk_again_are_the_originals() -> None:
    images = load(Digits(name="digits"), None).images[..., 0].float()
    small = images.view(-1, 8, 4, 8, 4).mean(dim=(2, 4)) * (16 / 255)
    original = torch.from_numpy(load_digits().images).float()
    assert torch.corrcoef(torch.stack([small.flatten(), original.flatten()]))[0, 1] > 0.97


def test_the_list_shows_what_is_there_and_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.put_system_folders(monkeypatch)
    layouts.write_picture(tmp_path / "PACS/photo/dog/a.png")
    rows = {row.name: row for row in available(tmp_path)}
    assert list(rows) == list(REGISTRY)
    assert rows["digits"].location == "built in"
    assert rows["pacs"].location == str(tmp_path / "PACS")
    assert not rows["cifar10"].available


def test_asking_whether_a_set_is_there_decodes_nothing(tmp_path: Path) -> None:
    (tmp_path / "PACS/photo/dog").mkdir(parents=True)
    (tmp_path / "PACS/photo/dog/broken.png").write_bytes(b"no image")
    require(ImageSet(name="pacs"), tmp_path)
    with pytest.raises(DataMissing, match=r"mnist is missing.*; fetch it$"):
        require(ImageSet(name="mnist"), tmp_path)


def test_an_imported_folder_keeps_its_images_labels_and_clients(tmp_path: Path) -> None:
    clients = layouts.Clients(3)
    made = library.import_folder("cifar-dir", clients.write(tmp_path / "from"), tmp_path / "root", ignore)
    assert (made.clients, made.classes, made.dataset) == (3, 4, "{name: imported, set: cifar-dir}")
    spec = ImportedSet(name="imported", set="cifar-dir")
    found = load(spec, tmp_path / "root")
    assert found.images.dtype == torch.float32
    assert found.shape == (3, 8, 8)
    shares = found.imported_shares
    assert len(shares) == 3
    for client, (train, test) in enumerate(shares):
        for part, index in (("train", train), ("test", test)):
            x, y = clients.parts[part][client]
            np.testing.assert_array_equal(found.images[index].permute(0, 3, 1, 2).numpy(), x)
            np.testing.assert_array_equal(found.labels[index].numpy(), y)
    assert torch.cat([index for pair in shares for index in pair]).sort().values.tolist() == list(range(len(found)))


def test_an_imported_set_of_bytes_stays_bytes(tmp_path: Path) -> None:
    folder = layouts.Clients(1).write(tmp_path / "from")
    for part in ("train", "test"):
        x = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
        with (folder / part / "0.npz").open("wb") as file:
            np.savez(file, data=np.array({"x": x, "y": np.array([0, 1])}, dtype=object))
    library.import_folder("bytes", folder, tmp_path, ignore)
    assert load(ImportedSet(name="imported", set="bytes"), tmp_path).images.dtype == torch.uint8


def test_a_missing_imported_set_is_to_be_imported(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"'mine' is missing.*; import it$") as caught:
        load(ImportedSet(name="imported", set="mine"), tmp_path)
    assert caught.value.remedy == Remedy("mine", "import")


def test_only_an_imported_set_has_clients_of_its_own() -> None:
    assert load(Digits(name="digits"), None).imported_shares == ()


@pytest.mark.parametrize("name", ["../evil", "UPPER", "a/b", "", "-a", "a" * 65])
def test_an_imported_set_cannot_have_a_name_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    folder = layouts.Clients(1).write(tmp_path / "from")
    with pytest.raises(ValueError, match="name of an imported set"):
        library.import_folder(name, folder, tmp_path / "root", ignore)
    assert not (tmp_path / "evil.safetensors").exists()
