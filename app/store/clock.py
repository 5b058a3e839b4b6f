"""One clock for all leases: the database server's on PostgreSQL, this machine's on SQLite."""

from typing import Any

from sqlalchemy import Double, Integer, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session

SQLITE_FUNCTION = "fedarena_now"


class now(FunctionElement[float]):  # noqa: N801 an SQL function, written like one
    """Seconds since 1970 as an SQL expression."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _sqlite(_element: now, _compiler: Any, **_: Any) -> str:
    return f"{SQLITE_FUNCTION}()"


@compiles(now, "postgresql")
def _postgresql(_element: now, _compiler: Any, **_: Any) -> str:
    # not now(): that is the start of the transaction, and a transaction may have waited for a lock
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


class minute_of_day(FunctionElement[int]):  # noqa: N801
    """Minutes since midnight, UTC."""

    type = Integer()
    inherit_cache = True


@compiles(minute_of_day, "sqlite")
def _sqlite_minute(_element: minute_of_day, _compiler: Any, **_: Any) -> str:
    return f"(CAST({SQLITE_FUNCTION}() / 60 AS INTEGER) % 1440)"


@compiles(minute_of_day, "postgresql")
def _postgresql_minute(_element: minute_of_day, _compiler: Any, **_: Any) -> str:
    # a cast alone would round
    return "MOD(CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) / 60) AS BIGINT), 1440)"


def read_clock(session: Session) -> float:
    return float(session.execute(select(now())).scalar_one())
