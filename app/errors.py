"""Errors in one shape: {"errors": [{"field", "message", "value"}]} for programs, a page for people; 500 is a bug."""

import html
import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import DatabaseError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match

from app.advice import with_command
from app.store.trouble import diagnose
from engine.spec.problems import Problem, SpecError, explained

log = logging.getLogger(__name__)

ErrorPage = Callable[[Request, int, str], Response]
"""Status and message as a page; app.main puts the one of the templates into `app.state.error_page`."""
SENTENCES = {
    404: "there is nothing at this address",
    405: "this address does not take that method",
    413: "the request is too large",
    415: "the request must be JSON; send Content-Type: application/json",
}
PLAIN_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>[title] · FedArena</title>'
    "<h1>[title]</h1><p>[message]</p></html>"
)


class ErrorItem(BaseModel):
    """One thing that is wrong."""

    field: str = Field(description="Path of the field, as in partition.beta; empty when it is about the whole request")
    message: str = Field(description="A sentence: the rule and what was given")
    value: Any = Field(description="What was given")


class Errors(BaseModel):
    """What every refused request gets."""

    errors: list[ErrorItem]


class Refusal(Exception):
    """A request that is answered with a 4xx or 503 on purpose."""

    def __init__(
        self, status: int, message: str, *, field: str = "", value: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problems = (Problem(field, message, value),)
        self.headers = dict(headers or {})


def not_found(what: str, value: str) -> Refusal:
    return Refusal(404, f"there is no {what} {shown(value)}", field="id", value=shown(value))


def error_body(problems: tuple[Problem, ...]) -> dict[str, Any]:
    return {
        "errors": [{"field": _utf8(p.field), "message": _utf8(p.message), "value": _plain(p.value)} for p in problems]
    }


def error_response(
    request: Request, status: int, problems: tuple[Problem, ...], headers: Mapping[str, str] | None = None
) -> Response:
    """JSON for the API, a page for a browser that asked for one."""
    problems = tuple(map(with_command, problems))
    if not _wants_page(request):
        return JSONResponse(error_body(problems), status, dict(headers or {}))
    message = "; ".join(str(problem) for problem in problems)
    page: ErrorPage = getattr(request.app.state, "error_page", _plain_page)
    response = page(request, status, message[0].upper() + message[1:] + ".")
    response.headers.update(headers or {})
    return response


def refusal(request: Request, status: int, message: str, value: object = None) -> Response:
    """For a request that is turned away before it reaches a route."""
    return error_response(request, status, (Problem("", message, value),))


def install(app: FastAPI) -> None:
    """Answer every expected kind of failure in the common shape."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return error_response(request, error.status, error.problems, error.headers)

    @app.exception_handler(SpecError)
    async def bad_spec(request: Request, error: SpecError) -> Response:
        return error_response(request, 422, error.problems)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: RequestValidationError) -> Response:
        return error_response(request, 422, explained([_placed(item) for item in error.errors()], "the request"))

    @app.exception_handler(HTTPException)
    async def by_framework(request: Request, error: HTTPException) -> Response:
        sentence = SENTENCES.get(error.status_code, str(error.detail))
        problem = Problem("", sentence, f"{request.method} {request.url.path}")
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        return error_response(request, error.status_code, (problem,), headers)

    async def store_refuses(request: Request, error: Exception) -> Response:
        trouble = diagnose(error)
        if trouble is None:
            raise error
        log.warning("%s: %s", trouble.sentence, str(error).splitlines()[0])
        problem = Problem("", trouble.sentence, trouble.value)
        return error_response(request, 503, (problem,), {"Retry-After": str(trouble.wait_seconds)})

    app.add_exception_handler(DatabaseError, store_refuses)
    app.add_exception_handler(PoolTimeout, store_refuses)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        kind = "database error" if isinstance(error, SQLAlchemyError) else type(error).__name__
        problem = Problem("", f"this is a bug in FedArena ({kind}); the server's log has the details", None)
        return error_response(request, 500, (problem,))


def _allowed(request: Request) -> str:
    """All methods of an address; the framework names those of its first route only."""
    methods = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]
    return ", ".join(["HEAD", *methods] if "GET" in methods else methods)


def _placed(item: Any) -> Any:
    """A framework error about a query parameter or header, without the framework's words for where it was."""
    return {**item, "loc": item["loc"][1:] or item["loc"]}


def shown(text: str) -> str:
    """Somebody's text, short enough for a message."""
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(value: Any) -> Any:
    """The value as JSON can carry it, and not larger than a message should be."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return shown(repr(value))
    return value if len(text) <= 1000 else shown(text)


def _utf8(text: str) -> str:
    """Half a surrogate pair, which UTF-8 cannot carry, as \\ud800."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _wants_page(request: Request) -> bool:
    """A person opened the address, and it is none of the API's."""
    path = request.url.path
    return not path.startswith(("/api/", "/static/")) and "text/html" in request.headers.get("accept", "")


def _plain_page(_request: Request, status: int, message: str) -> Response:
    title = html.escape(f"{status} {HTTPStatus(status).phrase}")
    text = PLAIN_PAGE.replace("[title]", title).replace("[message]", html.escape(message))
    return HTMLResponse(text, status)
