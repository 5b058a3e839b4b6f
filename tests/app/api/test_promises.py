"""Every operation of the API against a filled store: no error of the server, and only answers that OpenAPI promises."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import APIOperation, BaseSchema, Case, CheckContext, GenerationMode, HookContext, Response
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from app.config import Settings
from app.security import SECURITY_HEADERS
from app.store.database import Database
from engine.methods import REGISTRY
from tests.browser.filled import put
from tests.services import SPEC

AnyCase = Case[Any]
AnyOperation = APIOperation[Any, Any, Any, Any]

EXAMPLES, MANY = 12, 300
"""Of each operation and mode; the second by `make fuzz`."""
SLOW = {"GET /api/compare/figure.{kind}": 4, "POST /api/estimate": 4, "POST /api/sweeps/check": 2}
"""What draws or rehearses gets one in so many."""
ENDLESS = "/api/events"
MOST_ARE_TAKEN = ["POST /api/check", "POST /api/experiments", "POST /api/partition", "POST /api/sweeps"]
"""What takes a spec: of the cases that are meant to be valid at least half must pass its rules."""
NEVER_THERE = ["GET /api/artifacts/{id}/file", "GET /api/experiments/{id}/checkpoint"]
"""Only a worker makes them; their own tests look at them."""
PLAIN: dict[str, Any] = {key: value for key, value in SPEC.items() if key != "name"}
JUNK: SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, [], {}, [1], {"name": [1]}, True, "3", "2027-01-31T22:00:00Z", "0001-01-01T00:00:00+14:00"]),
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
)
QUERY: dict[str, list[str]] = {
    "start_after": ["2027-01-31T22:00:00Z", "2030-01-01T00:00:00+14:00"],
    "window": ["22:00-06:00", "1:00 - 2:00"],
    "zone": ["UTC", "Europe/Berlin", "+02:00"],
    "fields": ["accuracy", "loss,bytes_up,client_accuracy"],
    "by": ["", "training.lr", "algorithm.name,clients"],
}
"""Values that are taken, for parameters whose rules a schema cannot say."""


@dataclass(frozen=True)
class Filled:
    """The API over a store with something of every kind."""

    schema: BaseSchema
    experiments: list[str]
    sweeps: list[str]
    artifacts: list[str]


def fill(address: str, store: Database) -> dict[str, list[str]]:
    """Finished, queued, paused, cancelled and deleted experiments, a sweep, an artifact."""
    finished = [put(store, seed=seed, rounds=6, algorithm={"name": "fedavg"}) for seed in (1, 2)]
    with httpx.Client(base_url=address, timeout=60) as client:

        def made(path: str, body: Any) -> str:
            answer = client.post(path, json=body)
            answer.raise_for_status()
            return str(answer.json()["id"])

        queued, paused, cancelled, deleted = (made("/api/experiments", {**PLAIN, "seed": seed}) for seed in range(4))
        for key, action in ((paused, "pause"), (cancelled, "cancel"), (deleted, "cancel")):
            client.post(f"/api/experiments/{key}/{action}").raise_for_status()
        client.delete(f"/api/experiments/{deleted}").raise_for_status()
        base = {key: value for key, value in PLAIN.items() if key != "seed"}
        sweeps = [made("/api/sweeps", {"name": "filled", "base": base, "grid": {"rounds": [1, 2]}, "seeds": [5, 6]})]
        artifacts = [made(f"/api/experiments/{finished[0]}/artifacts", {"kind": "features"})]
    experiments = [*finished, queued, paused, cancelled, deleted]
    return {"experiments": experiments, "sweeps": sweeps, "artifacts": artifacts}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec that is taken, and now and then one with a field that is not."""
    spec: dict[str, Any] = {
        **PLAIN,
        "algorithm": {"name": draw(st.sampled_from(list(REGISTRY)))},
        "dataset": {**PLAIN["dataset"], "size": draw(st.sampled_from([16, 20]))},
        "models": {"family": draw(st.sampled_from(["tiny-mlp", "tiny-3"]))},
        "clients": draw(st.integers(1, 4)),
        "rounds": draw(st.integers(1, 3)),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "partition": {"name": draw(st.sampled_from(["iid", "dirichlet", "pathological"]))},
        "name": draw(st.none() | st.text(st.characters(categories=["L", "N", "Zs"]), max_size=20)),
        "tags": draw(st.lists(st.sampled_from(["a", "b", "ü"]), max_size=2)),
    }
    if draw(st.integers(0, 7)) == 7:
        spec[draw(st.sampled_from([*spec, "preset", "training", "evaluation", "topology"]))] = draw(JUNK)
    return spec


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, Any]:
    """A document that is taken, and now and then one with a field that is not."""
    spec = draw(specs())
    document: dict[str, Any] = {
        "base": {key: value for key, value in spec.items() if key not in {"name", "tags", "seed", "rounds"}},
        "grid": {"rounds": draw(st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True))},
        "seeds": draw(st.lists(st.integers(0, 1000), min_size=1, max_size=2, unique=True)),
    }
    given = {
        "priority": st.integers(-100, 100),
        "window": st.sampled_from(["22:00-06:00", {"from": "1:00", "to": "2:00", "zone": "+02:00"}]),
        "start_after": st.sampled_from(QUERY["start_after"]),
        "stop": st.sampled_from([{"target": 0.9}, {"patience": 3, "min_gain": 0.1}]),
        "exclude": st.just([{"seed": document["seeds"][0]}]),
        "report": st.just({"target": 0.5}),
        "reuse": st.booleans(),
    }
    for name in draw(st.lists(st.sampled_from([*given]), max_size=3, unique=True)):
        document[name] = draw(given[name])
    if draw(st.integers(0, 7)) == 7:
        document[draw(st.sampled_from([*document, "zip", "list", "webhook", "name"]))] = draw(JUNK)
    return document


def changes() -> SearchStrategy[dict[str, Any]]:
    """Of a place in the queue."""
    fields = {
        "priority": st.integers(-100, 100),
        "start_after": st.sampled_from([None, *QUERY["start_after"]]),
        "window": st.sampled_from([None, {"from": "22:00", "to": "6:00", "zone": "Europe/Berlin"}]),
    }
    return st.fixed_dictionaries({}, optional=fields)


def wishes() -> SearchStrategy[dict[str, Any]]:
    parameters = st.sampled_from([{}, {"clients": [0]}, {"clients": [10**6]}, {"seed": 1}, {"clients": "0"}])
    return st.fixed_dictionaries(
        {"kind": st.sampled_from(["features", "weights", "pictures"])}, optional={"parameters": parameters}
    )


@st.composite
def extensions(draw: st.DrawFn) -> dict[str, Any]:
    """Fewer rounds than the finished experiments have, as many, and more."""
    return {"rounds": draw(st.integers(1, 8))}


BODIES = {
    "SweepSpec": sweeps,
    "ExperimentSpec": specs,
    "QueueChange": changes,
    "ArtifactWish": wishes,
    "Extension": extensions,
}


def with_hooks(schema: BaseSchema, ids: dict[str, list[str]]) -> BaseSchema:
    """Schemathesis knows the schema alone; with these its cases also name what exists and pass the rules of a spec."""

    @schema.hook
    def flatmap_case(_context: HookContext, case: AnyCase) -> SearchStrategy[AnyCase]:
        meta = case.meta
        assert meta is not None
        if meta.generation.mode is GenerationMode.NEGATIVE:
            return st.just(case)
        # seven strategies, since the same one counts once: a schema cannot tell most rules of a spec
        return st.one_of(*(accepted(case) for _ in range(7)), st.just(case))

    @st.composite
    def accepted(draw: st.DrawFn, case: AnyCase) -> AnyCase:
        kind = next((kind for kind in ids if case.path.startswith(f"/api/{kind}/{{id}}")), None)
        if kind is not None:
            case.path_parameters = {**(case.path_parameters or {}), "id": draw(st.sampled_from(ids[kind]))}
        if case.headers:
            case.headers.pop("Idempotency-Key", None)  # one that was used before refuses every other body
        some = st.lists(st.sampled_from(ids["experiments"][:5]), min_size=1, max_size=4, unique=True).map(",".join)
        for name in case.query or {}:
            if name in {"ids", "experiments"}:
                case.query[name] = draw(some)
            elif name in QUERY:
                case.query[name] = draw(st.sampled_from(QUERY[name]))
        for name in {"reference", "stop_min_gain"} & {*(case.query or {})}:  # these need another one beside them
            del case.query[name]
        body = str(case.operation.definition.raw.get("requestBody", ""))
        for name, strategy in BODIES.items():
            if f"schemas/{name}" in body:
                case.body = draw(strategy())
        return case

    return schema


@pytest.fixture(scope="module")
def filled(served: tuple[str, Settings]) -> Filled:
    address, settings = served
    store = Database(settings.database)
    ids = fill(address, store)
    store.close()
    schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json")
    return Filled(with_hooks(schema, ids), **ids)


def strict_headers(_context: CheckContext, response: Response, _case: AnyCase) -> None:
    """Every answer carries them."""
    missing = [name for name in SECURITY_HEADERS if name.lower() not in response.headers]
    assert missing == []


def checks() -> list[Any]:
    load_all_checks()
    names = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    )
    return [*CHECKS.get_by_names(names), strict_headers]


def operations(schema: BaseSchema) -> list[AnyOperation]:
    """What takes something away comes last, so that the others find it."""
    found: list[AnyOperation] = []
    for item in schema.get_all_operations():
        assert isinstance(item, Ok), item
        found.append(item.ok())
    return sorted(
        (item for item in found if item.path != ENDLESS),
        key=lambda item: (item.method == "delete", item.path.endswith("/cancel")),
    )


def attack(operation: AnyOperation, mode: GenerationMode, examples: int, statuses: Counter[int]) -> None:
    @hypothesis_settings(
        max_examples=max(1, examples // SLOW.get(operation.label, 1)),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: AnyCase) -> None:
        response = case.call_and_validate(checks=checks(), timeout=120)
        statuses[response.status_code] += 1

    one()


def attack_all(filled: Filled, subtests: pytest.Subtests, examples: int) -> None:
    statuses: dict[str, Counter[int]] = {}
    for operation in operations(filled.schema):
        found = statuses.setdefault(operation.label, Counter())
        takes_something = bool(operation.body or [*operation.iter_parameters()])
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 1 + takes_something]:
            with subtests.test(operation.label, mode=mode.value):
                attack(operation, mode, examples, found)
            if mode is GenerationMode.POSITIVE and operation.label in MOST_ARE_TAKEN:
                assert taken(found) >= found.total() / 2, (operation.label, found)
    # the zero above means something only where the code behind the checks was reached
    assert [label for label, found in statuses.items() if not taken(found)] == NEVER_THERE


def taken(statuses: Counter[int]) -> int:
    return sum(count for status, count in statuses.items() if 200 <= status < 300)


def test_every_operation_keeps_its_promises(filled: Filled, subtests: pytest.Subtests) -> None:
    attack_all(filled, subtests, EXAMPLES)


@pytest.mark.slow
@pytest.mark.fuzz
def test_every_operation_keeps_its_promises_for_long(filled: Filled, subtests: pytest.Subtests) -> None:
    attack_all(filled, subtests, MANY)
