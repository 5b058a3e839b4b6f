"""Style sheets, scripts and vendored libraries, served as they lie in the static folder."""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).resolve().parents[2] / "static"


class Assets(StaticFiles):
    """Files a browser asks about each time: a 304 is cheap, a stale module after an update is not."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def mount_static(app: FastAPI) -> None:
    app.mount("/static", Assets(directory=STATIC), name="static")
