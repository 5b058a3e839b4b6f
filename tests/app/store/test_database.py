"""Connections, refusals and migrations."""

import json
import logging
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, column, insert, table, text
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

from app.store import database as database_module
from app.store import experiments, rounds
from app.store.database import Database, DatabaseUnusable
from app.store.migrate import alembic_config, migrate
from app.store.states import State
from app.store.tables import Experiment, Round
from tests.services import ROOT, postgres_database, submit


def pragma(store: Database, name: str) -> object:
    with store.engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_sqlite_waits_for_locks_logs_ahead_and_survives_a_power_cut(sqlite_database: Database) -> None:
    names = ("busy_timeout", "journal_mode", "synchronous", "foreign_keys", "temp_store", "journal_size_limit")
    found = [pragma(sqlite_database, name) for name in names]
    assert found == [10_000, "wal", 2, 1, 2, 64 * 1024 * 1024]


def test_reading_goes_on_while_another_connection_writes(sqlite_database: Database) -> None:
    with sqlite_database.write() as writing:
        writing.execute(text("UPDATE counter SET value = 5"))
        with sqlite_database.read() as reading:
            assert reading.execute(text("SELECT value FROM counter")).scalar_one() == 0


def test_a_write_transaction_takes_the_lock_before_it_reads_and_others_wait_only_so_long(
    home: Path, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_MILLISECONDS", 50)
    impatient = Database(f"sqlite:///{home / 'fedarena.db'}")
    with sqlite_database.write() as session:
        session.execute(text("SELECT 1"))
        with pytest.raises(OperationalError, match="locked"), impatient.write() as other:
            other.execute(text("SELECT 1"))
    impatient.close()


def test_a_network_file_system_is_refused_with_a_way_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "file_system", lambda _path: "nfs4")
    with pytest.raises(DatabaseUnusable, match=r"network file system \(nfs4\).*PostgreSQL"):
        Database(f"sqlite:///{home / 'x.db'}")


def test_the_file_system_of_a_path_is_found_in_the_mount_table() -> None:
    assert database_module.file_system(Path("/proc/self")) == "proc"


def test_an_old_sqlite_is_used_with_a_warning_and_leaves_checkpoints_to_one_process(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_module, "sqlite_is_safe", lambda _module: False)
    with caplog.at_level(logging.WARNING):
        web = Database(f"sqlite:///{home / 'x.db'}")
        worker = Database(f"sqlite:///{home / 'x.db'}", wal_checkpoints=False)
    assert "pysqlite3" in caplog.text
    assert (pragma(web, "wal_autocheckpoint"), pragma(worker, "wal_autocheckpoint")) == (1000, 0)
    web.close()
    worker.close()


@pytest.mark.parametrize(("version", "safe"), [((3, 51, 2), False), ((3, 51, 3), True), ((3, 53, 0), True)])
def test_sqlite_is_safe_from_the_version_that_repaired_the_log(version: tuple[int, int, int], safe: bool) -> None:
    module = SimpleNamespace(sqlite_version_info=version)
    assert database_module.sqlite_is_safe(module) is safe  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite://", "must be a file"),
        ("sqlite:////no/such/folder/x.db", "does not exist"),
        ("mysql://host/name", "SQLite or PostgreSQL, but got mysql"),
        ("what is this", "not a URL"),
    ],
)
def test_a_database_that_cannot_work_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(DatabaseUnusable, match=reason):
        Database(url)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in str(Database("postgresql://user:secret@host/name"))


def test_the_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []


def test_migrating_again_changes_nothing(database: Database) -> None:
    submit(database)
    migrate(database)
    with database.read() as session:
        assert session.execute(text("SELECT count(*) FROM experiment")).scalar_one() == 1


def test_a_newer_schema_is_refused_and_left_alone(sqlite_database: Database) -> None:
    with sqlite_database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseUnusable, match="schema 9999, which this version"):
        migrate(sqlite_database)
    with sqlite_database.read() as session:
        assert session.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"


def test_a_store_of_the_first_schema_keeps_its_experiments(home: Path) -> None:
    store = Database(f"sqlite:///{home / 'old.db'}")
    config = alembic_config()
    with store.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.commit()
    submitted = experiment_values()
    with store.engine.begin() as connection:
        first = table("experiment", *(column(name) for name in submitted))
        connection.execute(insert(first).values(submitted))
    migrate(store)
    with store.read() as session:
        row = session.get(Experiment, submitted["id"])
        assert row is not None
        assert (row.state, row.pause, row.sweep, row.deleted_at) == (State.QUEUED, False, None, None)
    store.close()
    assert len(list(home.glob("old-before-0001-*.db"))) == 1


def experiment_values() -> dict[str, Any]:
    """A row as the first schema had it."""
    empty = dict.fromkeys(("priority", "start_after", "fence", "attempts", "deaths", "next_round", "seconds"), 0)
    flags = {"mixed_environment": False, "bit_identical": True, "cancel": False}
    texts = {"tags": "[]", "notes": "", "algorithm": "standalone", "dataset": "digits", "spec": "{}", "totals": "{}"}
    numbers = {"created_at": 1.0, "place": 1, "rounds": 3, "seq": 1, "state_seq": 1}
    return {"id": "0" * 26, "fingerprint": "f" * 64, "state": "queued", **empty, **flags, **texts, **numbers}


def race(url: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            store = Database(url)
            migrate(store)
            store.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store = Database(url)
    with store.read() as session:
        assert session.execute(text("SELECT count(*) FROM counter")).scalar_one() == 1
    store.close()


def test_processes_that_start_together_migrate_once(home: Path) -> None:
    race(f"sqlite:///{home / 'fresh.db'}")


@pytest.mark.postgres
def test_processes_that_start_together_migrate_once_on_postgresql(postgres_server: str) -> None:
    with postgres_database(postgres_server) as url:
        race(url)


def old_store(url: str, rows: int) -> Database:
    """A store of the first schema with experiments and rounds."""
    store = Database(url)
    config = alembic_config()
    with store.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.commit()
    values = experiment_values()
    if not store.is_sqlite:
        values |= {name: json.loads(values[name]) for name in ("tags", "spec", "totals")}
    types = dict.fromkeys(("tags", "spec", "totals"), JSON) if not store.is_sqlite else {}
    first = table("experiment", *(column(name, types.get(name)) for name in values))
    with store.engine.begin() as connection:
        connection.execute(insert(first), [{**values, "id": f"{number:026d}"} for number in range(rows)])
    return store


def rows_of(store: Database) -> tuple[int, str]:
    with store.read() as session:
        count = session.execute(text("SELECT count(*) FROM experiment")).scalar_one()
        return count, session.execute(text("SELECT version_num FROM alembic_version")).scalar_one()


LONG = [pytest.mark.slow, pytest.mark.chaos]


def migrated_without_loss(url: str, rows: int) -> None:
    store = old_store(url, rows)
    migrate(store)
    assert rows_of(store) == (rows, "0009")
    store.close()


@pytest.mark.parametrize("rows", [1000, pytest.param(100_000, marks=LONG)])
def test_an_old_store_with_many_rows_is_migrated_without_loss(home: Path, rows: int) -> None:
    migrated_without_loss(f"sqlite:///{home / 'old.db'}", rows)


@pytest.mark.postgres
@pytest.mark.parametrize("rows", [1000, pytest.param(100_000, marks=LONG)])
def test_an_old_store_with_many_rows_is_migrated_without_loss_on_postgresql(postgres_server: str, rows: int) -> None:
    with postgres_database(postgres_server) as url:
        migrated_without_loss(url, rows)


def annotations_are_kept_once(url: str) -> None:
    """What stands in the columns holds: it is what lists have always shown."""
    store = old_store(url, 3)
    specs = [
        '{"name": "old", "tags": ["a"], "notes": "", "training": {"lr": 1e-3}, "clients": 3}',
        '{"clients": 3}',
        "[1]",
    ]
    kind = "" if store.is_sqlite else "CAST(:spec AS JSON)"
    with store.engine.begin() as connection:
        for number, spec in enumerate(specs):
            statement = text(f"UPDATE experiment SET name = 'new', spec = {kind or ':spec'} WHERE id = :id")  # noqa: S608
            connection.execute(statement, {"spec": spec, "id": f"{number:026d}"})
        if store.is_sqlite:
            connection.execute(text("UPDATE experiment SET spec = 'no JSON' WHERE id = :id"), {"id": f"{2:026d}"})
    migrate(store)
    with store.read() as session:
        first, other, damaged = (experiments.get_one(session, f"{number:026d}") for number in range(3))
    assert first.spec == {"training": {"lr": 1e-3}, "clients": 3}
    assert list(experiments.full_spec(first)) == ["name", "tags", "notes", "training", "clients"]
    assert (experiments.full_spec(first)["name"], other.spec, damaged.spec) == ("new", {"clients": 3}, {})
    store.close()


def test_the_annotations_of_an_old_store_are_kept_once(home: Path) -> None:
    annotations_are_kept_once(f"sqlite:///{home / 'old.db'}")


@pytest.mark.postgres
def test_the_annotations_of_an_old_store_are_kept_once_on_postgresql(postgres_server: str) -> None:
    with postgres_database(postgres_server) as url:
        annotations_are_kept_once(url)


def test_a_round_of_an_old_store_left_nobody_out_and_was_not_validated(home: Path) -> None:
    url = f"sqlite:///{home / 'old.db'}"
    store = old_store(url, 1)
    later = {"dropped", "validation_accuracy"}
    values: dict[str, int | str] = {name: 0 for name in Round.model_fields if name not in {*later, "accuracy", "loss"}}
    values |= {"experiment": f"{0:026d}", "cohort": "[]", "client_accuracy": "{}", "traces": "{}"}
    with store.engine.begin() as connection:
        connection.execute(insert(table("round", *(column(name) for name in values))), [values])
    migrate(store)
    with store.read() as session:
        (row,) = rounds.after(session, f"{0:026d}")
        assert (row["dropped"], row["validation_accuracy"]) == ([], None)
    store.close()


KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from app.store.database import Database
from app.store.migrate import migrate
left = int(sys.argv[2])
@event.listens_for(Engine, "before_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
migrate(Database(sys.argv[1]))
print(int(sys.argv[2]) - left)
"""
"""Dies before the so-manieth statement; with a large number it tells how many there are."""


def migration(url: str, statement: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, url, str(statement)]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)


def killed_half_way(url: str, times: int) -> None:
    old_store(url, 100).close()
    dice, last = random.Random(times), 20
    for _ in range(times):
        killed = migration(url, dice.randint(1, last))
        assert killed.returncode == -signal.SIGKILL
        store = Database(url)
        assert rows_of(store) == (100, "0001"), "nothing of it counts"
        store.close()
    done = migration(url, 10_000)
    assert int(done.stdout) > last, "the last statement comes later than all of these"
    store = Database(url)
    assert rows_of(store) == (100, "0009")
    store.close()


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=LONG)])
def test_a_migration_killed_half_way_is_done_anew(home: Path, times: int) -> None:
    killed_half_way(f"sqlite:///{home / 'old.db'}", times)


@pytest.mark.postgres
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=LONG)])
def test_a_migration_killed_half_way_is_done_anew_on_postgresql(postgres_server: str, times: int) -> None:
    with postgres_database(postgres_server) as url:
        killed_half_way(url, times)
