"""The doors: who may ask, what may be sent, and what every answer says to the browser."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from app.config import BindRefused, Settings, is_loopback
from app.main import create_app, serve
from app.security import BODY_LIMIT, SECURITY_HEADERS, Doors
from engine.spec.documents import DEPTH_LIMIT, VALUE_LIMIT
from tests.services import ROOT, SPEC

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "",
        "[::2]",
        "0.0.0.0",
        "[::1].evil.example",
        "[::1]evil",
        "localhost:evil",
        "localhost:80:evil",
        "localhost:",
    ],
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
        {"Origin": "http://["},
        {"Origin": ""},
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
        ('{"a": {"rounds": 1, "rounds": 2}}', "the field 'rounds' is given twice"),
        ('{"seed": ' + "9" * 10_000 + "}", "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[" + "1," * VALUE_LIMIT + "1]", f"{VALUE_LIMIT} values"),
        ("[" + "{}," * VALUE_LIMIT + "1]", f"{VALUE_LIMIT} values"),
    ],
)
def test_json_that_is_too_deep_or_broken_is_refused(client: httpx.Client, text: str, words: str) -> None:
    answer = client.post(
        "/api/experiments", content=text.encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert words in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_json_in_another_encoding_is_refused(client: httpx.Client, encoding: str) -> None:
    answer = client.post("/api/check", content=json.dumps(SPEC).encode(encoding), headers=JSON)
    assert answer.status_code == 422
    assert "not valid JSON" in answer.json()["errors"][0]["message"]


def test_a_body_is_looked_through_once_whatever_it_holds() -> None:
    """In a process of its own: a search that starts again at every quote would hold this one for hours."""
    pieces = ['"\\', '"', "\\", '"\\"', "[]", '["\\n', ",", "a"]
    script = f"""
from app.security import BODY_LIMIT, refuse_json
for piece in {pieces!r}:
    assert refuse_json((piece * BODY_LIMIT)[:BODY_LIMIT].encode()), piece
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)


def test_a_body_that_breaks_off_is_not_taken_for_whole() -> None:
    """What came is a document by itself, but the last piece, which says so, never did."""
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"{}", "more_body": True}, {"type": "http.disconnect"}]
    )
    asked: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope)

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/check", "query_string": b"", "headers": headers}
    asyncio.run(Doors(application)(scope, receive, send))
    assert asked == []


def test_brackets_inside_a_text_are_not_depth(client: httpx.Client) -> None:
    spec = {**SPEC, "notes": '[{"\\' * 100}
    assert client.post("/api/check", json=spec).status_code == 200


@pytest.mark.parametrize(
    "path", ["/healthz", "/api/experiments", "/api/nothing", "/experiments", "/static/nothing", "/", "/api/events"]
)
def test_head_is_answered_like_get_without_a_body(client: httpx.Client, path: str) -> None:
    with client.stream("GET", path) as whole:
        head = client.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert {*whole.headers} - {"transfer-encoding"} <= {*head.headers} | {"content-length"}
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/experiments", "HEAD, GET, POST"),
        ("/api/experiments/x", "HEAD, GET, PATCH, DELETE"),
        ("/api/check", "POST"),
        ("/healthz", "HEAD, GET"),
        ("/", "HEAD, GET"),
    ],
)
def test_a_wrong_method_is_told_all_that_the_address_takes(client: httpx.Client, path: str, allowed: str) -> None:
    answer = client.put(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed


def test_an_answer_to_a_bug_carries_the_strict_headers_too(settings: Settings) -> None:
    application = create_app(settings)

    @application.get("/broken")
    def broken() -> None:
        raise RuntimeError("on purpose")

    with TestClient(application, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get("/broken")
    assert answer.status_code == 500
    assert SECURITY_HEADERS.items() <= {name: answer.headers.get(name) for name in SECURITY_HEADERS}.items()
    assert "this is a bug" in answer.json()["errors"][0]["message"]


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
