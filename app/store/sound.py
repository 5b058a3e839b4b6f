"""What comes out of the store has the type that was declared, whatever somebody or something put into a row.

A row that cannot be shown could not be deleted either, and one such row would take the lists with it. Values that are
damaged are shown as missing; nothing is written back unless somebody changes it.
"""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Double, Integer, SQLColumnExpression, String, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from app.numbers import finite
from app.store.states import State

log = logging.getLogger(__name__)

SPEC: dict[str, Any] = {
    "algorithm": {"name": "?"},
    "dataset": {"name": "?"},
    "partition": {"name": "?"},
    "models": {"family": "?"},
    "topology": "?",
    "clients": 0,
    "participation": 0.0,
    "rounds": 0,
    "training": {"epochs": 0},
    "evaluation": {},
    "seed": 0,
}
"""What lists and pages take for granted in a spec, and what stands for it where it is missing."""
NUMBERS = (int, float)
_NOT_FINITE = re.compile(r"NaN|Infinity|[eE]\+?\d{3}")
"""Numbers that Python reads and no JSON may hold; a name may contain this too, and costs a little time."""


class Real(TypeDecorator[float]):
    """A finite number; `wrong` where there is none."""

    impl = Double
    cache_ok = True

    def __init__(self, wrong: float | None = 0.0) -> None:
        super().__init__()
        self.wrong = wrong

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        if value is None or (isinstance(value, NUMBERS) and math.isfinite(value)):
            return value
        return self.wrong


class Moment(Real):
    """Seconds since 1970. One that is no number lies in the far future: for conditions in SQL, too, it is there."""

    cache_ok = True

    def __init__(self) -> None:
        super().__init__(sys.float_info.max)

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        return -sys.float_info.max if value == -math.inf else super().process_result_value(value, _dialect)


class Whole(TypeDecorator[int]):
    """A whole number; `wrong` where there is none."""

    impl = Integer
    cache_ok = True

    def __init__(self, wrong: int | None = 0) -> None:
        super().__init__()
        self.wrong = wrong

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        return value if value is None or isinstance(value, int) else self.wrong


class BigWhole(Whole):
    """The same with 64 bits."""

    impl = BigInteger
    cache_ok = True


class StateText(TypeDecorator[State]):
    """A state; one that this version does not know counts as failed, so that its experiment can be deleted."""

    impl = String(16)
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: Dialect) -> str | None:
        return None if value is None else State(value).value

    def process_result_value(self, value: Any, _dialect: Dialect) -> State | None:
        if value is None:
            return None
        try:
            return State(value)
        except ValueError:
            log.warning("an experiment has the unknown state %r and is shown as failed", value)
            return State.FAILED


class Object(TypeDecorator[dict[str, Any]]):
    """A JSON object; another value counts as missing."""

    impl = JSON
    cache_ok = True

    def __init__(self, nullable: bool = False) -> None:
        super().__init__(none_as_null=nullable)
        self.nullable = nullable

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        return value if isinstance(value, dict) else None if self.nullable else {}


class Totals(TypeDecorator[dict[str, int]]):
    """Sums over the rounds."""

    impl = JSON
    cache_ok = True

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        found = value if isinstance(value, dict) else {}
        names = ("bytes_up", "bytes_down", "client_flops")
        return {name: total if isinstance(total := found.get(name), int) else 0 for name in names}


class ListOf(TypeDecorator[list[Any]]):
    """A JSON list; entries of another type count as missing."""

    impl = JSON
    cache_ok = True

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        return [item for item in value if isinstance(item, self.kind)] if isinstance(value, list) else []


def read_json(text: str | bytes) -> Any:
    """None for what is no JSON, which SQLite does not prevent."""
    try:
        value = json.loads(text)
        return finite(value) if _NOT_FINITE.search(text if isinstance(text, str) else text.decode()) else value
    except (ValueError, RecursionError):
        log.warning("the store holds %.60r where JSON must be", text)
        return None


def is_sound(spec: Any) -> bool:
    """It has what lists and pages take for granted."""
    return _fits(spec, SPEC)


def sound_spec(spec: Any) -> dict[str, Any]:
    """The spec itself, or with something in the place of each part that is missing."""
    found: dict[str, Any] = spec if is_sound(spec) else _filled(spec, SPEC)
    return found


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(_fits(value.get(key), inner) for key, inner in wanted.items())
    return isinstance(value, NUMBERS if isinstance(wanted, float) else type(wanted)) and not isinstance(value, bool)


def _filled(value: Any, wanted: Any) -> Any:
    if not isinstance(wanted, dict):
        return value if _fits(value, wanted) else wanted
    found = value if isinstance(value, Mapping) else {}
    return {**found, **{key: _filled(found.get(key), inner) for key, inner in wanted.items()}}


class _Inside(FunctionElement[Any]):
    """What a JSON object holds under a key."""

    inherit_cache = True

    def __init__(self, column: SQLColumnExpression[Any], key: str) -> None:
        super().__init__(column, literal(key))


class number_at(_Inside):  # noqa: N801 an SQL function, written like one
    """A number inside a JSON object; null where there is none."""

    type = Double()
    inherit_cache = True


@compiles(number_at, "sqlite")
def _sqlite_number(element: number_at, compiler: Any, **options: Any) -> str:
    column, key = (compiler.process(part, **options) for part in element.clauses)
    return f"CASE WHEN json_valid({column}) THEN CAST(json_extract({column}, '$.' || {key}) AS REAL) END"


@compiles(number_at, "postgresql")
def _postgresql_number(element: number_at, compiler: Any, **options: Any) -> str:
    column, key = (compiler.process(part, **options) for part in element.clauses)
    text = f"({column} ->> CAST({key} AS TEXT))"
    number = "^-?[0-9]{1,200}([.][0-9]+)?([eE][-+]?[0-9]{1,2})?$"
    return f"CASE WHEN {text} ~ '{number}' THEN CAST({text} AS DOUBLE PRECISION) END"


class text_at(_Inside):  # noqa: N801
    """A text inside a JSON object; points in the key lead into objects inside. Null where there is none."""

    type = String()
    inherit_cache = True


@compiles(text_at, "sqlite")
def _sqlite_text(element: text_at, compiler: Any, **options: Any) -> str:
    column, path = (compiler.process(part, **options) for part in element.clauses)
    return f"CASE WHEN json_valid({column}) THEN json_extract({column}, '$.' || {path}) END"


@compiles(text_at, "postgresql")
def _postgresql_text(element: text_at, compiler: Any, **options: Any) -> str:
    column, path = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} #>> string_to_array(CAST({path} AS TEXT), '.'))"


class length_of(FunctionElement[int]):  # noqa: N801
    """The length of a JSON list; 0 where there is none."""

    type = Integer()
    inherit_cache = True


@compiles(length_of, "sqlite")
def _sqlite_length(element: length_of, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    return f"CASE WHEN json_valid({column}) THEN json_array_length({column}) ELSE 0 END"


@compiles(length_of, "postgresql")
def _postgresql_length(element: length_of, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    return f"CASE WHEN json_typeof({column}) = 'array' THEN json_array_length({column}) ELSE 0 END"
