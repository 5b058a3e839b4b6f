"""The doors: who may ask, what may be sent, and what every answer says to the browser."""

import json

import httpx
import pytest

from app.config import BindRefused, Settings, is_loopback
from app.main import serve
from app.security import BODY_LIMIT, DEPTH_LIMIT
from tests.services import SPEC


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]", "0.0.0.0"]
)
def test_a_name_that_is_not_this_machine_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/api/experiments", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8765"])
def test_names_of_this_machine_are_let_in(client: httpx.Client, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
@pytest.mark.parametrize("path", ["/api/experiments", "/api/check", "/api/experiments/x/cancel"])
def test_a_change_that_another_page_asks_for_is_refused(
    client: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    assert client.post(path, json=SPEC, headers=headers).status_code == 403


def test_a_change_from_our_own_page_is_let_in(client: httpx.Client, address: str) -> None:
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": address}
    assert client.post("/api/check", json=SPEC, headers=headers).status_code == 200


def test_no_method_but_reading_escapes_the_check(client: httpx.Client) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "INVENTED"):
        answer = client.request(method, "/api/experiments", headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_read(client: httpx.Client, kind: str) -> None:
    answer = client.post("/api/experiments", content=json.dumps(SPEC), headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_a_large_body_is_refused_whether_announced_or_not(client: httpx.Client) -> None:
    body = b'{"notes": "' + b"x" * BODY_LIMIT + b'"}'
    headers = {"Content-Type": "application/json"}
    assert client.post("/api/experiments", content=body, headers=headers).status_code == 413
    pieces = (body[start : start + 100_000] for start in range(0, len(body), 100_000))
    assert client.post("/api/experiments", content=pieces, headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1), "nested"),
        ("[" * 100_000, "nested"),
        ('{"a": ' * (DEPTH_LIMIT + 1) + "1" + "}" * (DEPTH_LIMIT + 1), "nested"),
        ('{"seed": NaN}', "NaN is not a JSON number"),
        ("{", "not valid JSON"),
        ('{"a": {"rounds": 1, "rounds": 2}}', "the field 'rounds' stands there twice"),
        ('{"seed": ' + "9" * 10_000 + "}", "not valid JSON"),
        ("\xff", "not valid JSON"),
    ],
)
def test_json_that_is_too_deep_or_broken_is_refused(client: httpx.Client, text: str, words: str) -> None:
    answer = client.post(
        "/api/experiments", content=text.encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert words in answer.json()["errors"][0]["message"]


def test_brackets_inside_a_text_are_not_depth(client: httpx.Client) -> None:
    spec = {**SPEC, "notes": '[{"\\' * 100}
    assert client.post("/api/check", json=spec).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/api/experiments", "/api/nothing", "/experiments", "/static/nothing"])
def test_every_answer_carries_the_strict_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_a_stranger_learns_nothing_by_asking_for_permission_first(client: httpx.Client) -> None:
    answer = client.options("/api/experiments", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org", ""])
def test_other_addresses_than_loopback_are_not_listened_on(settings: Settings, host: str) -> None:
    with pytest.raises(BindRefused, match="no login yet"):
        serve(settings.model_copy(update={"host": host}), slots=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])
def test_loopback_is_known_in_all_its_forms(host: str) -> None:
    assert is_loopback(host)
