"""The overview: is the night going well?"""

from typing import Any

from fastapi import APIRouter, Request
from sqlmodel import Session
from starlette.responses import Response

from app.config import Settings
from app.pages.rendering import database_of, render, settings_of
from app.store import changes, overview, pace, rounds, sweeps, workers
from app.store.clock import read_clock
from app.store.tables import Experiment, Worker
from app.views.experiments import experiment_view, iso
from app.views.sweeps import summaries

router = APIRouter(include_in_schema=False)

SWEEPS_SHOWN = 4


@router.get("/")
def overview_page(request: Request) -> Response:
    return render(request, "overview.html", "overview", data=_data(request))


@router.get("/overview.json")
def overview_data(request: Request) -> dict[str, Any]:
    """The same data again, after a change of state."""
    return _data(request)


def _data(request: Request) -> dict[str, Any]:
    settings = settings_of(request)
    with database_of(request).read() as session:
        seq = changes.current(session)
        found = overview.overview(session)
        newest, _ = sweeps.page(session, limit=SWEEPS_SHOWN)
        known = pace.read(session, rows=[*found.running, *found.queued])
        shown = [*found.running, *found.queued]
        timings = [(row, known.of(row) or known.alike(row.algorithm, row.dataset)) for row in shown]
        running = [row.id for row in found.running]
        return {
            "seq": seq,
            "running": [_brief(row) for row in found.running],
            "queued": [_brief(row) for row in found.queued],
            "sweeps": [sweep.model_dump(mode="json") for sweep in summaries(session, newest)],
            "failed": [_brief(row) for row in found.failed],
            "finished": [_brief(row) for row in found.finished],
            "counts": found.counts,
            "finished_today": found.finished_today,
            "failed_today": found.failed_today,
            "curves": rounds.columns(session, running, ("accuracy", "seconds")) if running else {},
            "expected": {row.id: timing and timing.a_round for row, timing in timings},
            "once": {row.id: timing and pace.once(row, timing) for row, timing in timings},
            "later_seconds": overview.later_seconds(found.later, known),
            "now": 1000 * read_clock(session),
            "workers": worker_views(session, settings),
            "slots": workers.live_slots(session, settings.silent_seconds),
        }


def _brief(row: Experiment) -> dict[str, Any]:
    """An experiment without what the page does not show: the traceback and most of the spec."""
    view = experiment_view(row).model_dump(mode="json")
    spec = {key: view["spec"][key] for key in ("algorithm", "dataset", "partition", "models", "clients", "seed")}
    error = None if row.error_reason is None else {"reason": row.error_reason, "detail": None}
    return view | {"spec": spec | {"algorithm": {"name": row.algorithm}}, "error": error}


def worker_views(session: Session, settings: Settings) -> list[dict[str, Any]]:
    """Who is silent is told by the clock that also says when each was seen; a browser's may be wrong."""
    there = {worker.name for worker in workers.live(session, settings.silent_seconds)}
    return [_worker_view(worker, silent=worker.name not in there) for worker in workers.known(session)]


def _worker_view(worker: Worker, *, silent: bool) -> dict[str, Any]:
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "device": worker.device,
        "slots": worker.slots,
        "started_at": iso(worker.started_at),
        "last_seen": iso(worker.last_seen),
        "silent": silent,
        "report": worker.report or {},
    }
