"""The client × class table of a stored experiment."""

from typing import Any

import httpx

from app.store import experiments
from app.store.database import Database
from tests.services import SPEC


def stored(client: httpx.Client, store: Database, **columns: Any) -> str:
    """An experiment in the store, some of its columns as another machine would have written them."""
    key: str = client.post("/api/experiments", json=SPEC).json()["id"]
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        for name, value in columns.items():
            setattr(row, name, value)
    return key


def elsewhere(client: httpx.Client) -> dict[str, Any]:
    """The stored form of a spec whose data set only the worker has."""
    spec: dict[str, Any] = client.post("/api/check", json=SPEC).json()["spec"]
    return {**spec, "dataset": {"name": "cifar10"}}


def test_it_is_the_table_of_the_preview(client: httpx.Client, store: Database) -> None:
    found = client.get(f"/api/experiments/{stored(client, store)}/partition")
    assert found.status_code == 200
    assert found.json() == client.post("/api/partition", json=SPEC).json()


def test_a_table_known_by_its_fingerprint_needs_no_data(client: httpx.Client, store: Database) -> None:
    first = client.get(f"/api/experiments/{stored(client, store)}/partition").json()
    key = stored(client, store, partition_fingerprint=first["fingerprint"], spec=elsewhere(client))
    assert client.get(f"/api/experiments/{key}/partition").json() == first


def test_a_data_set_that_is_not_on_this_machine_is_named_with_the_command(
    client: httpx.Client, store: Database
) -> None:
    answer = client.get(f"/api/experiments/{stored(client, store, spec=elsewhere(client))}/partition")
    assert answer.status_code == 409
    [error] = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("dataset.name", "cifar10")
    assert "fedarena data get cifar10" in error["message"]


def test_other_data_than_the_experiment_used_are_not_shown_as_its_own(client: httpx.Client, store: Database) -> None:
    answer = client.get(f"/api/experiments/{stored(client, store, partition_fingerprint='0' * 64)}/partition")
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["field"] == "partition_fingerprint"


def test_an_experiment_that_is_not_there_is_404(client: httpx.Client) -> None:
    assert client.get("/api/experiments/01ARZ3NDEKTSV4RRFFQ69G5FAV/partition").status_code == 404
