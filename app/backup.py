"""A copy of a running HOME: the database as it is at one moment, and every checkpoint that it names."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func
from sqlmodel import col

from app.config import Settings
from app.storage import CHECKPOINTS, Storage, files_of_checkpoint
from app.store import experiments
from app.store.database import Database
from app.store.tables import Experiment

log = logging.getLogger(__name__)

TRIES = 5


class BackupRefused(Exception):
    """No copy can be made; the message says why and what to do."""


@dataclass(frozen=True)
class Copied:
    """What is in the copy."""

    folder: Path
    bytes: int
    experiments: int
    without_checkpoint: int
    """Experiments whose newest checkpoint could not be had; they are computed again from an older one or the start."""


def back_up(settings: Settings, target: Path) -> Copied:
    """A folder that can be used as FEDARENA_HOME elsewhere.

    Files are never changed once written, but old ones are deleted while experiments run. So they are copied before and
    after the database; should a checkpoint that the copy names have come and gone in between, all is tried again.
    """
    database = Database(settings.database, wal_checkpoints=False)
    try:
        missing = 0
        if database.path is None:
            raise BackupRefused("this copies SQLite; for PostgreSQL use pg_dump, and copy the storage after it")
        if not database.path.is_file():
            raise BackupRefused(f"there is no database at {database.path}")
        if target.exists() and any(target.iterdir()):
            raise BackupRefused(f"{target} is not empty; give a new folder")
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = Settings(home=target)
        source = Storage(settings.storage).local(CHECKPOINTS)
        if source is None:
            log.warning("the storage %s is not on this machine and is not copied", settings.storage)
        for attempt in range(1, TRIES + 1):
            _copy_files(source, Path(copy.storage))
            database.copy_to(target / "fedarena.db")
            _copy_files(source, Path(copy.storage))
            missing = _missing(copy) if source is not None else 0
            if not missing:
                break
            log.info("%d checkpoints were replaced while they were copied (try %d)", missing, attempt)
        return Copied(target, _size(target), _count(copy), missing)
    finally:
        database.close()


def _copy_files(source: Path | None, target: Path) -> None:
    """What is not there yet. Files that vanish meanwhile were replaced by newer ones."""
    root = None if source is None else source.parent
    for path in root.rglob("*") if root is not None and root.is_dir() else ():
        assert root is not None
        there = target / path.relative_to(root)
        if path.suffix == ".tmp" or there.exists() or not path.is_file():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        part = there.with_name(there.name + ".tmp")
        try:
            shutil.copyfile(path, part)
        except FileNotFoundError:
            part.unlink(missing_ok=True)
            continue
        part.rename(there)


def _missing(copy: Settings) -> int:
    """How many experiments of the copied database name a checkpoint that is not complete in the copy."""
    database = Database(copy.database)
    try:
        with database.read() as session:
            query = experiments.with_deleted(col(Experiment.id), col(Experiment.checkpoint))
            named = session.execute(query.where(col(Experiment.checkpoint).is_not(None))).all()
    finally:
        database.close()
    folder = Path(copy.storage) / CHECKPOINTS
    return sum(not _is_complete(folder / experiment, manifest) for experiment, manifest in named)


def _is_complete(folder: Path, manifest: str) -> bool:
    try:
        entries = files_of_checkpoint((folder / manifest).read_bytes())
    except (OSError, ValueError):
        return False
    return all((folder / entry["file"]).is_file() for entry in entries)


def _count(copy: Settings) -> int:
    database = Database(copy.database)
    try:
        with database.read() as session:
            return int(session.execute(experiments.with_deleted(func.count())).scalar_one())
    finally:
        database.close()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
