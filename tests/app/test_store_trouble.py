"""A store that is damaged, full, locked or read-only says so: at the start, in every answer, and to whoever watches."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from app.config import Settings
from app.main import create_app
from app.store.clock import read_clock
from app.store.database import PROBE, Database, DatabaseUnusable
from app.store.migrate import migrate
from app.store.trouble import Trouble, diagnose
from tests.services import ROOT, environment, fedarena, http, serving, spec_with, submit


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def no_database(path: Path) -> None:
    path.write_text("This is a note and no database.\n" * 200)


def overwritten(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (size - 100))


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


DAMAGES: dict[Callable[[Path], None], str] = {
    truncated: "the store is damaged",
    no_database: "the store is damaged",
    overwritten: "the store is damaged",
    foreign: "is the database of another program (it holds bookmarks)",
}


def filled(settings: Settings) -> Path:
    """A store with experiments, closed, so that all of it lies in its file."""
    settings.prepare_home()
    database = Database(settings.database)
    migrate(database)
    for _ in range(20):
        submit(database, notes="x" * 1000)
    database.close()
    assert database.path is not None
    return database.path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_is_no_store_is_refused_with_what_to_do(
    settings: Settings, damage: Callable[[Path], None]
) -> None:
    path = filled(settings)
    damage(path)
    database = Database(settings.database)
    with pytest.raises(DatabaseUnusable) as refused:
        migrate(database)
    database.close()
    assert DAMAGES[damage] in str(refused.value)
    assert str(path) in str(refused.value)
    assert "move" in str(refused.value)


def asked(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, env = fedarena(*arguments), environment(settings)
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("command", ["serve", "worker", "backup"])
def test_no_command_answers_a_damaged_store_with_a_traceback(settings: Settings, tmp_path: Path, command: str) -> None:
    path = filled(settings)
    truncated(path)
    options = {"serve": ["--no-worker", "--port", "0"], "worker": [], "backup": [str(tmp_path / "copy")]}
    found = asked(settings, command, *options[command])
    assert (found.returncode, "Traceback" in found.stderr) == (2, False), found.stderr
    words = " ".join(found.stderr.split())
    assert f"{path}: the store is damaged; stop FedArena, then restore a backup" in words


def test_the_doctor_finds_a_damaged_store(settings: Settings) -> None:
    truncated(filled(settings))
    assert "the store is damaged" in " ".join(asked(settings, "doctor").stdout.split())


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_home_that_is_a_file_is_called_by_its_name(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    home.touch()
    found = asked(Settings(home=home, starter=False), command)
    words = " ".join(found.stderr.split())
    assert found.returncode == 2, words
    assert f"the folder {home} cannot be used: it is a file, not a folder; set FEDARENA_HOME to another one" in words
    assert "listen" not in words


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """Skips the test where this user may not mount anything."""
    mount, umount = (shutil.which(name) or name for name in ("mount", "umount"))
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([mount, *options, str(folder)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)


def test_a_home_on_a_disk_that_is_read_only_is_called_by_its_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with mounted(home, "-t", "tmpfs", "-o", "ro", "tmpfs"):
        found = asked(Settings(home=home, starter=False), "serve", "--no-worker")
    words = " ".join(found.stderr.split())
    assert found.returncode == 2, words
    assert f"the folder {home} cannot be used: Read-only file system" in words


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_told_as_such_until_there_is_room(home: Path) -> None:
    folder = home / "small"
    with mounted(folder, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        settings = Settings(home=folder / "home", starter=False)
        with serving(settings) as address, http(address) as client:
            assert client.post("/api/experiments", json=spec_with()).status_code == 201
            assert client.get("/readyz").status_code == 200
            waste = folder / "waste"
            fill(waste)
            # the log of the database may have a few pages left
            answers = [client.post("/api/experiments", json=spec_with(notes="x" * 9000)) for _ in range(40)]
            refused = answers[-1]
            assert refused.status_code == 503
            [error] = refused.json()["errors"]
            assert "the disk of the store is full" in error["message"]
            assert error["value"] == "full"
            assert int(refused.headers["retry-after"]) > 0
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["errors"][0]["value"]) == (503, "full")
            assert client.get("/healthz").status_code == 200
            assert client.get("/api/experiments").status_code == 200, "reading goes on"
            waste.unlink()
            assert client.get("/readyz").status_code == 200
            stored = sum(answer.status_code == 201 for answer in answers)
            assert client.post("/api/experiments", json=spec_with()).status_code == 201
            assert client.get("/api/experiments").json()["total"] == stored + 2


@pytest.fixture
def client(settings: Settings) -> TestClient:
    """Without the threads of a server, so that a test can close all connections."""
    return TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False)


def reason(client: TestClient, path: str = "/readyz") -> tuple[int, str]:
    answer = client.get(path)
    return answer.status_code, answer.json()["errors"][0]["value"]


def test_a_store_that_somebody_locks_is_not_ready(client: TestClient, sqlite_database: Database) -> None:
    assert client.get("/readyz").status_code == 200
    with sqlite_database.write() as session:
        read_clock(session)  # a transaction begins with its first statement
        assert reason(client) == (503, "locked")
        assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_store_that_is_damaged_while_it_is_used_is_told_as_such(client: TestClient, settings: Settings) -> None:
    database = client.app.state.database  # type: ignore[attr-defined]
    submit(database)
    database.close()
    overwritten(database.path)
    assert reason(client) == (503, "damaged")
    assert reason(client, "/api/experiments") == (503, "damaged")
    assert client.get("/healthz").status_code == 200
    page = client.get("/experiments", headers={"accept": "text/html"})
    assert page.status_code == 503
    assert "The store is damaged; stop FedArena, then restore a backup" in page.text


def test_a_store_on_a_disk_that_became_read_only_is_told_as_such(home: Path) -> None:
    folder = home / "disk"
    with mounted(folder, "-t", "tmpfs", "tmpfs"):
        app = create_app(Settings(home=folder, starter=False))
        client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
        assert client.get("/readyz").status_code == 200
        app.state.database.close()
        mount = shutil.which("mount") or "mount"
        subprocess.run([mount, "-o", "remount,ro", str(folder)], check=True)
        assert reason(client) == (503, "read-only")
        refused = client.post("/api/experiments", json=spec_with())
        assert refused.status_code == 503
        assert "the store cannot be written" in refused.json()["errors"][0]["message"]
        assert client.get("/healthz").status_code == 200


@pytest.mark.postgres
def test_a_postgresql_is_asked_to_write_too(postgres: Database) -> None:
    postgres.try_writing()
    postgres.try_writing()
    url = postgres.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    reading = create_engine(url)
    with reading.connect() as connection, pytest.raises(DBAPIError) as refused:
        connection.execute(PROBE)
    reading.dispose()
    assert diagnose(refused.value) is Trouble.READ_ONLY
