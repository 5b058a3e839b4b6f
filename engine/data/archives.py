"""Unpack downloaded archives: nothing outside the folder, no links, no more files and bytes than expected."""

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from engine.data.errors import DataDamaged

MOST_FILES = 1_000_000
MOST_BYTES = 64 << 30


class _Budget:
    def __init__(self, archive: Path, files: int, size: int) -> None:
        self.archive, self.files, self.size = archive, files, size
        self.seen_files = self.seen_bytes = 0

    def admit(self, name: str, size: int, *, plain: bool) -> None:
        """Refuse a member before anything of it is written."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
            raise DataDamaged(f"{self.archive} was not unpacked: its member {name!r} would lie outside the folder")
        if not plain:
            raise DataDamaged(f"{self.archive} was not unpacked: its member {name!r} is neither a file nor a folder")
        self.seen_files += 1
        self.seen_bytes += size
        if self.seen_files > self.files or self.seen_bytes > self.size:
            raise DataDamaged(
                f"{self.archive} was not unpacked: it must hold at most {self.files:,} files and {self.size:,} bytes, "
                f"but holds more"
            )


def unpack(
    archive: Path,
    into: Path,
    report: Callable[[int], None],
    *,
    most_files: int = MOST_FILES,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Unpack a tar or zip file; `report` hears how many files are done."""
    budget = _Budget(archive, most_files, most_bytes)
    into.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, into, report, budget)
        else:
            _unpack_tar(archive, into, report, budget)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataDamaged(f"{archive} could not be unpacked into {into}: {error}") from error


def _unpack_tar(archive: Path, into: Path, report: Callable[[int], None], budget: _Budget) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            budget.admit(member.name, member.size, plain=member.isfile() or member.isdir())
            tar.extract(member, into, filter="data")
            report(budget.seen_files)


def _unpack_zip(archive: Path, into: Path, report: Callable[[int], None], budget: _Budget) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            budget.admit(member.filename, member.file_size, plain=kind in {0, stat.S_IFREG, stat.S_IFDIR})
            target = into / member.filename
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
            report(budget.seen_files)
