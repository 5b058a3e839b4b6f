"""Templates and what every page shares: the shell's data and the error page."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from pydantic_core import to_json
from starlette.responses import HTMLResponse, Response

from app.config import Settings
from app.pages.assets import modules
from app.pages.vocabulary import vocabulary
from app.store.database import Database

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

_SCRIPT = re.compile(r'<script type="module" src="([^"]+)"')

TITLES = {
    404: "Nothing here",
    422: "This address cannot be shown",
    503: "Not possible just now",
}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # a spec is shown in its own order of fields, so the keys must not be sorted on the way to the browser
    environment.policies["json.dumps_kwargs"] = {}
    environment.policies["json.dumps_function"] = _page_json
    environment.globals["vocabulary"] = vocabulary
    return environment


def _page_json(value: Any) -> str:
    """In a seventh of the time of json.dumps; a number that is none becomes null."""
    return to_json(value, inf_nan_mode="null").decode()


templates = Jinja2Templates(env=_environment())


def database_of(request: Request) -> Database:
    found: Database = request.app.state.database
    return found


def settings_of(request: Request) -> Settings:
    found: Settings = request.app.state.settings
    return found


def render(request: Request, template: str, page: str, *, status: int = 200, **context: Any) -> Response:
    """`page` is the entry of the top bar that is marked as the present one."""
    response = templates.TemplateResponse(request, template, {"page": page, **context}, status_code=status)
    response.headers["Cache-Control"] = "no-store"  # the data in the page age; going back must not show old ones
    response.headers["Link"] = _preloads(template)
    return response


@cache
def _preloads(template: str) -> str:
    """Names all modules of a page at once: a browser would find each of them only after the one that imports it."""
    text = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("base.html", template))
    found = dict.fromkeys(name for script in _SCRIPT.findall(text) for name in modules(script))
    return ", ".join(f"<{name}>; rel=modulepreload{'; as=json' if name.endswith('.json') else ''}" for name in found)


def error_page(
    request: Request, status: int, message: str, *, title: str = "", deleted: str | None = None
) -> HTMLResponse:
    """What happened and what to do, as a page; `deleted` is an experiment that it offers to restore."""
    title = title or TITLES.get(status, "Something went wrong")
    context = {"page": "", "status": status, "title": title, "message": message, "deleted": deleted}
    return templates.TemplateResponse(request, "error.html", context, status_code=status)
