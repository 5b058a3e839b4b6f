"""One route a page; each reads the store once and leaves the rest to the live connection."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlmodel import Session
from starlette.responses import RedirectResponse, Response

from app.comparison import curves
from app.config import Settings
from app.pages.rendering import error_page, render
from app.store import experiments, rounds, sequence
from app.store.database import Database
from app.store.states import State
from app.store.tables import Experiment
from app.store.views import experiment_view
from engine import catalogue

PAGE_SIZE = 50
MOST_COMPARED = 200
MOST_POINTS, FEWEST_POINTS = 40_000, 300
"""Of all curves of a comparison together, and of one: a screen shows no more, and a browser stays quick."""

router = APIRouter(include_in_schema=False)


def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _view(row: Experiment) -> dict[str, Any]:
    return experiment_view(row).model_dump(mode="json")


def _seq(session: Session) -> int:
    """Read before the data: events after it may repeat what the page has, but never leave a gap."""
    return sequence.current(session)


@router.get("/")
def home() -> Response:
    return RedirectResponse("/experiments")


@router.get("/experiments")
def list_page(request: Request, state: str = "", search: str = "") -> Response:
    if state and state not in set(State):
        return error_page(request, 422, f"An experiment is never {state!r}. The states are {', '.join(State)}.")
    with _database(request).read() as session:
        seq = _seq(session)
        rows, following = experiments.page(
            session, state=State(state) if state else None, search=search, limit=PAGE_SIZE
        )
        data = {"seq": seq, "items": [_view(row) for row in rows], "next": following}
    return render(request, "experiments.html", "experiments", data=data, states=list(State))


@router.get("/experiments/{experiment}")
def experiment_page(request: Request, experiment: str) -> Response:
    with _database(request).read() as session:
        seq = _seq(session)
        row = experiments.get(session, experiment)
        if row is None:
            return error_page(request, 404, f"There is no experiment {experiment}. It may have been on another server.")
        data = {"seq": seq, "experiment": _view(row), "rounds": rounds.after(session, experiment)}
    return render(request, "experiment.html", "experiments", data=data)


@router.get("/compare")
def compare_page(request: Request, ids: str = "") -> Response:
    wanted = list(dict.fromkeys(part for part in ids.split(",") if part))
    if len(wanted) > MOST_COMPARED:
        message = f"At most {MOST_COMPARED} experiments can be compared at once, but the address names {len(wanted)}."
        return error_page(request, 422, message)
    with _database(request).read() as session:
        seq = _seq(session)
        found = experiments.some(session, wanted)
        points = max(FEWEST_POINTS, MOST_POINTS // max(1, len(found)))
        data = {
            "seq": seq,
            "experiments": [_view(row) for row in found.values()],
            "curves": curves.read(session, list(found.values()), points),
            "points": points,
            "missing": [key for key in wanted if key not in found],
        }
    return render(request, "compare.html", "compare", data=data)


@router.get("/new")
def new_page(request: Request, copy_of: Annotated[str, Query(alias="from")] = "") -> Response:
    with _database(request).read() as session:
        seq = _seq(session)
        row = experiments.get(session, copy_of) if copy_of else None
    if copy_of and row is None:
        return error_page(request, 404, f"There is no experiment {copy_of} to start from.")
    known = catalogue.catalogue(_settings(request).data_root)
    data = {
        "seq": seq,
        "spec": None if row is None else row.spec,
        "catalogue": {"algorithms": known["algorithms"], "models": [{"id": item["id"]} for item in known["models"]]},
    }
    return render(request, "new.html", "new", data=data)


@router.get("/queue.json")
def queue(request: Request) -> dict[str, int]:
    """The two numbers of the top bar."""
    with _database(request).read() as session:
        counts = experiments.counts(session)
    return {
        "running": counts.get(State.RUNNING, 0) + counts.get(State.CANCELLING, 0),
        "queued": counts.get(State.QUEUED, 0) + counts.get(State.PAUSED, 0),
    }
