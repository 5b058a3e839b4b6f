"""The storage in a folder and in another kind of file system behave alike."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from app.storage import Storage


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "files") if request.param == "folder" else f"memory://{tmp_path.name}")


def test_what_was_written_is_read_back_with_its_checksum(storage: Storage) -> None:
    digest = storage.write("artifacts/one/a.json", b"{}")
    assert digest == hashlib.sha256(b"{}").hexdigest()
    assert storage.read("artifacts/one/a.json") == b"{}"


def test_a_file_can_be_replaced_and_removed(storage: Storage) -> None:
    storage.write("a/b", b"1")
    storage.write("a/b", b"2")
    assert storage.read("a/b") == b"2"
    storage.remove("a/b")
    storage.remove("a/b")
    assert not storage.exists("a/b")


def test_a_missing_file_is_said_to_be_missing(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a/none")


def test_a_file_is_read_in_pieces(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.storage.BLOCK_BYTES", 4)
    storage.write("a/b", b"0123456789")
    assert list(storage.blocks("a/b")) == [b"0123", b"4567", b"89"]
    with pytest.raises(FileNotFoundError):
        storage.blocks("a/none")


def test_a_file_knows_when_it_was_written(storage: Storage) -> None:
    storage.write("a/b", b"1")
    assert time.time() - 3600 < storage.modified("a/b") < time.time() + 3600


def test_a_folder_lists_its_own_files_in_order(storage: Storage) -> None:
    for name in ("x/b", "x/a", "x/deeper/c"):
        storage.write(name, b"")
    assert storage.names("x") == ["x/a", "x/b"]
    assert storage.names("none") == []


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../b", "", "a//b", ".hidden", "a\\b", "a\0b", "a b"])
def test_no_name_leads_out_of_the_storage(storage: Storage, name: str) -> None:
    with pytest.raises(ValueError, match="a name in the storage"):
        storage.write(name, b"")


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        storage.write("a", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("pipe_file", lambda storage: storage.write("a/b", b"")),
        ("cat_file", lambda storage: storage.read("a/b")),
        ("rm_file", lambda storage: storage.remove("a/b")),
        ("ls", lambda storage: storage.names("a")),
    ],
)
def test_what_an_object_store_calls_its_errors_is_an_error_of_the_system(
    method: str, act: Callable[[Storage], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndpointConnectionError(Exception):
        """As libraries for object stores have them."""

    def refuse(*_: object, **__: object) -> None:
        raise EndpointConnectionError("could not connect")

    storage = Storage(f"memory://{tmp_path.name}")
    storage.write("a/b", b"1")
    monkeypatch.setattr(MemoryFileSystem, method, refuse)
    with pytest.raises(OSError, match="EndpointConnectionError: could not connect"):
        act(storage)
