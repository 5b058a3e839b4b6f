"""Style sheets, scripts and vendored libraries, served as they lie in the static folder."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).resolve().parents[2] / "static"
_IMPORT = re.compile(r'^(?:(?:import|export) .*|\} )from "([^"]+)"', re.MULTILINE)


class Assets(StaticFiles):
    """Files a browser asks about each time: a 304 is cheap, a stale module after an update is not."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def mount_static(app: FastAPI) -> None:
    app.mount("/static", Assets(directory=STATIC), name="static")


@cache
def modules(address: str) -> tuple[str, ...]:
    """The addresses of a module and of all that it imports from the start."""
    found = [address]
    for module in found:
        if module.endswith(".js"):
            text = (STATIC.parent / module.lstrip("/")).read_text(encoding="utf-8")
            found += [name for name in (urljoin(module, part) for part in _IMPORT.findall(text)) if name not in found]
    return tuple(found)
