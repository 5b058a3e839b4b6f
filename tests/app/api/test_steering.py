"""Pause, resume, plans, retry, deletion and logs, through a real server."""

from typing import Any

import httpx
import pytest

from app.store import logs, queue, workers
from app.store.database import Database
from app.store.logs import Line
from tests.services import spec_with


def submitted(client: httpx.Client, **plan: Any) -> dict[str, Any]:
    answer = client.post("/api/experiments", json=spec_with(), params=plan)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_options_travel_beside_the_spec(client: httpx.Client) -> None:
    plan = {"priority": 5, "start_after": "2030-01-15T22:00:00+01:00", "window": "22:00-08:00", "zone": "Etc/GMT-1"}
    body = submitted(client, **plan, stop_target=0.9, stop_patience=10)
    assert (body["priority"], body["start_after"]) == (5, "2030-01-15T21:00:00.000Z")
    assert body["window"] == {"from": "21:00", "to": "07:00", "zone": "UTC"}
    assert body["stop"] == {"target": 0.9, "patience": 10}
    assert body["fingerprint"] == submitted(client)["fingerprint"], "they do not change what is computed"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("priority", "101", "must be less than or equal to 100, but got '101'"),
        ("start_after", "2030-01-15T22:00:00", "must have timezone info"),
        ("window", "late", "a window looks like 22:00-08:00, but got 'late'"),
        ("window", "22:00-99:00", "a time of day looks like 22:00, but got '99:00'"),
        ("stop_target", "2", "must be less than or equal to 1, but got '2'"),
        ("stop_min_gain", "0.1", "needs a target or a patience"),
    ],
)
def test_a_bad_option_is_refused_with_its_name(client: httpx.Client, name: str, value: str, words: str) -> None:
    answer = client.post("/api/experiments", json=spec_with(), params={name: value})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == name
    assert words in error["message"]


def test_a_key_with_other_options_is_another_request(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "with-options"}
    first = client.post("/api/experiments", json=spec_with(), params={"priority": 1}, headers=headers)
    same = client.post("/api/experiments", json=spec_with(), params={"priority": 1}, headers=headers)
    other = client.post("/api/experiments", json=spec_with(), params={"priority": 2}, headers=headers)
    assert (first.status_code, same.json()["id"], other.status_code) == (201, first.json()["id"], 422)


def test_pause_resume_and_another_place_in_the_queue(client: httpx.Client) -> None:
    address = f"/api/experiments/{submitted(client)['id']}"
    paused = client.post(f"{address}/pause").json()
    assert (paused["state"], paused["hold"], paused["pause"]) == ("paused", "asked", False)
    change = {"priority": -3, "window": {"from": "22:00", "to": "08:00", "zone": "UTC"}}
    moved = client.patch(f"{address}/queue", json=change).json()
    assert (moved["priority"], moved["window"]["from"], moved["start_after"]) == (-3, "22:00", None)
    freed = client.patch(f"{address}/queue", json={"window": None}).json()
    assert (freed["priority"], freed["window"]) == (-3, None)
    assert client.post(f"{address}/resume").json()["state"] == "queued"
    assert isinstance(client.get(address).json()["position"], int)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"priority": 1000}, "priority"),
        ({"window": {"from": "22:00", "to": "22:00"}}, "window"),
        ({"window": {"from": "22:00", "to": "08:00", "zone": "Nowhere"}}, "window.zone"),
        ({"place": 1}, "place"),
    ],
)
def test_a_bad_place_in_the_queue_is_refused(client: httpx.Client, change: dict[str, Any], field: str) -> None:
    answer = client.patch(f"/api/experiments/{submitted(client)['id']}/queue", json=change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_what_has_ended_can_only_be_tried_again_or_deleted(client: httpx.Client) -> None:
    key = submitted(client)["id"]
    address = f"/api/experiments/{key}"
    client.post(f"{address}/cancel")
    for action in ("pause", "resume", "cancel"):
        answer = client.post(f"{address}/{action}")
        assert answer.status_code == 409
        assert answer.json()["errors"][0]["value"] == "cancelled"
    assert client.patch(f"{address}/queue", json={"priority": 1}).status_code == 409
    again = client.post(f"{address}/retry")
    assert (again.status_code, again.json()["retry_of"], again.json()["state"]) == (201, key, "queued")
    assert client.post(f"{address}/retry").status_code == 409
    assert client.delete(address).json()["deleted_at"] is not None
    assert client.get(address).status_code == 404
    assert client.get(f"{address}/rounds").status_code == 404
    assert client.post(f"{address}/undelete").json()["deleted_at"] is None
    assert client.get(address).status_code == 200


@pytest.mark.parametrize("action", ["pause", "resume", "retry", "undelete"])
def test_what_does_not_exist_cannot_be_steered(client: httpx.Client, action: str) -> None:
    assert client.post(f"/api/experiments/{'0' * 26}/{action}").status_code == 404


def test_the_log_is_read_on_from_a_number(client: httpx.Client, store: Database) -> None:
    key = submitted(client, priority=100)["id"]
    with store.write() as session:
        held = queue.claim(session, "worker-1", 60)
        assert held is not None
        assert held.experiment == key
        logs.append(session, held, [Line(0.0, "INFO", "one"), Line(1.5, "WARNING", "two")])
    found = client.get(f"/api/experiments/{key}/log", params={"after": 1}).json()
    assert found == {"lines": [{"number": 2, "at": "1970-01-01T00:00:01.500Z", "level": "WARNING", "text": "two"}]}


def test_the_workers_seen_lately_are_listed_with_their_report(client: httpx.Client, store: Database) -> None:
    with store.write() as session:
        workers.register(session, name="worker-1@here", host="here", pid=1, device="cpu", slots=2)
        workers.seen(session, "worker-1@here", {"rounds_per_minute": 12.5})
    [found] = client.get("/api/workers").json()["items"]
    assert (found["name"], found["slots"], found["report"]) == ("worker-1@here", 2, {"rounds_per_minute": 12.5})
