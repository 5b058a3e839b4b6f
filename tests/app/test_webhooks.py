"""Webhooks: which addresses are refused, and messages that really travel over HTTP."""

import hashlib
import hmac
import ipaddress
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import update
from sqlmodel import col

from app import webhooks
from app.config import Settings
from app.store.database import Database
from app.store.tables import Delivery, Sweep
from app.webhooks import Postman, Undelivered, is_public, refuse, send
from tests.app.store.test_sweeps import look, make, run_all
from tests.services import wait_until

SECRET = "a secret of the tests"


@pytest.fixture
def allowed(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhooks": True, "webhook_secret": SECRET, "webhook_private": True})


@contextmanager
def receiver(*answers: int, slow: threading.Event | None = None) -> Iterator[tuple[str, list[Any]]]:
    """A real server on this machine that answers with these states in turn, then with 200."""
    received: list[Any] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), body))
            if slow is not None:
                slow.wait(30)
            self.send_response(left.pop(0) if left else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook?x=1", received
    finally:
        if slow is not None:
            slow.set()
        server.shutdown()
        server.server_close()


def message(url: str) -> Delivery:
    return Delivery(id="0" * 26, event="sweep.finished", url=url, body={"event": "sweep.finished"}, created_at=0.0)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
     "2002:7f00:1::", "ff02::1", "198.18.0.1", "192.0.2.1", "fec0::1", "3fff::1", "5f00::1"],
)  # fmt: skip
def test_addresses_that_only_this_network_reaches_are_refused(settings: Settings, address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    strict = settings.model_copy(update={"webhooks": True, "webhook_secret": SECRET})
    host = f"[{address}]" if ":" in address else address
    assert "is not a public address" in str(refuse(f"https://{host}/", strict))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    ["http://example.org/", "ftp://example.org/", "https://", "https://user:pw@example.org/", "file:///etc/passwd",
     "https://example.org:0/", "https://example.org:99999/", "https://exa mple.org/", "https://example.org/\r\nX: y"],
)  # fmt: skip
def test_other_schemes_users_and_broken_addresses_are_refused(settings: Settings, url: str) -> None:
    strict = settings.model_copy(update={"webhooks": True, "webhook_secret": SECRET})
    assert refuse(url, strict) is not None


def test_a_name_that_leads_to_this_machine_is_refused_when_it_is_sent(settings: Settings) -> None:
    strict = settings.model_copy(update={"webhooks": True, "webhook_secret": SECRET})
    assert refuse("https://localhost/", strict) is None
    with pytest.raises(Undelivered, match="is not a public address"):
        send(message("https://localhost/"), strict)


def test_messages_need_a_secret() -> None:
    with pytest.raises(ValidationError, match="FEDARENA_WEBHOOK_SECRET"):
        Settings(webhooks=True)


def test_a_finished_sweep_is_told_with_a_signature(allowed: Settings, database: Database) -> None:
    with receiver() as (url, received):
        key = make(database, document={"webhook": {"url": url}}, webhook=url)
        postman = Postman(allowed, database)
        assert postman.tick() == 0
        run_all(database)
        assert postman.tick() == 1
        assert postman.tick() == 0
    [(path, headers, body)] = received
    told = json.loads(body)
    assert (path, told["event"], told["sweep"]["id"], told["counts"]) == (
        "/hook?x=1",
        "sweep.finished",
        key,
        {"finished": 4},
    )
    moment, signed = headers["X-FedArena-Signature"].split(",")
    expected = hmac.new(SECRET.encode(), moment.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signed == f"v1={expected}"
    [delivery] = look(database, key).deliveries
    assert (delivery.attempts, delivery.error, delivery.next_try) == (1, None, None)
    assert delivery.delivered_at is not None


def test_an_error_that_nobody_thought_of_does_not_end_the_messages(
    allowed: Settings, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "PERIOD_SECONDS", 0.01)
    with receiver() as (url, received):
        broken = make(sqlite_database, document={}, webhook=url)  # a document without its webhook: a KeyError
        run_all(sqlite_database)
        postman = Postman(allowed, sqlite_database)
        postman.start()
        wait_until(lambda: "webhooks continue after an error" in caplog.text, what="the error in the log")
        with sqlite_database.write() as session:
            session.execute(update(Sweep).where(col(Sweep.id) == broken).values(webhook=None))
        make(sqlite_database, document={"webhook": {"url": url}}, webhook=url)
        wait_until(lambda: received, what="the message")
        postman.stop()
    assert json.loads(received[0][2])["event"] == "sweep.finished"


def test_a_refused_message_waits_and_is_sent_again(allowed: Settings, sqlite_database: Database) -> None:
    with receiver(500) as (url, received):
        key = make(sqlite_database, document={"webhook": {"url": url}}, webhook=url)
        run_all(sqlite_database)
        postman = Postman(allowed, sqlite_database)
        assert postman.tick() == 0
        [delivery] = look(sqlite_database, key).deliveries
        assert (delivery.attempts, delivery.error) == (1, "127.0.0.1 answered with status 500")
        assert delivery.next_try is not None
        with sqlite_database.write() as session:
            session.execute(update(Delivery).values(next_try=1.0))
        assert postman.tick() == 1
        assert len(received) == 2


def test_a_redirect_is_a_failure_and_is_not_followed(allowed: Settings) -> None:
    with receiver(302) as (url, received):
        with pytest.raises(Undelivered, match="status 302"):
            send(message(url), allowed)
        assert len(received) == 1


def test_a_silent_receiver_is_left(allowed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "SEND_SECONDS", 0.3)
    with receiver(slow=threading.Event()) as (url, _), pytest.raises(Undelivered, match=r"no answer from 127\.0\.0\.1"):
        send(message(url), allowed)


def test_https_is_not_spoken_with_a_receiver_that_cannot_prove_its_name(allowed: Settings) -> None:
    with receiver() as (url, received), pytest.raises(Undelivered, match=r"no answer from 127\.0\.0\.1 \(SSL"):
        send(message(url.replace("http:", "https:")), allowed)
    assert received == []


def test_nobody_listening_is_told_in_one_sentence(allowed: Settings) -> None:
    with pytest.raises(Undelivered, match=r"no answer from 127\.0\.0\.1 \(ConnectionRefusedError\)"):
        send(message("http://127.0.0.1:9/"), allowed)
