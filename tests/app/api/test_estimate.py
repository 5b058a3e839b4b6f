"""What the form asks while it is filled in: the price of a spec, and labels that change later."""

import httpx
import pytest

from app.store import rounds
from app.store.database import Database
from app.store.pace import HANDOVER
from app.store.tables import Experiment, Round
from app.views.sweeps import time_left
from tests.services import SPEC, claim, record, spec_with, submit


def test_an_estimate_names_bytes_flops_and_a_guess_of_the_time(client: httpx.Client) -> None:
    found = client.post("/api/estimate", json=SPEC).json()["estimate"]
    assert found["round"]["bytes_up"] == found["round"]["bytes_down"] > 0
    assert found["total"]["client_flops"] == 3 * found["round"]["client_flops"]
    assert found["seconds"] == pytest.approx(3 * found["seconds_per_round"] + found["seconds_once"])
    assert found["basis"] == "guess"


def test_an_estimate_of_a_bad_spec_names_the_field(client: httpx.Client) -> None:
    answer = client.post("/api/estimate", json=spec_with(clients=0))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["clients"]


def test_form_sweep_overview_and_time_left_tell_the_same_seconds(client: httpx.Client, store: Database) -> None:
    spec = spec_with(clients=3, rounds=5)
    submit(store, clients=3, rounds=5)
    held = claim(store)
    assert held is not None
    for number in range(6):
        with store.write() as session:
            rounds.commit_round(session, held, record(number, seconds=10.0 if number else 30.0), 60)
    with store.write() as session:
        opening = session.get_one(Round, (held.experiment, 0))
        session.get_one(Experiment, held.experiment).started_at = opening.stored_at - 30 - 4
    waiting = submit(store, clients=3, rounds=7, seed=8)
    once = 30 + 4 + HANDOVER

    estimate = client.post("/api/estimate", json={**spec, "rounds": 7}).json()["estimate"]
    assert (estimate["basis"], estimate["seconds_per_round"]) == ("measured", 10)
    assert estimate["seconds_once"] == pytest.approx(once)
    assert estimate["seconds"] == pytest.approx(7 * 10 + once)

    body = {
        "base": {key: value for key, value in spec.items() if key not in {"name", "seed"}},
        "grid": {"rounds": [7]},
        "seeds": [9],
    }
    assert client.post("/api/sweeps/check", json=body).json()["cost"]["seconds"] == pytest.approx(7 * 10 + once)

    data = client.get("/overview.json").json()
    assert (data["expected"][waiting], data["once"][waiting]) == (10, pytest.approx(once))
    with store.read() as session:
        left = time_left(session, [session.get_one(Experiment, waiting)], 1)
    assert left.seconds == pytest.approx(7 * 10 + once)


def test_name_tags_and_notes_can_be_changed_and_nothing_else(client: httpx.Client) -> None:
    made = client.post("/api/experiments", json=SPEC).json()
    address = f"/api/experiments/{made['id']}"
    changed = client.patch(address, json={"name": "better", "tags": ["night"], "notes": "looked at"}).json()
    assert (changed["name"], changed["tags"], changed["notes"]) == ("better", ["night"], "looked at")
    assert changed["fingerprint"] == made["fingerprint"]
    for body, field in (({"seed": 1}, "seed"), ({"tags": [""]}, "tags.0"), ({"name": "x" * 201}, "name"), ({}, "")):
        refused = client.patch(address, json=body)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == field
    assert client.get(address).json()["name"] == "better"
    assert client.patch("/api/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA", json={"name": "x"}).status_code == 404
