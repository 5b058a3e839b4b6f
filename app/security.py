"""The doors: loopback names, writes only from our own pages or from programs, JSON only, small, strict headers."""

import json
import re

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import refusal, shown
from engine.spec.documents import DEPTH_LIMIT, VALUE_LIMIT

BODY_LIMIT = 1_000_000
LOOPBACK_NAMES = ("127.0.0.1", "[::1]", "localhost")
YAML_PATHS = frozenset({"/api/sweeps", "/api/sweeps/check"})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
"""No form of a stranger's page can send these; the routes read them with limits of their own."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_Refused = tuple[int, str, object]
"""Status, sentence, value."""
_HOST = re.compile(rf"(?:{'|'.join(map(re.escape, LOOPBACK_NAMES))})(?::\d{{1,5}})?", re.IGNORECASE)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)
"""Strings, which may hold brackets, brackets and commas. A string that is never closed reaches to the end of the text,
and nothing is tried twice: every byte is looked at once, whatever the text."""


class StrictHeaders:
    """ASGI middleware outside of all others, so that no answer lacks the headers; and HEAD wherever GET is taken."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        head, ended = scope["method"] == "HEAD", False

        async def strict(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif head:
                if ended:
                    return
                # the answer is over with its headers: an event stream would have no end
                ended, message = True, {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self.app({**scope, "method": "GET"} if head else scope, receive, strict)


class Doors:
    """ASGI middleware; it never buffers an answer, so event streams pass."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        problem = refuse_host(request.headers) or refuse_stranger(scope["method"], request.headers)
        problem = problem or refuse_address(scope)
        body: bytes | None = None
        if problem is None and scope["method"] not in SAFE_METHODS:
            problem, body = await _read_body(scope["path"], request.headers, receive)
            if problem is None and body is None:
                return  # whoever asked has gone
        if problem is not None:
            response = refusal(request, *problem)
            await response(scope, receive, send)
            return
        await self.app(scope, receive if body is None else _replay(body, receive), send)


def refuse_host(headers: Headers) -> _Refused | None:
    """A page of a stranger whose name was made to point at this machine still sends that name."""
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        return 400, f"the Host must be a name of this machine ({', '.join(LOOPBACK_NAMES)})", host[:80]
    return None


def refuse_address(scope: Scope) -> _Refused | None:
    """No name of ours holds a zero byte, and PostgreSQL takes none in a text."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return 422, "an address must not hold a zero byte (%00)", None
    return None


def refuse_stranger(method: str, headers: Headers) -> _Refused | None:
    """A browser says where a request comes from; a program that is no browser says nothing and is let in."""
    if method in SAFE_METHODS:
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return 403, "a change must come from FedArena's own pages, but this came from another site", site[:80]
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        return 403, "a change must come from FedArena's own pages, but this came from another site", origin[:80]
    return None


async def _read_body(path: str, headers: Headers, receive: Receive) -> tuple[_Refused | None, bytes | None]:
    """What is wrong with the body, and the body; neither where the client went away before it had sent all of it."""
    too_large = (413, f"a request may hold {BODY_LIMIT} bytes at most", headers.get("content-length"))
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > BODY_LIMIT:
        return too_large, None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None, None
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            return too_large, None
        if not message.get("more_body", False):
            break
    if body:
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind in YAML_TYPES and path in YAML_PATHS:
            return None, bytes(body)
        if kind != "application/json":
            return (415, "the request must be JSON; send Content-Type: application/json", kind[:80]), None
        # in a thread: a large body would hold up everybody else
        problem = await run_in_threadpool(refuse_json, bytes(body))
        if problem is not None:
            return problem, None
    return None, bytes(body)


def refuse_json(body: bytes) -> _Refused | None:
    """Check depth and length by counting brackets and commas first: a parser recurses, and keeps every value."""
    depth = values = 0
    for token in _TOKEN.finditer(body):
        mark = token[0]
        if mark in b"[{":
            depth += 1
            values += 1
        elif mark in b"]}":
            depth -= 1
        elif mark == b",":
            values += 1
        if depth > DEPTH_LIMIT:
            return 422, f"JSON may be nested {DEPTH_LIMIT} levels deep at most", None
        if values > VALUE_LIMIT:
            return 422, f"JSON may hold {VALUE_LIMIT} values at most", None
    try:
        # no other encoding, in which the brackets could not be counted
        json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_twice)
    except (ValueError, RecursionError) as error:
        return 422, f"the body is not valid JSON: {error}", None
    return None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_twice(fields: list[tuple[str, object]]) -> None:
    """A parser would take the last one without a word."""
    seen = set()
    for name, _ in fields:
        if name in seen:
            raise ValueError(f"the field {shown(repr(name))} is given twice")
        seen.add(name)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand the body that was read here to the application."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
