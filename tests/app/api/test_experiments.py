"""The REST interface, through a real server."""

import html
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event

from app.round_table import csv_lines
from app.store import database as database_module
from app.store import experiments, queue, rounds
from app.store.claims import Claim
from app.store.database import Database
from app.store.states import State
from engine.spec.experiment import ExperimentSpec
from tests.services import SPEC, record, spec_with

KEYS = {
    "id", "name", "tags", "notes", "state", "spec", "fingerprint", "partition_fingerprint", "environment",
    "bit_identical", "rounds", "next_round", "headline", "headline_rule", "conditions", "error", "created_at",
    "started_at", "finished_at", "seconds", "owner", "attempts", "priority", "position", "start_after", "window",
    "pause", "hold", "stop", "stopped_by", "sweep", "cell", "retry_of", "continues", "taken_over",
    "has_checkpoint", "deleted_at", "seq", "totals", "majority_share", "no_convergence",
}  # fmt: skip


def count(client: httpx.Client) -> int:
    return len(client.get("/api/experiments", params={"limit": 500}).json()["items"])


def submitted(client: httpx.Client, **changes: Any) -> str:
    answer = client.post("/api/experiments", json=spec_with(**changes))
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["id"]
    return key


def with_rounds(client: httpx.Client, store: Database, *accuracies: float | None) -> str:
    """An experiment with stored rounds, written the way a worker does."""
    key = submitted(client, rounds=1000)
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.priority = 1
    with store.write() as session:
        held = queue.claim(session, "worker-1", 60)
    assert isinstance(held, Claim)
    assert held.experiment == key
    for number, accuracy in enumerate(accuracies):
        with store.write() as session:
            rounds.commit_round(session, held, record(number, accuracy), 60)
    return key


def test_a_good_spec_is_stored_and_answered_with_its_address(client: httpx.Client) -> None:
    answer = client.post("/api/experiments", json=spec_with(name="first", tags=["x"]))
    body = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/experiments/{body['id']}"
    assert set(body) == KEYS
    assert (body["state"], body["rounds"], body["next_round"]) == ("queued", 3, 0)
    assert body["fingerprint"] == ExperimentSpec.parse(SPEC).fingerprint()
    assert client.get(answer.headers["location"]).json() == body


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"algorithm": {"name": "fedmagic"}}, "algorithm.name", "unknown algorithm 'fedmagic'; known: "),
        ({"clients": 0}, "clients", "must be greater than or equal to 1, but got 0"),
        ({"participation": 1.5}, "participation", "must be less than or equal to 1, but got 1.5"),
        ({"algorithm": {"name": "fedavg", "mu": 0.1}}, "algorithm.mu", "has no field 'mu'"),
        ({"rounds": 10**9}, "rounds", "must be less than or equal to 100000, but got 1000000000"),
        ({"dataset": {"name": "domainnet"}}, "dataset.name", "fedarena data"),
        ({"topology": "gossip"}, "topology", "gossip"),
        ({"speed": 9}, "speed", "has no field 'speed'"),
    ],
)
def test_a_bad_spec_gets_the_field_and_a_sentence_and_nothing_is_stored(
    client: httpx.Client, changes: dict[str, Any], field: str, words: str
) -> None:
    before = count(client)
    answer = client.post("/api/experiments", json=spec_with(**changes))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert words in error["message"]
    assert count(client) == before


def test_all_problems_of_a_spec_come_at_once(client: httpx.Client) -> None:
    errors = client.post("/api/experiments", json=spec_with(clients=0, participation=1.5)).json()["errors"]
    assert {error["field"] for error in errors} == {"clients", "participation"}


@pytest.mark.parametrize("body", [[], 3, "text", None])
def test_a_body_that_is_no_object_is_refused(client: httpx.Client, body: object) -> None:
    answer = client.post("/api/experiments", json=body)
    assert answer.status_code == 422
    assert "must be an object" in answer.json()["errors"][0]["message"]


def test_an_empty_body_is_refused(client: httpx.Client) -> None:
    assert client.post("/api/experiments").status_code == 422


def test_the_same_key_and_body_make_one_experiment(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "key-1"}
    first = client.post("/api/experiments", json=SPEC, headers=headers)
    before = count(client)
    second = client.post("/api/experiments", json=SPEC, headers=headers)
    assert second.json() == first.json()
    assert (first.status_code, second.status_code) == (201, 201)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert count(client) == before


@pytest.mark.parametrize("times", [16, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.chaos])])
def test_requests_with_one_key_at_the_same_time_make_one_experiment(
    address: str, client: httpx.Client, times: int
) -> None:
    before, headers = count(client), {"Idempotency-Key": f"race-{times}"}
    with ThreadPoolExecutor(times) as pool:
        jobs = [
            pool.submit(httpx.post, f"{address}/api/experiments", json=SPEC, headers=headers, timeout=60)
            for _ in range(times)
        ]
        answers = [job.result() for job in jobs]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert count(client) == before + 1


def test_a_key_used_for_another_body_is_refused(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "key-2"}
    client.post("/api/experiments", json=SPEC, headers=headers)
    answer = client.post("/api/experiments", json=spec_with(seed=8), headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


def test_the_list_is_paged_and_filtered(client: httpx.Client) -> None:
    keys = [submitted(client, name=f"paged-{number}") for number in range(3)]
    page = client.get("/api/experiments", params={"search": "paged-", "limit": 2}).json()
    assert [item["id"] for item in page["items"]] == [keys[2], keys[1]]
    rest = client.get("/api/experiments", params={"search": "paged-", "limit": 2, "before": page["next"]}).json()
    assert [item["id"] for item in rest["items"]] == [keys[0]]
    assert rest["next"] is None
    client.post(f"/api/experiments/{keys[0]}/cancel")
    found = client.get("/api/experiments", params={"search": "paged-", "state": "cancelled"}).json()
    assert [item["id"] for item in found["items"]] == [keys[0]]


@pytest.mark.parametrize(("query", "field"), [({"state": "odd"}, "state"), ({"limit": 0}, "limit")])
def test_a_bad_query_names_its_parameter(client: httpx.Client, query: dict[str, Any], field: str) -> None:
    answer = client.get("/api/experiments", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_rounds_come_after_the_one_already_known(client: httpx.Client, store: Database) -> None:
    key = with_rounds(client, store, None, 0.25, 0.5)
    found = client.get(f"/api/experiments/{key}/rounds", params={"after": 0}).json()
    assert found["experiment"] == key
    assert [item["round"] for item in found["rounds"]] == [1, 2]
    assert found["rounds"][0] == record(1, 0.25).model_dump()


def test_columns_of_several_experiments(client: httpx.Client, store: Database) -> None:
    first, second = with_rounds(client, store, None, 0.25), with_rounds(client, store, None, 0.75)
    query = {"experiments": f"{first},{second}", "fields": "accuracy,bytes_up"}
    found = client.get("/api/rounds", params=query).json()["experiments"]
    assert found[first] == {"round": [0, 1], "accuracy": [None, 0.25], "bytes_up": [40, 40]}
    assert found[second]["accuracy"] == [None, 0.75]


def test_columns_are_read_with_as_many_queries_for_many_experiments_as_for_one(client: httpx.Client) -> None:
    keys = [submitted(client) for _ in range(10)]
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "IN (" in statement:  # the reconciler looks too, but for no id
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert client.get("/api/rounds", params={"experiments": ",".join(keys)}).status_code == 200
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len([statement for statement in asked if "FROM experiment" in statement]) == 1
    assert len([statement for statement in asked if "FROM round" in statement]) == 1


@pytest.mark.parametrize(("fields", "status"), [("accuracy,nonsense", 422), ("accuracy", 200)])
def test_an_unknown_column_is_refused(client: httpx.Client, store: Database, fields: str, status: int) -> None:
    key = with_rounds(client, store, None)
    assert client.get("/api/rounds", params={"experiments": key, "fields": fields}).status_code == status


def test_rounds_as_csv(client: httpx.Client, store: Database) -> None:
    key = with_rounds(client, store, None, 0.25)
    answer = client.get(f"/api/experiments/{key}/rounds.csv")
    header, opening, first = answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert header.startswith("round,accuracy,loss,scalars_up")
    assert opening.startswith("0,,1.5,10,")
    assert first.endswith(",0 1,0=0.4 1=0.6,,")


def test_the_csv_says_who_was_left_out_and_why() -> None:
    notes = [
        {"client": 3, "part": "local work", "reason": "its training loss became nan"},
        {"client": None, "part": "new state", "reason": "its numbers were not finite"},
    ]
    *_, line = "".join(csv_lines([{**record(1, 0.5).model_dump(), "dropped": notes}])).splitlines()
    told = "3 local work: its training loss became nan; server new state: its numbers were not finite"
    assert line.endswith(f"0 1,0=0.4 1=0.6,{told},")


def test_a_cancel_is_answered_with_the_new_state_and_a_second_one_with_a_conflict(client: httpx.Client) -> None:
    key = submitted(client)
    assert client.post(f"/api/experiments/{key}/cancel").json()["state"] == "cancelled"
    answer = client.post(f"/api/experiments/{key}/cancel", json={})
    assert answer.status_code == 409
    assert "already cancelled" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA", 404),
        ("GET", "/api/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA/rounds", 404),
        ("GET", "/api/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA/rounds.csv", 404),
        ("POST", "/api/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA/cancel", 404),
        ("GET", "/api/rounds?experiments=01AAAAAAAAAAAAAAAAAAAAAAAA", 404),
        ("GET", "/api/rounds?experiments=", 422),
        ("GET", "/api/nothing", 404),
        ("DELETE", "/api/experiments", 405),
    ],
)
def test_every_refusal_has_the_same_shape(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    for error in answer.json()["errors"]:
        assert set(error) == {"field", "message", "value"}


def test_a_person_gets_a_page_instead(client: httpx.Client) -> None:
    answer = client.get("/no/such/page", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")


def test_checking_a_spec_completes_it_and_stores_nothing(client: httpx.Client) -> None:
    before = count(client)
    found = client.post("/api/check", json=spec_with(preset="A")).json()
    assert found["fingerprint"] == ExperimentSpec.parse(spec_with(preset="A")).fingerprint()
    assert found["spec"]["training"]["clip"] == 50.0
    assert count(client) == before


def test_a_partition_is_previewed(client: httpx.Client) -> None:
    found = client.post("/api/partition", json=SPEC).json()
    assert (found["clients"], found["classes"]) == (2, 4)
    assert sum(sum(row) for row in found["counts"]) == 80


def test_the_catalogue_names_what_a_spec_may_say(client: httpx.Client) -> None:
    found = client.get("/api/catalog").json()
    assert {"standalone", "fedavg"} <= {item["id"] for item in found["algorithms"]}
    assert {"datasets", "partitions", "models", "presets", "spec"} <= set(found)


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["status"] == "ok"


def test_openapi_names_every_route_and_every_schema_it_refers_to(client: httpx.Client) -> None:
    schema = client.get("/api/openapi.json").json()
    assert {"/api/experiments", "/api/events", "/api/rounds", "/healthz", "/readyz"} <= set(schema["paths"])
    parts = schema["components"]["schemas"]
    references: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                references.add(value["$ref"])
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(schema)
    assert {name.removeprefix("#/components/schemas/") for name in references} <= set(parts)
    assert "ExperimentSpec" in parts


def test_a_locked_store_is_answered_with_503_and_never_500(
    client: httpx.Client, store: Database, monkeypatch: pytest.MonkeyPatch, served: Any
) -> None:
    from app.config import Settings
    from tests.services import http, serving

    settings: Settings = served[1]
    monkeypatch.setattr(database_module, "BUSY_MILLISECONDS", 100)
    with serving(settings) as address, http(address) as impatient, store.write() as session:
        experiments.count(session)  # takes the lock
        answer = impatient.post("/api/experiments", json=SPEC)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert impatient.get("/api/experiments").status_code == 200


OTHER_VERSIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dropped field": lambda spec: spec | {"training": {**spec["training"], "warmup": 3}},
    "missing part": lambda spec: {key: value for key, value in spec.items() if key != "models"},
    "unknown field": lambda spec: spec | {"privacy": {"epsilon": 1.0}},
    "unknown method": lambda spec: spec | {"algorithm": {"name": "fednew", "mu": 1.0}},
    "unknown value": lambda spec: spec | {"topology": "ring"},
}
WORDS = {
    "dropped field": "training.warmup: training has no field 'warmup'",
    "missing part": "models: is required but was not given",
    "unknown field": "privacy: the spec has no field 'privacy'",
    "unknown method": "algorithm.name: unknown algorithm 'fednew'",
    "unknown value": "topology: must be 'server'",
}


@pytest.mark.parametrize("how", OTHER_VERSIONS)
def test_a_spec_of_another_version_can_be_read_and_labelled_and_deleted_but_not_run_again(
    client: httpx.Client, store: Database, how: str
) -> None:
    key = with_rounds(client, store, None, 0.25)
    client.post(f"/api/experiments/{key}/cancel")
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.state, row.cancel = State.FAILED, False
        row.spec = stored = OTHER_VERSIONS[how](row.spec)
    page = client.get(f"/experiments/{key}", headers={"accept": "text/html"})
    assert page.status_code == 200
    shown = html.unescape(page.text)
    assert WORDS[how] in shown
    assert json.dumps(stored, separators=(",", ":"), ensure_ascii=False) in shown
    for path in (
        f"/api/experiments/{key}/rounds",
        f"/api/experiments/{key}/rounds.csv",
        f"/api/compare/curves?ids={key}",
        f"/api/compare/significance?ids={key}",
        f"/compare?ids={key}",
        "/api/experiments",
        "/experiments",
    ):
        assert client.get(path).status_code == 200, path
    patched = client.patch(f"/api/experiments/{key}", json={"name": "seen"})
    assert (patched.status_code, patched.json()["name"]) == (200, "seen")
    assert client.patch(f"/api/experiments/{key}", json={"name": 5}).status_code == 422
    for path, body in (("retry", None), ("artifacts", {"kind": "features"})):
        if body:
            with store.write() as session:
                row = experiments.get(session, key)
                assert row is not None
                row.state = State.FINISHED
        refused = client.post(f"/api/experiments/{key}/{path}", json=body)
        [error] = refused.json()["errors"]
        assert (refused.status_code, error["field"]) == (409, "spec")
        assert "this version does not understand the spec" in error["message"]
        assert WORDS[how] in error["message"]
    assert client.delete(f"/api/experiments/{key}").status_code == 200
    assert client.post(f"/api/experiments/{key}/undelete").status_code == 200
    with store.read() as session:
        row = experiments.get(session, key)
        assert row is not None
        assert (row.spec, row.name) == (stored, "seen")


def test_a_sweep_is_not_tried_again_with_a_spec_of_another_version(client: httpx.Client, store: Database) -> None:
    base = {field: value for field, value in SPEC.items() if field not in {"name", "seed"}}
    answer = client.post("/api/sweeps", json={"base": base, "grid": {"training.lr": [0.1, 0.2]}, "reuse": False})
    assert answer.status_code == 201, answer.text
    sweep = answer.json()["id"]
    client.post(f"/api/sweeps/{sweep}/cancel")
    key = answer.json()["cells"][0]["runs"][0]["experiment"]
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.spec = {**row.spec, "topology": "ring"}
    refused = client.post(f"/api/sweeps/{sweep}/retry")
    assert refused.status_code == 409
    assert f"the spec of experiment {key}: topology: must be" in refused.json()["errors"][0]["message"]
    assert client.get(f"/api/sweeps/{sweep}").json()["counts"] == {"cancelled": 2}, "none or all"
