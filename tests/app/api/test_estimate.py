"""What the form asks while it is filled in: the price of a spec, and labels that change later."""

import httpx
import pytest

from app.store import rounds, timings
from app.store.database import Database
from engine.spec import ExperimentSpec
from tests.services import SPEC, claim, record, spec_with, submit


def test_an_estimate_names_bytes_flops_and_a_guess_of_the_time(client: httpx.Client) -> None:
    found = client.post("/api/estimate", json=SPEC).json()["estimate"]
    assert found["round"]["bytes_up"] == found["round"]["bytes_down"] > 0
    assert found["total"]["client_flops"] == 3 * found["round"]["client_flops"]
    assert found["seconds"] == pytest.approx(3 * found["seconds_per_round"])


def test_an_estimate_of_a_bad_spec_names_the_field(client: httpx.Client) -> None:
    answer = client.post("/api/estimate", json=spec_with(clients=0))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["clients"]


def test_rounds_of_an_equal_spec_beat_the_rate_of_others_and_a_guess(sqlite_database: Database) -> None:
    spec = ExperimentSpec.parse(SPEC).canonical()
    other = {**spec, "clients": 20}
    with sqlite_database.read() as session:
        assert timings.seconds_per_round(session, spec, 10**9).basis == "guess"
    submit(sqlite_database)
    held = claim(sqlite_database)
    assert held is not None
    for number in range(4):
        with sqlite_database.write() as session:
            rounds.commit_round(session, held, record(number, seconds=0.5 if number else 0.0), 60)
    with sqlite_database.read() as session:
        measured = timings.seconds_per_round(session, {**spec, "seed": 99, "rounds": 500}, 10**9)
        rate = timings.seconds_per_round(session, other, 4000)
    assert (measured.basis, measured.seconds) == ("measured", 0.5)
    assert (rate.basis, rate.seconds) == ("rate", pytest.approx(4000 / (4000 / 1.5)))


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
