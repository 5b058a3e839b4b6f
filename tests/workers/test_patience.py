"""Which errors of a store are waited for: those that pass by themselves."""

import sqlite3

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from app.store.database import Database
from workers.patience import passes


def error_of(url: str, statement: str = "SELECT 1") -> DBAPIError:
    store = Database(url)
    try:
        with pytest.raises(DBAPIError) as caught, store.read() as session:
            session.execute(text(statement))
    finally:
        store.close()
    return caught.value


@pytest.mark.parametrize(
    "address",
    ["nobody.invalid:5432", "127.0.0.1:1"],
    ids=["no such host", "nobody listens"],
)
def test_a_server_that_is_not_reached_is_waited_for(address: str) -> None:
    error = error_of(f"postgresql+psycopg://fedarena:secret@{address}/fedarena")
    assert passes(error), error


@pytest.mark.postgres
def test_what_the_server_refuses_is_not_waited_for(postgres_store: str) -> None:
    error = error_of(postgres_store, "SELECT * FROM no_such_table")
    assert isinstance(error, ProgrammingError)
    assert not passes(error)


@pytest.mark.postgres
def test_a_statement_that_the_server_breaks_off_for_want_of_room_is_not_waited_for(postgres_store: str) -> None:
    full = (
        "DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
    )
    error = error_of(postgres_store, full)
    assert isinstance(error, OperationalError)
    assert not passes(error)


def test_a_full_disk_under_sqlite_is_not_waited_for() -> None:
    assert not passes(OperationalError(None, None, sqlite3.OperationalError("database or disk is full")))
