"""Fixtures of the workers' tests."""

from tests.services import database, database_url, home, postgres_server, postgres_store, settings, sqlite_database
from tests.workers.processes import with_broker

__all__ = [
    "database",
    "database_url",
    "home",
    "postgres_server",
    "postgres_store",
    "settings",
    "sqlite_database",
    "with_broker",
]
