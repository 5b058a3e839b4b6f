"""A row that somebody or something has damaged is shown with the others and can be deleted, whatever it holds."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Boolean, Float, Integer, String, text
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.config import Settings
from app.store import experiments, sweeps
from app.store.database import Database
from app.store.listing import Sort
from app.store.plan import Plan
from app.store.sound import ListOf, Object, StateText, Totals
from app.store.states import State
from app.store.tables import Experiment, Round, Sweep
from engine.spec.experiment import ExperimentSpec
from tests.services import ROOT, SPEC, empty, environment, fedarena, http, record, serving, spec_with

MISSING = object()
ODD: tuple[Any, ...] = (MISSING, None, "x", [])
SPECS = [
    {key: value for key, value in {**SPEC, field: odd}.items() if value is not MISSING}
    for field in ExperimentSpec.parse(SPEC).canonical()
    for odd in ODD
]
JSONS = [json.dumps(value) for value in (None, 5, "x", [], {}, [1, {"a": None}], {"a": {"b": [1]}})]
BROKEN = ["{broken", "NaN", '{"a": 1e999}', ""]
"""What SQLite lets pass where JSON must be."""


def damages(column: Any, database: Database) -> list[Any]:
    """Values that a column can be made to hold and the program would never write."""
    kind: TypeEngine[Any] = column.type
    odd: list[Any] = [None] if column.nullable else []
    if isinstance(kind, StateText):
        return [*odd, "unknown", ""]
    if isinstance(kind, Object | Totals | ListOf):
        odd += JSONS + (BROKEN if database.is_sqlite else [])
        return [*odd, *map(json.dumps, SPECS)] if column.name == "spec" else odd
    kind = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    if isinstance(kind, Boolean):
        return [*odd, *([7, "x"] if database.is_sqlite else [])]
    if isinstance(kind, Integer):
        return [*odd, -5, 0, 2**31 - 1, *(["x", 2**62, 0.5] if database.is_sqlite else [])]
    if isinstance(kind, Float):
        unreal = ["x"] if database.is_sqlite else [float("nan")]
        return [*odd, 0.0, -62_135_700_000.0, -1e300, 1e300, float("inf"), float("-inf"), *unreal]
    assert isinstance(kind, String), kind
    return [*odd, "", "\u202e\x01" + "x" * 10]


def put(database: Database, table: type[Any], column: str, value: Any, where: str, key: str) -> None:
    cast = "" if database.is_sqlite else {"JSON": "AS JSON"}.get(str(table.__table__.c[column].type.compile()), "")
    slot = f"CAST(:value {cast})" if cast else ":value"
    with database.write() as session:
        statement = f'UPDATE {table.__tablename__} SET "{column}" = {slot} WHERE "{where}" = :key'  # noqa: S608 ours
        session.execute(text(statement), {"value": value, "key": key})


def ended(database: Database, how: State = State.FINISHED, **changes: Any) -> str:
    """An experiment with two rounds."""
    spec = ExperimentSpec.parse(spec_with(**changes))
    with database.write() as session:
        row = experiments.submit(session, spec.canonical(), spec.fingerprint())
        row.state, row.started_at, row.finished_at = how, 1.0, 2.0
        row.next_round, row.best_accuracy, row.best_round, row.final_accuracy, row.seconds = 2, 0.5, 1, 0.5, 1.0
        for number in range(2):
            values = record(number).model_dump()
            session.add(Round(experiment=row.id, fence=1, stored_at=1.0, seq=number + 1, **values))
        return row.id


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow])])
def database_url(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{home / 'fedarena.db'}"
        return
    url = request.getfixturevalue("postgres_store")
    empty(url)
    yield url


@pytest.fixture
def served(settings: Settings, database: Database) -> Iterator[httpx.Client]:
    url = database.url.render_as_string(hide_password=False)
    with serving(settings.model_copy(update={"database_url": url})) as address, http(address) as client:
        yield client


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def wrong(client: httpx.Client, path: str, method: str = "GET", body: Any = None, expected: int = 200) -> str | None:
    """What is wrong with an answer; None: nothing."""
    page = not path.startswith("/api/") and not path.endswith(".json")
    try:
        answer = client.request(method, path, json=body, headers={"accept": "text/html"} if page else {})
    except httpx.TransportError as error:  # a server that fails may close the connection
        return f"{method} {path[:60]}: {error}"
    if answer.status_code != expected:
        return f"{method} {path[:60]}: {answer.status_code} {answer.text[:300]}"
    block = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', answer.text, re.DOTALL)
    json.loads(block[1] if block else "{}" if page else answer.text, parse_constant=no_constant)
    return None


def walk(client: httpx.Client, keys: list[str], extra: list[str]) -> list[str]:
    """Everything that shows many rows at once."""
    chunks = [",".join(keys[start : start + 100]) for start in range(0, len(keys), 100)]
    paths = ["/", "/overview.json", "/experiments", "/methods", "/methods/fedavg", "/sweeps", "/api/sweeps", *extra]
    paths += [f"/api/experiments?limit=500&sort={sort}&order={way}" for sort in Sort for way in ("down", "up")]
    paths += [
        path + chunk
        for chunk in chunks
        for path in (
            "/compare?ids=",
            "/api/compare/curves?points=50&ids=",
            "/api/compare/clients?at=each&ids=",
            "/api/compare/clients?at=best&ids=",
            "/api/compare/significance?by=training.lr&ids=",
            "/api/compare/target?target=0.3&ids=",
            "/api/rounds?experiments=",
        )
    ]
    return [found for path in paths if (found := wrong(client, path))]


def heard(client: httpx.Client, keys: set[str]) -> set[str]:
    """Whom the event stream tells of, from its start on."""
    told: set[str] = set()
    with client.stream("GET", "/api/events?after=0") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "), parse_constant=no_constant)
                told.add(data.get("id", data.get("experiment")))
            if keys <= told or line == "event: ping":
                break
    return told


def test_an_experiment_with_any_damage_is_listed_opened_streamed_and_deleted(
    served: httpx.Client, database: Database, settings: Settings
) -> None:
    cases = [
        (column.name, value)
        for column in Experiment.__table__.c  # type: ignore[attr-defined]
        if column.name not in {"id", "seq", "state_seq"}
        for value in damages(column, database)
    ]
    spec = ExperimentSpec.parse(spec_with(seed=1))
    run = sweeps.NewRun(0, 1, spec.canonical(), spec.fingerprint())
    with database.write() as session:
        options: dict[str, Any] = {"name": None, "notes": "", "document": {}, "plan": Plan(), "reuse": False}
        sweep = sweeps.submit(session, cells=[{}], runs=[run], **options).id
    keys = {}
    for column, value in cases:
        key = ended(database)
        put(database, Experiment, "sweep", sweep, "id", key)
        put(database, Experiment, "cell", "{}", "id", key)
        put(database, Experiment, column, value, "id", key)
        keys[key] = (column, value)
    hidden = {key for key, (column, value) in keys.items() if column == "deleted_at" and value is not None}
    seen = [key for key in keys if key not in hidden]
    assert walk(served, seen, [f"/sweeps/{sweep}", f"/api/sweeps/{sweep}"]) == []
    long_ago = (0.0, -62_135_700_000.0, -1e300, float("-inf"))
    gone = {key for key in hidden if keys[key][1] in long_ago}  # the reconciler may have removed them by now
    kept = set(keys) - gone
    assert [keys[key] for key in kept - heard(served, kept)] == []
    address = str(served.base_url)
    listed = subprocess.run(
        fedarena("ls", "--address", address, "--limit", "500"),
        env={**environment(settings), "TZ": "Pacific/Kiritimati"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (listed.returncode, listed.stderr) == (0, "")
    failures = {}
    for key, case in keys.items():
        asked = [] if key in hidden else [
            wrong(served, f"/experiments/{key}"),
            wrong(served, f"/api/experiments/{key}"),
            wrong(served, f"/api/experiments/{key}/rounds"),
            wrong(served, f"/new?from={key}"),
            wrong(served, f"/api/experiments/{key}", "PATCH", {"notes": "seen"}),
            wrong(served, f"/api/experiments/{key}", "DELETE"),
        ]  # fmt: skip
        asked.append(wrong(served, f"/api/experiments/{key}/undelete", "POST", expected=404 if key in gone else 200))
        if found := [item for item in asked if item]:
            failures[key, *case] = found
    assert failures == {}


def test_rounds_with_any_damage_are_shown(served: httpx.Client, database: Database) -> None:
    keys = []
    for column in Round.__table__.c:  # type: ignore[attr-defined]
        if column.name in {"experiment", "round", "seq"}:
            continue
        for value in damages(column, database):
            if value == "x" or (isinstance(value, float) and value == 0.5):
                continue  # SQLite alone takes a text for a number; rounds are read by the ten thousand, unchecked
            key = ended(database)
            put(database, Round, column.name, value, "experiment", key)
            keys.append(key)
    assert walk(served, keys, []) == []
    assert set(keys) - heard(served, set(keys)) == set()
    assert [found for key in keys if (found := wrong(served, f"/experiments/{key}"))] == []


def test_a_sweep_with_any_damage_is_listed_opened_and_deleted(served: httpx.Client, database: Database) -> None:
    spec = ExperimentSpec.parse(spec_with())
    run = sweeps.NewRun(0, spec.seed, spec.canonical(), spec.fingerprint(), "no")
    cases = [
        (column.name, value)
        for column in Sweep.__table__.c  # type: ignore[attr-defined]
        if column.name not in {"id", "deleted_at"}
        for value in damages(column, database)
    ]
    keys = {}
    for column, value in cases:
        with database.write() as session:
            options: dict[str, Any] = {"name": None, "notes": "", "document": {"seeds": [7]}, "plan": Plan()}
            key = sweeps.submit(session, cells=[{}], runs=[run], reuse=False, **options).id
        put(database, Sweep, column, value, "id", key)
        keys[key] = (column, value)
    assert walk(served, [], []) == []
    failures = {}
    for key, case in keys.items():
        asked = [wrong(served, f"/sweeps/{key}"), wrong(served, f"/api/sweeps/{key}")]
        if served.delete(f"/api/sweeps/{key}").status_code != 204:
            asked.append("cannot be deleted")
        if found := [item for item in asked if item]:
            failures[key, *case] = found
    assert failures == {}
