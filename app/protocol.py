"""HTTP connections with an end: a request must arrive within its time, and only so many may be open at once."""

import asyncio
import json
import logging
import resource

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from app.errors import error_body
from app.security import SECURITY_HEADERS
from engine.spec.problems import Problem

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0
"""From the connection's start, or a later request's first byte, to the last byte; even a slow tunnel needs less."""
MOST_CONNECTIONS = 3000
"""Open ones, idle and event streams too; half of the files that a process may open, where that is less."""
MOST_FILES = 2 * MOST_CONNECTIONS


def allow_files() -> None:
    """Let this process open as many files as it needs for its connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft // 2)


class PatientProtocol(H11Protocol):
    """That of uvicorn, whose own timer runs only between two requests."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._part(503, "too many connections are open; close a tab, and try again in a few seconds")
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's own words
        self._part(400, "this is no HTTP request that can be read")

    def _watch(self) -> None:
        """Keep a deadline while a request is on its way."""
        arriving = self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
        begun = self.conn.their_state is not h11.IDLE or bool(self.conn.trailing_data[0])
        if not arriving or not begun:
            self._forget()
        if arriving and self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        log.info("a request did not arrive within %g s, its connection is closed", REQUEST_SECONDS)
        self._part(408, f"a request must arrive within {REQUEST_SECONDS:g} s")

    def _part(self, status: int, message: str) -> None:
        """Close the connection, with an answer where none is under way."""
        if not self.transport.is_closing() and not self._is_answering():
            body = json.dumps(error_body((Problem("", message, None),))).encode()
            headers = {
                **SECURITY_HEADERS,
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Connection": "close",
            }
            head = [f"HTTP/1.1 {status} {STATUS_PHRASES[status].decode()}", *(f"{k}: {v}" for k, v in headers.items())]
            self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is not None and cycle.response_started and not cycle.response_complete
