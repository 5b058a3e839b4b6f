"""The pages of sweeps: the list, one sweep with its table, and the editor."""

from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.pages.rendering import database_of, error_page, render, settings_of
from app.store import changes, sweeps
from app.views.sweeps import summaries, sweep_view

PAGE_SIZE = 50

router = APIRouter(include_in_schema=False)


def _yaml(document: dict[str, Any]) -> str:
    """As people write it: inner lists and blocks on one line."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


@router.get("/sweeps")
def list_page(request: Request) -> Response:
    with database_of(request).read() as session:
        seq = changes.current(session)
        rows, following = sweeps.page(session, limit=PAGE_SIZE)
        items = [item.model_dump(mode="json") for item in summaries(session, rows)]
    return render(request, "sweeps.html", "sweeps", data={"seq": seq, "items": items, "next": following})


@router.get("/sweeps/new")
def new_page(request: Request, copy_of: Annotated[str, Query(alias="from")] = "") -> Response:
    with database_of(request).read() as session:
        seq = changes.current(session)
        row = sweeps.get(session, copy_of) if copy_of else None
    if copy_of and row is None:
        return error_page(request, 404, f"There is no sweep “{copy_of}” to start from.")
    data = {"seq": seq, "yaml": None if row is None else _yaml(row.document)}
    return render(request, "sweep-new.html", "sweeps", data=data)


@router.get("/sweeps/{sweep}")
def sweep_page(request: Request, sweep: str) -> Response:
    settings = settings_of(request)
    with database_of(request).read() as session:
        row = sweeps.get(session, sweep)
        if row is None:
            return error_page(request, 404, f"There is no sweep “{sweep}”. It may have been on another server.")
        view = sweep_view(session, row, settings.silent_seconds).model_dump(mode="json")
    return render(request, "sweep.html", "sweeps", data={"sweep": view, "yaml": _yaml(view["document"])})
