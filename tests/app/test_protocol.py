"""Connections: slow clients are given up, and their number has an end, through a real server."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from app import protocol
from app.config import Settings
from app.security import SECURITY_HEADERS
from tests.services import http, serving, wait_until

HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def address(settings: Settings) -> Iterator[str]:
    with serving(settings) as address:
        yield address


def connect(address: str) -> socket.socket:
    """Waiting is a safety net, not an expectation."""
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def answer_to(connection: socket.socket) -> str:
    """All that comes until the other side closes."""
    pieces = []
    while piece := connection.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /healthz HT",
        "GET /healthz HTTP/1.1\r\nHost: localh",
        f"POST /api/check HTTP/1.1\r\n{HEADERS}Content-Length: 100\r\n\r\n{{",
        f"POST /api/check HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal",
    ],
)
def test_a_request_that_does_not_arrive_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch, sent: str) -> None:
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.5)
    with connect(address) as connection:
        connection.sendall(sent.encode())
        # the last one is waited for by the timer between two requests
        assert "408 Request Timeout" in answer_to(connection) or sent.endswith("GET /heal")


def test_a_request_that_trickles_in_is_given_up_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.5)
    with connect(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        connection.settimeout(0.1)
        received = b""

        def closed() -> bool:
            nonlocal received
            try:
                connection.sendall(b"x")
                received += (piece := connection.recv(65_536))
            except TimeoutError:
                return False
            except OSError:
                return True
            return not piece

        wait_until(closed, what="the end of the connection")
    assert received.startswith(b"HTTP/1.1 408") or not received


def test_an_answer_may_take_longer_than_a_request(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.2)
    with http(address) as client, client.stream("GET", "/api/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        with connect(address) as other:
            assert "408" in answer_to(other)  # its time is over, that of the stream is not counted
        client.post("/api/check", json={})
        assert not stream.is_closed


def test_one_connection_serves_many_requests(address: str) -> None:
    with connect(address) as connection:
        request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{request}\r\n{request}\r\n{request}Connection: close\r\n\r\n".encode())
        assert answer_to(connection).count("HTTP/1.1 200 OK") == 3


def test_more_connections_than_allowed_are_refused_and_there_is_room_again(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 5)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(address)).sendall(b"GET ")
        refused = answer_to(stack.enter_context(connect(address)))
        assert refused.startswith("HTTP/1.1 503 Service Unavailable")
        assert "too many connections are open" in refused
    with http(address) as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, what="room for a connection")


def test_what_is_no_http_gets_an_answer_with_the_strict_headers(address: str) -> None:
    with connect(address) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")
        answer = answer_to(connection)
    assert answer.startswith("HTTP/1.1 400 Bad Request")
    assert [name for name in SECURITY_HEADERS if f"\r\n{name}: " not in answer] == []


def test_the_limit_leaves_files_for_the_rest_of_the_process() -> None:
    assert 0 < protocol.most_connections() <= protocol.MOST_CONNECTIONS
