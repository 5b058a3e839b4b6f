import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from engine.data.archives import unpack
from engine.data.errors import DataDamaged


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, size: int = 3, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = (size if kind == tarfile.REGTYPE else 0), kind, target
    return made


def zip_with(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"xyz")
    return path


def test_files_and_folders_are_unpacked_from_both_kinds(tmp_path: Path) -> None:
    done: list[int] = []
    unpack(tar_with(tmp_path / "a.tgz", member("in/a.txt"), member("in/b.txt")), tmp_path / "tar", done.append)
    unpack(zip_with(tmp_path / "a.zip", "in/a.txt"), tmp_path / "zip", done.append)
    assert (tmp_path / "tar/in/b.txt").read_bytes() == b"xxx"
    assert (tmp_path / "zip/in/a.txt").read_bytes() == b"xyz"
    assert done == [1, 2, 1]


@pytest.mark.parametrize("name", ["../out.txt", "in/../../out.txt", "/out.txt", "..\\out.txt", "C:out.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_lead_outside_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    archive = tar_with(tmp_path / "a.tgz", member(name)) if kind == "tar" else zip_with(tmp_path / "a.zip", name)
    with pytest.raises(DataDamaged, match="outside the folder"):
        unpack(archive, tmp_path / "deep/into", lambda _: None)
    assert not (tmp_path / "deep/out.txt").exists()
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tar_with(tmp_path / "a.tgz", member("link", kind=kind, target="/etc/passwd"))
    with pytest.raises(DataDamaged, match="neither a file nor a folder"):
        unpack(archive, tmp_path / "into", lambda _: None)


def test_a_symbolic_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataDamaged, match="neither a file nor a folder"):
        unpack(tmp_path / "a.zip", tmp_path / "into", lambda _: None)


@pytest.mark.parametrize("limits", [{"most_files": 2}, {"most_bytes": 8}])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_more_files_or_bytes_than_allowed_are_refused(tmp_path: Path, limits: dict[str, int], kind: str) -> None:
    names = ("a", "b", "c")
    if kind == "tar":
        archive = tar_with(tmp_path / "a.tgz", *(member(name) for name in names))
    else:
        archive = zip_with(tmp_path / "a.zip", *names)
    with pytest.raises(DataDamaged, match="at most"):
        unpack(archive, tmp_path / "into", lambda _: None, **limits)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "a.tgz", member("a", 100_000))
    archive.write_bytes(archive.read_bytes()[:-60])
    with pytest.raises(DataDamaged, match="could not be unpacked"):
        unpack(archive, tmp_path / "into", lambda _: None)
