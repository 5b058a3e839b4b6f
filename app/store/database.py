"""Connections: SQLite tuned for one machine, PostgreSQL for many, and one transaction per unit of work."""

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlmodel import Session

from app.store.clock import SQLITE_FUNCTION
from app.store.sound import read_json
from app.store.trouble import diagnose

log = logging.getLogger(__name__)

SAFE_SQLITE = (3, 51, 3)
"""Older versions can damage a WAL database when two connections write and checkpoint at the same instant."""
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "fuse.sshfs",
        "fuse.glusterfs",
        "lustre",
    }
)
BUSY_MILLISECONDS = 10_000
"""How long a connection waits for another one's lock."""
PROBE_MILLISECONDS = 1000
"""The same for whoever only asks whether it can be written."""
PROBE = text(
    "INSERT INTO lease (name, owner, until) VALUES ('probe', 'readyz', 0) "
    "ON CONFLICT (name) DO UPDATE SET until = lease.until + 1"
)
POSTGRES_TIMEOUTS = "-c lock_timeout=10000 -c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000"

SILENCE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}
"""A server whose host is cut off says nothing at all. Left to the kernel, a connection would wait for it for a quarter
of an hour; here it is given up after half a minute."""


class DatabaseUnusable(Exception):
    """The database cannot be used as it is; the message says why and what to do."""


def sqlite_module() -> ModuleType:
    """The newest SQLite at hand: the pysqlite3 wheel, else Python's own."""
    try:
        import pysqlite3
    except ImportError:
        return sqlite3
    module: ModuleType = pysqlite3
    return module


def sqlite_is_safe(module: ModuleType) -> bool:
    return tuple(module.sqlite_version_info) >= SAFE_SQLITE


def file_system(path: Path) -> str:
    """The type of the file system that holds the path, by the kernel's mount table; empty where there is none."""
    table = Path("/proc/self/mounts")
    if not table.exists():
        return ""
    target, best, kind = path.resolve(), Path(), ""
    for line in table.read_text().splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = Path(fields[1].encode().decode("unicode_escape"))
        if target.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, fields[2]
    return kind


class Database:
    """A pool of connections and the two kinds of transaction."""

    def __init__(self, url: str, *, wal_checkpoints: bool = True, clock: Callable[[], float] = time.time) -> None:
        """`wal_checkpoints` false: this process never moves the WAL into the file if SQLite is too old to share that.

        `clock` is SQLite's; PostgreSQL has its own.
        """
        self.url = _parse(url)
        self._clock = clock
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = self._sqlite(wal_checkpoints) if self.is_sqlite else self._postgresql()
        self._writing = self.engine.execution_options(fedarena_write=True)
        # several queries of one look must see the same moment, which SQLite gives by itself
        self._reading = (
            self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A short look; holds no lock that would stop a writer."""
        with Session(self._reading, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end. Do nothing but SQL inside: on SQLite everybody else waits."""
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def try_writing(self) -> None:
        """Commit something small, without a long wait for a lock; what the database refuses is raised."""
        with self._writing.connect() as connection:
            cursor = connection.connection.cursor()  # a time-out cannot be set inside a transaction
            if self.is_sqlite:
                cursor.execute(f"PRAGMA busy_timeout={PROBE_MILLISECONDS}")
            try:
                with connection.begin():
                    if not self.is_sqlite:
                        connection.execute(text(f"SET LOCAL lock_timeout = {PROBE_MILLISECONDS}"))
                    connection.execute(PROBE)
            finally:
                if self.is_sqlite:
                    cursor.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
                cursor.close()

    def close(self) -> None:
        self.engine.dispose()

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def unusable(self, error: Exception) -> DatabaseUnusable | None:
        """The error in words where waiting does not help; None: it may pass, or is nothing that is wrong with it."""
        trouble = diagnose(error)
        if trouble is None or trouble.passes:
            return None
        return DatabaseUnusable(f"{self.path or self}: {trouble.sentence} ({str(error).splitlines()[0]})")

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database."""
        return Path(self.url.database) if self.is_sqlite and self.url.database else None

    def copy_to(self, target: Path) -> None:
        """An SQLite database as it is at one moment, while others write; complete or not at all."""
        part = target.with_name(target.name + ".tmp")
        part.unlink(missing_ok=True)
        try:
            connection = self.engine.raw_connection()  # without the BEGIN of ours, inside which no VACUUM is possible
            try:
                connection.cursor().execute("VACUUM INTO ?", (str(part),))
            finally:
                connection.close()
        except (sqlite_module().DatabaseError, DBAPIError) as error:  # the first without SQLAlchemy around it
            part.unlink(missing_ok=True)
            raise self.unusable(error) or error from None
        part.chmod(0o600)
        part.replace(target)

    def _sqlite(self, wal_checkpoints: bool) -> Engine:
        if not self.url.database or self.url.database == ":memory:":
            raise DatabaseUnusable(
                "SQLite must be a file, because web and workers share it; give sqlite:////path/file.db"
            )
        path = Path(self.url.database)
        if not path.parent.is_dir():
            raise DatabaseUnusable(f"the folder of the database does not exist: {path.parent}; create it first")
        kind = file_system(path.parent)
        if kind in NETWORK_FILE_SYSTEMS:
            raise DatabaseUnusable(
                f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold; "
                "put FEDARENA_HOME on a local disk or set FEDARENA_DATABASE_URL to a PostgreSQL server"
            )
        module = sqlite_module()
        safe = sqlite_is_safe(module)
        if not safe:
            log.warning(
                "SQLite %s is older than %s and can damage a database that several processes write; "
                "install the wheel pysqlite3, or use PostgreSQL",
                module.sqlite_version,
                ".".join(map(str, SAFE_SQLITE)),
            )
        engine = create_engine(
            self.url,
            module=module,
            connect_args={"check_same_thread": False},
            json_serializer=_to_json,
            json_deserializer=read_json,
        )
        autocheckpoint = 1000 if wal_checkpoints or safe else 0

        @event.listens_for(engine, "connect")
        def _prepare(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # transactions are begun below, not by the driver
            connection.create_function(SQLITE_FUNCTION, 0, self._clock)
            cursor = connection.cursor()
            # the time-out comes first: changing the journal mode needs a lock itself
            cursor.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute("PRAGMA temp_store=MEMORY")
            cursor.execute(f"PRAGMA wal_autocheckpoint={autocheckpoint}")
            cursor.execute(f"PRAGMA journal_size_limit={64 * 1024 * 1024}")
            cursor.close()

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            # a transaction that starts by reading and then writes would fail at once when another one writes
            writes = connection.get_execution_options().get("fedarena_write", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _postgresql(self) -> Engine:
        return create_engine(
            self.url,
            pool_pre_ping=True,
            connect_args={"options": POSTGRES_TIMEOUTS, "connect_timeout": 10, **SILENCE},
            json_serializer=_to_json,
            json_deserializer=read_json,
        )


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _parse(given: str) -> URL:
    try:
        url = make_url(given)
    except ArgumentError:
        raise DatabaseUnusable("FEDARENA_DATABASE_URL is not a URL like postgresql://user@host/name") from None
    if url.drivername in {"postgres", "postgresql"}:
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        raise DatabaseUnusable(f"a database must be SQLite or PostgreSQL, but got {url.get_backend_name()}")
    return url
