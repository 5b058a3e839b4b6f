"""The doors: loopback names, writes only from our own pages or from programs, JSON only, small, strict headers."""

import json
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import refusal, shown

BODY_LIMIT = 1_000_000
DEPTH_LIMIT = 32
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
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
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Strings, which may hold brackets, and brackets."""


class Doors:
    """ASGI middleware; it never buffers an answer, so event streams pass."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        problem = refuse_host(request.headers) or refuse_stranger(scope["method"], request.headers)
        body: bytes | None = None
        if problem is None and scope["method"] not in SAFE_METHODS:
            problem, body = await _read_body(scope["path"], request.headers, receive)
        if problem is not None:
            response = refusal(request, *problem)
            await response(scope, receive, send_with_headers)
            return
        await self.app(scope, receive if body is None else _replay(body, receive), send_with_headers)


def refuse_host(headers: Headers) -> _Refused | None:
    """A page of a stranger whose name was made to point at this machine still sends that name."""
    host = headers.get("host", "")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.split(":")[0]
    if name.lower() not in LOOPBACK_NAMES:
        return 400, f"the Host must be a name of this machine ({', '.join(sorted(LOOPBACK_NAMES))})", host[:80]
    return None


def refuse_stranger(method: str, headers: Headers) -> _Refused | None:
    """A browser says where a request comes from; a program that is no browser says nothing and is let in."""
    if method in SAFE_METHODS:
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return 403, "a change must come from FedArena's own pages, but this came from another site", site[:80]
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        return 403, "a change must come from FedArena's own pages, but this came from another site", origin[:80]
    return None


async def _read_body(path: str, headers: Headers, receive: Receive) -> tuple[_Refused | None, bytes]:
    too_large = (413, f"a request may hold {BODY_LIMIT} bytes at most", headers.get("content-length"))
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > BODY_LIMIT:
        return too_large, b""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            return too_large, b""
        if not message.get("more_body", False):
            break
    if body:
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind in YAML_TYPES and path in YAML_PATHS:
            return None, bytes(body)
        if kind != "application/json":
            return (415, "the request must be JSON; send Content-Type: application/json", kind[:80]), b""
        problem = refuse_json(bytes(body))
        if problem is not None:
            return problem, b""
    return None, bytes(body)


def refuse_json(body: bytes) -> _Refused | None:
    """Check the depth by counting brackets first: a parser recurses."""
    depth = 0
    for token in _STRUCTURE.finditer(body):
        if token[0] in b"[{":
            depth += 1
        elif token[0] in b"]}":
            depth -= 1
        if depth > DEPTH_LIMIT:
            return 422, f"JSON may be nested {DEPTH_LIMIT} levels deep at most", None
    try:
        json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twice)
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
            raise ValueError(f"the field {shown(repr(name))} stands there twice")
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
