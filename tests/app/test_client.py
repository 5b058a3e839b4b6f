"""The Python client: it waits for a server that is busy or away, once that server has answered."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from app import client as client_module
from app.client import ApiError, FedArena, Unreachable
from app.config import Settings
from app.store import lifecycle
from app.store.database import Database
from tests.app.store.test_sweeps import make, run_all
from tests.services import claim, serving, submit

BUSY = (503, {"errors": [{"field": "", "message": "the store is busy", "value": None}]})


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(client_module, "LONGEST_PAUSE", 0.1)


@contextmanager
def scripted(*answers: tuple[int, dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers in turn; its address, and what it was asked for."""
    left, asked = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body = left.pop(0)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if status == 503:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def view(state: str) -> tuple[int, dict[str, Any]]:
    return 200, {"counts": {state: 1}, "rounds_done": 0}


def test_a_busy_server_is_asked_again_by_who_waits_for_a_sweep() -> None:
    with scripted(view("running"), BUSY, BUSY, view("finished")) as (address, asked), FedArena(address) as arena:
        assert arena.wait_sweep("X", every=0.01)["counts"] == {"finished": 1}
    assert len(asked) == 4


def test_a_server_that_is_busy_at_the_first_call_is_told_at_once() -> None:
    with scripted(BUSY) as (address, _), FedArena(address) as arena, pytest.raises(ApiError, match="busy") as caught:
        arena.wait_sweep("X")
    assert caught.value.status == 503


def test_what_will_not_pass_ends_the_wait() -> None:
    gone = (404, {"errors": [{"field": "id", "message": "there is no sweep X", "value": "X"}]})
    with scripted(view("running"), gone) as (address, _), FedArena(address) as arena:
        following = arena.follow_sweep("X", every=0.01)
        next(following)
        with pytest.raises(ApiError, match="there is no sweep"):
            next(following)


def test_nobody_at_the_address_is_told_at_once() -> None:
    with FedArena("http://127.0.0.1:9") as arena:
        for waits in (arena.follow_sweep("X"), arena.events(), arena.watch("X")):
            with pytest.raises(Unreachable, match="nobody answers"):
                next(iter(waits))


def test_a_restart_of_the_server_does_not_end_the_wait_for_a_sweep(
    settings: Settings, sqlite_database: Database
) -> None:
    key = make(sqlite_database)
    with ThreadPoolExecutor(1) as pool:
        with serving(settings) as address:
            arena = FedArena(address)
            following = arena.follow_sweep(key, every=0.01)
            assert next(following)["counts"] == {"queued": 4}
        waited = pool.submit(lambda: list(following)[-1])
        run_all(sqlite_database)
        with serving(settings, port=urlsplit(address).port or 0):
            assert waited.result()["counts"] == {"finished": 4}
        arena.close()


def test_a_restart_of_the_server_does_not_end_the_watch_of_an_experiment(
    settings: Settings, sqlite_database: Database
) -> None:
    key = submit(sqlite_database)
    with ThreadPoolExecutor(1) as pool:
        with serving(settings) as address:
            arena = FedArena(address)
            watching = arena.watch(key)
            assert next(watching).data["state"] == "queued"
        waited = pool.submit(lambda: list(watching)[-1])
        held = claim(sqlite_database)
        assert held is not None
        with sqlite_database.write() as session:
            lifecycle.fail(session, held, "the disk burned")
        with serving(settings, port=urlsplit(address).port or 0):
            assert waited.result().data["state"] == "failed"
        arena.close()
