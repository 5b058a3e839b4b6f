"""Data sets, workers and settings: what this installation has and how it is set up."""

import os
import re
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.advice import command
from app.config import Settings
from app.pages.overview import worker_views
from app.pages.rendering import database_of, render, settings_of
from app.store import changes, overview
from app.store.clock import read_clock
from engine import catalogue

router = APIRouter(include_in_schema=False)

_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")
_SECRET = re.compile(r"token|secret|password|key", re.IGNORECASE)


@router.get("/datasets")
def datasets_page(request: Request) -> Response:
    known = catalogue.datasets_here(settings_of(request).data_root)
    rows = [{**entry, "command": _command(entry)} for entry in known]
    return render(request, "datasets.html", "datasets", datasets=rows, data={"seq": _seq(request)})


@router.get("/workers")
def workers_page(request: Request) -> Response:
    return render(request, "workers.html", "workers", data=_workers(request))


@router.get("/workers.json")
def workers_data(request: Request) -> dict[str, Any]:
    """The same again, after a change of state."""
    return _workers(request)


def _workers(request: Request) -> dict[str, Any]:
    settings = settings_of(request)
    with database_of(request).read() as session:
        seq = changes.current(session)
        now = read_clock(session)
        rows = worker_views(session, settings)
        running = overview.overview(session).running
    for row in rows:
        row["experiments"] = [
            {
                "id": item.id,
                "name": item.name or item.algorithm,
                "round": max(0, item.next_round - 1),
                "of": item.rounds,
            }
            for item in running
            if item.owner == row["name"]
        ]
    return {"seq": seq, "now": 1000 * now, "workers": rows}


@router.get("/settings")
def settings_page(request: Request) -> Response:
    rows = shown_settings(settings_of(request))
    return render(request, "settings.html", "settings", settings=rows, data={"seq": _seq(request)})


def shown_settings(settings: Settings) -> list[dict[str, Any]]:
    """Every setting with the value in use and where it comes from; passwords are never shown."""
    rows = []
    for name, field in Settings.model_fields.items():
        variable, value = f"FEDARENA_{name.upper()}", getattr(settings, name)
        if variable in os.environ:
            source = "environment"
        elif name in settings.model_fields_set and value != field.get_default():
            source = "command line"
        else:
            source = "default"
        rows.append(
            {
                "variable": variable,
                "value": _hidden(name, value),
                "source": source,
                "help": field.description or "",
            }
        )
    return rows


def _hidden(name: str, value: object) -> str:
    """As the variable is written: true, 15."""
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float):
        text = f"{value:g}"
    if text and _SECRET.search(name):
        return "hidden"
    return _PASSWORD.sub(r"\1:hidden@", text)


def _command(entry: dict[str, Any]) -> str:
    """How to get a set that is missing."""
    return "" if entry["how_to_get"] is None else command(entry["id"], entry["how_to_get"])


def _seq(request: Request) -> int:
    with database_of(request).read() as session:
        return changes.current(session)
