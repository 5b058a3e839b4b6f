"""Fixtures of the service's tests."""

from tests.services import (
    database,
    database_url,
    home,
    postgres,
    postgres_server,
    postgres_store,
    settings,
    sqlite_database,
)

__all__ = [
    "database",
    "database_url",
    "home",
    "postgres",
    "postgres_server",
    "postgres_store",
    "settings",
    "sqlite_database",
]
