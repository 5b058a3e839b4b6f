"""Bring the schema up to date at start: under an exclusive lock, after a copy, and never from a newer version down."""

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel

from app.store import tables  # noqa: F401 so that the metadata knows them
from app.store.database import Database, DatabaseUnusable
from app.store.spec_versions import upgrade_specs
from engine.spec.versions import SPEC_VERSION

log = logging.getLogger(__name__)

ADVISORY_LOCK = 0x0FEDA12E
"""Any number, the same in every process that migrates a PostgreSQL database of ours."""


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def migrate(database: Database) -> None:
    """To the newest schema; nothing happens when it is there already.

    DatabaseUnusable: it is damaged, another program's, of a newer version, or cannot be written.
    """
    try:
        _migrate(database)
    except DBAPIError as error:
        raise database.unusable(error) or error from None
    except OSError as error:
        raise DatabaseUnusable(f"{error.filename or database}: {error.strerror or error}") from None


def _migrate(database: Database) -> None:
    config = alembic_config()
    scripts = ScriptDirectory.from_config(config)
    head = scripts.get_current_head()
    known = {script.revision for script in scripts.walk_revisions()}
    with _exclusive(database):
        with database.engine.connect() as connection:
            current = _revision(connection)
        if current == head:
            _upgrade_specs(database)
            return
        if current is not None and current not in known:
            raise DatabaseUnusable(
                f"{database} has schema {current}, which this version of FedArena does not know (newest here: {head}); "
                "install the newer version again, or use another FEDARENA_HOME"
            )
        if current is None and (others := _tables(database) - set(SQLModel.metadata.tables) - {"alembic_version"}):
            raise DatabaseUnusable(
                f"{database} is the database of another program (it holds {', '.join(sorted(others)[:5])}); "
                "move it away, or use another FEDARENA_HOME"
            )
        if current is not None and database.path is not None:
            _copy(database, current)
        # journal and foreign-key pragmas do not mix with a migration's own transactions, so it gets a plain connection
        with database.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
        log.info("database schema %s -> %s", current or "none", head)
        _upgrade_specs(database)


def _upgrade_specs(database: Database) -> None:
    def before() -> None:
        if database.path is not None:
            _copy(database, f"spec-{SPEC_VERSION}")

    if count := upgrade_specs(database, before):
        log.info("specs of %d experiments are of version %d now", count, SPEC_VERSION)


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _tables(database: Database) -> set[str]:
    """Of an SQLite file; a server's database may hold what it likes beside ours."""
    return set(inspect(database.engine).get_table_names()) if database.is_sqlite else set()


def _copy(database: Database, what: str) -> None:
    assert database.path is not None
    target = database.path.with_name(f"{database.path.stem}-before-{what}-{int(time.time())}.db")
    database.copy_to(target)
    log.info("copied the database to %s before migrating it", target)


@contextmanager
def _exclusive(database: Database) -> Iterator[None]:
    """Two processes that start together must not migrate at once."""
    if database.path is not None:
        with database.path.with_name(database.path.name + ".migrate").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        return
    with database.engine.connect() as connection:
        connection.execute(text("SET lock_timeout = 0"))
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
        connection.commit()
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
            connection.commit()
            connection.invalidate()  # its time-outs were changed; do not hand it on
