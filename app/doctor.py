"""What `fedarena doctor` finds: which parts are real, which fall back, and why."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.store.database import Database, DatabaseUnusable, file_system, sqlite_is_safe, sqlite_module

LOW_DISK_BYTES = 1_000_000_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One part; `needed` means that nothing runs without it."""

    part: str
    status: Literal["ok", "fallback", "missing"]
    text: str
    needed: bool = False


def examine(settings: Settings, try_broker: Callable[[Settings], tuple[bool, str]]) -> list[Finding]:
    """Look at everything; a part that cannot be looked at is a finding too."""

    def broker(settings: Settings) -> Iterator[Finding]:
        real, text = try_broker(settings)
        yield Finding("broker", "ok" if real else "fallback", text)

    parts = (_python, _torch, _sqlite, _database, broker, _data, _disk, _browser)
    return [finding for part in parts for finding in part(settings)]


def _python(_settings: Settings) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch(settings: Settings) -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("torch", "missing", f"cannot be imported: {error}", needed=True)
        return
    cores = os.cpu_count() or 1
    if torch.cuda.is_available():
        device = f"cuda ({torch.cuda.get_device_name(0)}, {torch.cuda.device_count()} in all)"
    else:
        device = "cpu (no CUDA device)"
    if settings.device != "auto":
        device += f"; FEDARENA_DEVICE asks for {settings.device}"
    threads = settings.threads or cores
    yield Finding("torch", "ok", f"{torch.__version__}, device {device}, {threads} of {cores} cores")
    try:
        from engine import vision
    except (ImportError, RuntimeError) as error:
        yield Finding("torchvision", "missing", f"cannot be imported: {error}", needed=True)
        return
    yield Finding("torchvision", "ok", f"imported through {vision.__name__}")


def _sqlite(_settings: Settings) -> Iterator[Finding]:
    module = sqlite_module()
    text = f"SQLite {module.sqlite_version} from {module.__name__}"
    if sqlite_is_safe(module):
        yield Finding("sqlite", "ok", text)
    else:
        yield Finding("sqlite", "fallback", f"{text}: older than 3.51.3, one process alone moves the log into the file")


def _database(settings: Settings) -> Iterator[Finding]:
    try:
        if not settings.database_url and not settings.home.is_dir():
            yield Finding("database", "ok", f"will be made in {settings.home} at the first start")
            return
        database = Database(settings.database)
    except DatabaseUnusable as error:
        yield Finding("database", "missing", str(error), needed=True)
        return
    try:
        with database.engine.connect() as connection:
            inspect(connection).get_table_names()
        where = f" on {file_system(database.path)}" if database.path else ""
        yield Finding("database", "ok", f"{database}{where}")
    except SQLAlchemyError as error:
        text = str(database.unusable(error) or f"{database}: {str(error).splitlines()[0]}")
        yield Finding("database", "missing", text, needed=True)
    finally:
        database.close()


def _data(settings: Settings) -> Iterator[Finding]:
    try:
        from engine.catalogue import catalogue

        known = catalogue(settings.data_root)["datasets"]
    except ImportError as error:
        yield Finding("data sets", "missing", f"the catalogue cannot be read: {error}", needed=True)
        return
    there = [str(item["id"]) for item in known if item.get("available")]
    absent = [str(item["id"]) for item in known if not item.get("available")]
    text = f"there: {', '.join(there) or 'none'}"
    if absent:
        text += f"; not in {settings.data_root}: {', '.join(absent)}"
    yield Finding("data sets", "ok" if there else "missing", text)


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    status: Literal["ok", "missing"] = "ok" if free >= LOW_DISK_BYTES else "missing"
    yield Finding("disk", status, f"{free / 1e9:.1f} GB free at {folder}")


def _browser(_settings: Settings) -> Iterator[Finding]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        yield Finding(
            "browser", "fallback", "no Chromium: the dashboard works in any browser, browser tests are skipped"
        )
    else:
        yield Finding("browser", "ok", f"{found}, for the browser tests")
