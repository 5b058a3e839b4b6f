"""Another number of rounds for a finished experiment, through a real server."""

from typing import Any

import httpx
import pytest

from app.config import Settings
from app.store import experiments
from app.store.database import Database
from tests.services import SPEC, spec_with
from workers.job import run_next


def finished(client: httpx.Client, settings: Settings, **changes: Any) -> str:
    key: str = client.post("/api/experiments", json=spec_with(**changes)).json()["id"]
    while run_next(settings, "worker-1") is not None:
        pass
    assert client.get(f"/api/experiments/{key}").json()["state"] == "finished"
    return key


def extend(client: httpx.Client, key: str, rounds: Any, **headers: str) -> httpx.Response:
    return client.post(f"/api/experiments/{key}/extend", json={"rounds": rounds}, headers=headers)


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    [error] = answer.json()["errors"]
    return answer.status_code, error["field"], error["message"]


def test_more_rounds_make_a_new_experiment_that_has_the_old_ones(
    client: httpx.Client, served: tuple[str, Settings]
) -> None:
    key = finished(client, served[1], seed=1, tags=["a"])
    answer = extend(client, key, 5)
    body = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/api/experiments/{body['id']}")
    assert (body["state"], body["rounds"], body["next_round"]) == ("queued", 5, 4)
    assert (body["continues"], body["taken_over"], body["retry_of"]) == (key, 4, None)
    assert (body["name"], body["tags"]) == ("small", ["a"])
    assert body["told"] == f"rounds 0 to 3 are those of {key}; it resumes from the checkpoint of round 3"
    old = client.get(f"/api/experiments/{key}/rounds").json()["rounds"]
    assert client.get(f"/api/experiments/{body['id']}/rounds").json()["rounds"] == old
    again = extend(client, key, 5)
    assert (again.status_code, again.json()["id"]) == (200, body["id"])
    assert again.json()["told"] == f"{body['id']} has this result already: it is queued, and nothing new is queued"
    assert client.get(f"/api/experiments/{key}").json()["rounds"] == 3, "the old one stays as it is"


def test_fewer_rounds_are_there_at_once(client: httpx.Client, served: tuple[str, Settings]) -> None:
    key = finished(client, served[1], seed=2)
    body = extend(client, key, 2).json()
    assert (body["state"], body["next_round"], body["told"]) == (
        "finished",
        3,
        f"rounds 0 to 2 are those of {key}; nothing was computed",
    )
    assert (
        body["headline"]["final_accuracy"]
        == client.get(f"/api/experiments/{key}/rounds").json()["rounds"][2]["accuracy"]
    )
    own = extend(client, key, 3)
    assert (own.status_code, own.json()["id"]) == (200, key)


def test_a_key_gives_the_first_answer_again(client: httpx.Client, served: tuple[str, Settings]) -> None:
    key = finished(client, served[1], seed=3)
    first, second = (extend(client, key, 6, **{"Idempotency-Key": "go-on"}) for _ in range(2))
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert second.headers["idempotent-replayed"] == "true"
    assert extend(client, key, 7, **{"Idempotency-Key": "go-on"}).status_code == 422


@pytest.mark.parametrize(
    ("changes", "rounds", "words"),
    [
        ({"training": {**SPEC["training"], "schedule": "cosine"}}, 5, "the cosine schedule"),
        (
            {"algorithm": {"name": "fedkd"}, "models": {"family": "tiny-3"}},
            2,
            "energy threshold goes from 0.95 to 0.98",
        ),
        ({"evaluation": {"every": 3}}, 2, "round 2 of 3 was not, because evaluation.every is 3"),
        ({"evaluation": {"protocol": "C"}, "participation": 0.5}, 2, "tests all 2 clients in the last round"),
        ({"algorithm": {"name": "pfedafm"}, "models": {"family": "tiny-3"}}, 2, "pFedAFM notes alpha_histogram"),
    ],
)
def test_what_would_not_be_the_same_run_is_refused_with_the_reason(
    client: httpx.Client, served: tuple[str, Settings], changes: dict[str, Any], rounds: int, words: str
) -> None:
    dataset = {**SPEC["dataset"], "size": 16}
    key = finished(client, served[1], dataset=dataset, **changes)
    total = client.get("/api/experiments").json()["total"]
    status, field, message = refused(extend(client, key, rounds))
    assert (status, field) == (409, "rounds")
    assert words in message
    assert message.endswith("; submit it as a separate experiment")
    assert client.get("/api/experiments").json()["total"] == total


@pytest.mark.parametrize(
    ("body", "field"),
    [({"rounds": 0}, "rounds"), ({"rounds": "5"}, "rounds"), ({}, "rounds"), ({"T": 5}, "T"), (None, "")],
)
def test_a_body_that_makes_no_sense_is_refused(client: httpx.Client, body: Any, field: str) -> None:
    key = client.post("/api/experiments", json=spec_with(seed=99)).json()["id"]
    answer = client.post(f"/api/experiments/{key}/extend", json=body)
    assert answer.status_code == 422
    assert field in {error["field"] for error in answer.json()["errors"]}
    client.post(f"/api/experiments/{key}/cancel")


def test_only_a_finished_experiment_that_exists_has_rounds_to_take_over(client: httpx.Client) -> None:
    key = client.post("/api/experiments", json=spec_with(seed=98)).json()["id"]
    assert refused(extend(client, key, 5))[:2] == (409, "state")
    client.post(f"/api/experiments/{key}/cancel")
    status, field, message = refused(extend(client, key, 5))
    assert (status, field) == (409, "state")
    assert message == f"experiment {key} is cancelled; only a finished one can go on or be read out"
    assert extend(client, "0" * 26, 5).status_code == 404


def test_other_data_on_this_machine_do_not_go_on(
    client: httpx.Client, served: tuple[str, Settings], store: Database
) -> None:
    key = finished(client, served[1], seed=4)
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.partition_fingerprint = "0" * 64
    assert refused(extend(client, key, 5))[:2] == (409, "partition_fingerprint")
    assert extend(client, key, 2).status_code == 201, "what is only read out needs no data"


def test_the_last_round_that_cannot_be_told_is_computed_again(
    client: httpx.Client, served: tuple[str, Settings]
) -> None:
    settings = served[1].model_copy(update={"checkpoint_every": 2})
    key = finished(
        client, settings, algorithm={"name": "fedavg-ft"}, evaluation={"protocol": "C"}, participation=0.5, seed=5
    )
    body = extend(client, key, 5).json()
    assert (body["taken_over"], body["next_round"]) == (3, 3)
    assert body["told"].startswith(f"rounds 0 to 2 are those of {key}; round 3 was tested on all clients")
    assert body["told"].endswith("so round 3 is computed again; it resumes from the checkpoint of round 2")
