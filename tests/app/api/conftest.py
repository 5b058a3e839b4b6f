"""One real server for the tests of the routes."""

from collections.abc import Iterator

import httpx
import pytest

from app.config import Settings
from app.store.database import Database
from tests.services import http, serving, short_folder


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Settings]]:
    with short_folder() as home:
        settings = Settings(home=home, starter=False)
        with serving(settings) as address:
            yield address, settings


@pytest.fixture
def address(served: tuple[str, Settings]) -> str:
    return served[0]


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with http(address) as client:
        yield client


@pytest.fixture
def store(served: tuple[str, Settings]) -> Iterator[Database]:
    """The server's own store, through another connection."""
    store = Database(served[1].database)
    yield store
    store.close()
