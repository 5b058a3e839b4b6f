"""Requests that once ended in an error of the server, or would make it stand still: each has an answer of its own."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.security import SECURITY_HEADERS
from app.store.database import Database
from tests.services import SPEC, spec_with

BASE = {key: value for key, value in SPEC.items() if key not in {"name", "seed"}}
SPEC_ADDRESSES = ["/api/check", "/api/experiments", "/api/estimate", "/api/partition"]
SWEEP_ADDRESSES = ["/api/sweeps", "/api/sweeps/check"]
OUTSIDE = [
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "0",
    "99999",
    "-1",
    "2027-01-31",
]


def refused(answer: httpx.Response, field: str | None = None, status: int = 422) -> str:
    """The sentence of the first problem; every answer says what is wrong, and carries the strict headers."""
    assert answer.status_code == status, answer.text
    assert SECURITY_HEADERS.items() <= {name: answer.headers.get(name) for name in SECURITY_HEADERS}.items()
    first = answer.json()["errors"][0]
    assert field in (None, first["field"])
    message: str = first["message"]
    assert message
    return message


@pytest.fixture
def experiment(client: httpx.Client) -> Iterator[str]:
    key: str = client.post("/api/experiments", json=SPEC).json()["id"]
    yield key
    client.post(f"/api/experiments/{key}/cancel")


@pytest.mark.parametrize("name", [[1], {"a": 1}, [[]]])
@pytest.mark.parametrize("path", SPEC_ADDRESSES)
def test_a_preset_with_a_method_that_is_no_name(client: httpx.Client, path: str, name: object) -> None:
    refused(client.post(path, json=spec_with(preset="A", algorithm={"name": name})), "algorithm.name")


@pytest.mark.parametrize("path", SWEEP_ADDRESSES)
def test_a_sweep_over_a_preset_with_a_method_that_is_no_name(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={"base": {**BASE, "preset": "A", "algorithm": {"name": [1]}}})
    problems = answer.json()["refused"] if path.endswith("check") else answer.json()["errors"]
    assert problems[0]["field"] == "algorithm.name"


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "[", "://", "\xff"])
@pytest.mark.parametrize("path", ["/api/check", "/api/experiments/x/cancel"])
def test_an_origin_that_is_no_address(client: httpx.Client, path: str, origin: str) -> None:
    headers = [(b"Origin", origin.encode("latin-1"))]
    assert "another site" in refused(client.post(path, json=SPEC, headers=headers), status=403)


@pytest.mark.parametrize(
    "value",
    ["!!bool xyz", "!!timestamp foo", '!!timestamp ""', '!!int ""', '!!float ""', "!!map [a]", "!!binary x", "!x y"],
)
@pytest.mark.parametrize("path", SWEEP_ADDRESSES)
def test_yaml_with_a_tag_that_does_not_fit_its_value(client: httpx.Client, path: str, value: str) -> None:
    answer = client.post(path, content=f"base: {value}", headers={"Content-Type": "application/yaml"})
    assert "not readable as YAML" in refused(answer)


@pytest.mark.parametrize("moment", OUTSIDE)
@pytest.mark.parametrize("path", ["/api/experiments", *SWEEP_ADDRESSES])
def test_a_first_moment_outside_of_all_calendars_beside_a_document(
    client: httpx.Client, store: Database, path: str, moment: str
) -> None:
    body = SPEC if path == "/api/experiments" else {"base": BASE}
    refused(client.post(path, json=body, params={"start_after": moment}), "start_after")
    assert client.get("/api/experiments").status_code == 200


@pytest.mark.parametrize("moment", [*OUTSIDE, 0, 99999, True, 1.5, ["2027-01-31T22:00:00Z"]])
def test_a_first_moment_outside_of_all_calendars_inside_a_document(
    client: httpx.Client, experiment: str, moment: object
) -> None:
    for path in SWEEP_ADDRESSES:
        refused(client.post(path, json={"base": BASE, "start_after": moment}), "start_after")
    refused(client.patch(f"/api/experiments/{experiment}/queue", json={"start_after": moment}), "start_after")
    assert client.get("/api/experiments").status_code == 200


@pytest.mark.parametrize("value", ["3", True, "1e3", [3], {}])
def test_a_number_that_is_none(client: httpx.Client, experiment: str, value: object) -> None:
    for path in SPEC_ADDRESSES:
        refused(client.post(path, json=spec_with(clients=value)), "clients")
    refused(client.patch(f"/api/experiments/{experiment}/queue", json={"priority": value}), "priority")
    refused(client.post("/api/sweeps", json={"base": BASE, "priority": value}), "priority")


@pytest.mark.parametrize("path", [*SPEC_ADDRESSES, *SWEEP_ADDRESSES, "/api/experiments/x/artifacts"])
def test_thousands_of_unknown_fields_are_told_in_a_few_lines(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={f"k{number}": 1 for number in range(20_000)})
    refused(answer)
    errors = answer.json()["errors"]
    assert len(errors) == 21
    assert errors[-1]["message"].startswith("and ")
    assert errors[-1]["message"].endswith(" more problems")


def test_thousands_of_unknown_fields_of_a_change_are_told_in_a_few_lines(client: httpx.Client) -> None:
    answer = client.patch("/api/experiments/x/queue", json={f"k{number}": 1 for number in range(20_000)})
    assert len(answer.json()["errors"]) == 21


@pytest.mark.parametrize("path", [*SPEC_ADDRESSES, *SWEEP_ADDRESSES])
def test_more_values_than_any_document_needs(client: httpx.Client, path: str) -> None:
    assert "values at most" in refused(client.post(path, json={f"k{number}": 1 for number in range(80_000)}))


@pytest.mark.parametrize("path", SWEEP_ADDRESSES)
def test_a_very_long_list_in_yaml(client: httpx.Client, path: str) -> None:
    answer = client.post(path, content="[" + "a," * 480_000 + "]", headers={"Content-Type": "application/yaml"})
    assert "values at most" in refused(answer)


def test_a_body_in_which_no_text_ends(client: httpx.Client) -> None:
    answer = client.post("/api/check", content=b'"\\' * 490_000, headers={"Content-Type": "application/json"})
    assert "not valid JSON" in refused(answer)


@pytest.mark.parametrize("search", ["word " * 1100, "x" * 60_000, "a " * 101])
@pytest.mark.parametrize(("path", "accept"), [("/api/experiments", "application/json"), ("/experiments", "text/html")])
def test_a_search_for_more_than_a_person_would_type(
    client: httpx.Client, experiment: str, path: str, accept: str, search: str
) -> None:
    answer = client.get(path, params={"search": search}, headers={"Accept": accept})
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith(accept)


@pytest.mark.parametrize(
    "path",
    ["/api/experiments/%00", "/experiments/%00", "/api/experiments?search=%00", "/api/compare/curves?ids=%00"],
)
def test_an_address_with_a_zero_byte(client: httpx.Client, path: str) -> None:
    assert "zero byte" in refused(client.get(path))


@pytest.mark.parametrize("window", [{"from": "", "to": "06:00"}, {"from": "22:00", "to": "22:00"}, {"from": 5}, "x"])
def test_a_window_that_is_none_is_told_once(client: httpx.Client, experiment: str, window: object) -> None:
    message = refused(client.patch(f"/api/experiments/{experiment}/queue", json={"window": window}))
    assert message.count("but ") == 1


@pytest.mark.parametrize("body", [None, [], "x", 3, {"kind": "x"}, {"kind": "features", "extra": 1}, {"kind": [1]}])
def test_a_wish_that_is_none(client: httpx.Client, experiment: str, body: Any) -> None:
    refused(client.post(f"/api/experiments/{experiment}/artifacts", json=body))
