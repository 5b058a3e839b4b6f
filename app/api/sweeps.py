"""Check, submit, look at and steer sweeps."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app import webhooks
from app.advice import with_command
from app.api.experiments import QUEUE_BODY, PostedQueueChange
from app.api.once import IdempotencyKey, created, find_answer, once, request_digest
from app.api.plans import SPAN
from app.api.services import ID, ONE_ID, Services, Using, posted_json, weights_of
from app.api.sweep_cost import CostView, cost_of, rehearsed_prices, unknown_kinds
from app.comparison.costs import costs_to_target
from app.errors import Errors, Refusal, not_found
from app.rehearsals import client_of, unless_gone
from app.security import YAML_TYPES
from app.store import changes, idempotency, lifecycle, pace, steering, sweeps, workers
from app.store.experiments import NotUnderstood
from app.store.pace import Pace
from app.store.plan import MOST_PRIORITY, Moment
from app.store.states import State
from app.store.sweeps import NewRun, NotEnded
from app.store.tables import Sweep
from app.sweep_table import FORMATS, ChoiceTable, make_table, target_of
from app.sweeps import MOST_EXPERIMENTS, Point, SweepPlan, SweepSpec, label, make_plan
from app.views.sweeps import SweepSummary, SweepView, summaries, sweep_view
from engine.records import CostToTarget
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import read_document

router = APIRouter(tags=["sweeps"])

MOST_WAITING = 100
"""Sweeps that have not ended."""

Id = Annotated[str, Path(description="The sweep's ULID", json_schema_extra=ONE_ID)]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Errors, "description": "There is no such sweep"}}

SWEEP_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The document itself, as JSON or as YAML",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/SweepSpec"}},
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}


class SweepPage(BaseModel):
    """Newest first."""

    items: list[SweepSummary]
    next: str | None = Field(description="Value of `before` for the next page; null on the last one")
    seq: int = Field(description="Number of the last change contained; events after it are new")


class RefusedView(BaseModel):
    """Something wrong, and where."""

    field: str
    message: str
    value: Any
    experiments: int = Field(description="How many experiments have this problem")
    example: str = Field(description="The first of them")


class NotApplicableView(BaseModel):
    """A combination that would be listed without being run."""

    cell: str
    reason: str
    experiments: int


class SweepCheck(BaseModel):
    """What a sweep would do; nothing is stored."""

    ok: bool
    cells: int
    experiments: int = Field(description="Without the excluded ones")
    excluded: int
    to_run: int = Field(description="Without those that are there already, refused or not applicable")
    reused: dict[str, int] = Field(description="Experiments that are there already, by state")
    refused: list[RefusedView]
    not_applicable: list[NotApplicableView]
    cost: CostView


async def posted_sweep(
    request: Request,
    priority: Annotated[
        int | None, Query(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Instead of the document's")
    ] = None,
    start_after: Annotated[Moment | None, Query(description="Instead of the document's")] = None,
    window: Annotated[
        str | None, Query(max_length=20, description="Instead of the document's: 22:00-08:00", json_schema_extra=SPAN)
    ] = None,
    zone: Annotated[
        str | None, Query(max_length=64, description="Time zone of a window that names none, as in Europe/Berlin")
    ] = None,
) -> SweepSpec:
    """The body as a sweep, so that every problem comes with the field's path and a sentence."""
    body = await request.body()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in YAML_TYPES:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise Refusal(422, "the document must be UTF-8 text") from None
        data = await run_in_threadpool(read_document, text)
    else:
        data = await posted_json(request)
    if isinstance(data, dict):
        given = {"priority": priority, "start_after": start_after and start_after.isoformat(), "window": window}
        data |= {name: value for name, value in given.items() if value is not None}
        if zone is not None and "window" in data:
            data["window"] = _in_zone(data["window"], zone)
    return await run_in_threadpool(partial(SweepSpec.parse, strict=kind not in YAML_TYPES), data)


def _in_zone(window: Any, zone: str) -> Any:
    """The window of a document in this zone, unless it names one; what is no window is refused by the parser."""
    if isinstance(window, dict):
        return {"zone": zone, **window}
    if isinstance(window, str) and "-" in window:
        begin, _, end = window.partition("-")
        return {"from": begin.strip(), "to": end.strip(), "zone": zone}
    return window


PostedSweep = Annotated[SweepSpec, Depends(posted_sweep)]


@router.post("/sweeps/check", openapi_extra=SWEEP_BODY)
async def check(
    request: Request,
    use: Using,
    sweep: PostedSweep,
    rehearse: Annotated[
        bool, Query(description="Rehearse two rounds of what was never measured, for some seconds at most")
    ] = False,
) -> SweepCheck:
    """How many experiments, what is wrong or not applicable, what exists already, and what the rest will cost."""
    found, fresh, measured = await run_in_threadpool(_check, use, sweep)
    if not rehearse or not found.ok:
        return found
    kinds = await run_in_threadpool(unknown_kinds, fresh, measured)
    prices = await unless_gone(request, rehearsed_prices(use.rehearsals, client_of(request), kinds, measured))
    cost = await run_in_threadpool(cost_of, fresh, measured, prices, found.cost.slots, sweep.window)
    return found.model_copy(update={"cost": cost})


def _check(use: Services, sweep: SweepSpec) -> tuple[SweepCheck, list[ExperimentSpec], Pace]:
    """Without a rehearsal; and what is to be run, with what is known of its time."""
    plan = make_plan(sweep, use.settings.data_root, weights_of(use))
    refused = [
        RefusedView(
            field=item.problem.field,
            message=with_command(item.problem).message,
            value=item.problem.value,
            experiments=item.experiments,
            example=item.example,
        )
        for item in plan.refused
    ]
    if sweep.webhook is not None and (problem := webhooks.refuse(sweep.webhook.url, use.settings)) is not None:
        refused.append(
            RefusedView(field="webhook.url", message=problem, value=sweep.webhook.url, experiments=0, example="webhook")
        )
    reasons = Counter((label(plan.cells[point.cell]), point.reason) for point in plan.points if point.reason)
    runnable = [point for point in plan.points if point.reason is None]
    with use.database.read() as session:
        known = sweeps.reusable(session, [p.fingerprint for p in runnable], sweep.queue_plan) if sweep.reuse else {}
        fresh = [point.spec for point in runnable if point.fingerprint not in known]
        measured = pace.read(session, {(spec.algorithm.name, spec.dataset.name) for spec in fresh})
        slots = workers.live_slots(session, use.settings.silent_seconds)
    found = SweepCheck(
        ok=not refused,
        cells=len(plan.cells),
        experiments=plan.experiments,
        excluded=plan.excluded,
        to_run=len(fresh),
        reused=dict(Counter(state.value for _, state in known.values())),
        refused=refused,
        not_applicable=[
            NotApplicableView(cell=cell, reason=reason or "", experiments=count)
            for (cell, reason), count in reasons.items()
        ],
        cost=cost_of(fresh, measured, {}, slots, sweep.window),
    )
    return found, fresh, measured


@router.post(
    "/sweeps",
    status_code=201,
    response_model=SweepView,
    openapi_extra=SWEEP_BODY,
    responses={201: created("The sweep and all its experiments are stored", "sweep")},
)
async def submit(request: Request, use: Using, sweep: PostedSweep, idempotency_key: IdempotencyKey = None) -> Response:
    """Queue a sweep: all its experiments or, if anything is wrong, none. A repeated key answers as it stands now."""
    digest = await request_digest(request)
    view, replayed = await run_in_threadpool(_submit, use, sweep, idempotency_key, digest)
    headers = {"Location": f"/api/sweeps/{view.id}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        await run_in_threadpool(use.hint_slots)
        use.events.ring()
    return JSONResponse(view.model_dump(mode="json"), 201, headers)


def _submit(use: Services, sweep: SweepSpec, key: str | None, digest: str) -> tuple[SweepView, bool]:
    """The view, and whether the sweep was there before."""
    if key is not None and (stored := find_answer(use, key, digest)) is not None:
        return _view(use, stored["sweep"]), True
    if sweep.webhook is not None and (problem := webhooks.refuse(sweep.webhook.url, use.settings)) is not None:
        raise Refusal(422, problem, field="webhook.url", value=sweep.webhook.url)
    plan = make_plan(sweep, use.settings.data_root, weights_of(use)).or_raise()
    runs = [_new_run(point) for point in plan.points]

    def store(session: Session) -> dict[str, Any]:
        if (waiting := sweeps.waiting(session)) >= MOST_WAITING:
            raise Refusal(
                429,
                f"at most {MOST_WAITING} sweeps may wait or run at once, and {waiting} do; cancel one, or submit later",
                headers={"Retry-After": "600"},
            )
        row = _store(session, plan, runs)
        if key is not None:
            idempotency.keep(session, key, digest, sweeps.first(session, row), {"sweep": row.id})
        return {"sweep": row.id}

    answer, replayed = once(use, key, digest, store)
    return _view(use, answer["sweep"]), replayed


def _new_run(point: Point) -> NewRun:
    return NewRun(point.cell, point.seed, point.spec.canonical(), point.fingerprint, point.reason)


def _store(session: Session, plan: SweepPlan, runs: list[NewRun]) -> Sweep:
    sweep = plan.sweep
    return sweeps.submit(
        session,
        name=sweep.name,
        notes=sweep.notes,
        document=sweep.document(),
        cells=plan.cells,
        runs=runs,
        plan=sweep.queue_plan,
        reuse=sweep.reuse,
        webhook=None if sweep.webhook is None else sweep.webhook.url,
    )


def _view(use: Services, sweep: str) -> SweepView:
    with use.database.read() as session:
        return sweep_view(session, _found(session, sweep), use.settings.silent_seconds)


def _found(session: Session, sweep: str) -> Sweep:
    row = sweeps.get(session, sweep)
    if row is None:
        raise not_found("sweep", sweep)
    return row


@router.get("/sweeps")
def list_sweeps(
    use: Using,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    before: Annotated[str | None, Query(pattern=f"^{ID}$", description="Only sweeps older than this id")] = None,
) -> SweepPage:
    """A page of sweeps, newest first."""
    with use.database.read() as session:
        seq = changes.current(session)
        rows, following = sweeps.page(session, limit=limit, before=before)
        return SweepPage(items=summaries(session, rows), next=following, seq=seq)


@router.get("/sweeps/{id}", responses=NOT_FOUND)
def get_sweep(use: Using, id: Id) -> SweepView:
    """Document, progress, time left and the table of cells as they stand now."""
    return _view(use, id)


@router.get(
    "/sweeps/{id}/table.{format}",
    response_class=Response,
    responses={**NOT_FOUND, 200: {"content": {kind.split(";")[0]: {} for kind in FORMATS.values()}}},
)
def get_table(
    use: Using,
    id: Id,
    format: Annotated[Literal["csv", "md", "tex"], Path()],
    rows: Annotated[
        Literal["cells", "choices"] | None,
        Query(description="choices: the settings that report.choose asks for, without it the default; else all cells"),
    ] = None,
) -> Response:
    """The table of the sweep for a program, a note or a paper: mean ± deviation over finished seeds."""
    with use.database.read() as session:
        row = _found(session, id)
        view = sweep_view(session, row, use.settings.silent_seconds)
        choices = _choice_table(view, rows)
        table = choices or make_table(view, _costs(session, view))
    text = {"csv": table.as_csv, "md": table.as_markdown, "tex": table.as_latex}[format]()
    headers = {"Content-Disposition": f'attachment; filename="sweep-{view.id}{"-choices" if choices else ""}.{format}"'}
    return Response(text, media_type=FORMATS[format], headers=headers)


def _choice_table(view: SweepView, rows: str | None) -> ChoiceTable | None:
    """None: the cells are wanted."""
    if rows == "choices" and view.choices is None:
        message = "choices needs a document with report: {choose: {over: […]}}, but this sweep has none"
        raise Refusal(422, message, field="rows", value=rows)
    return None if rows == "cells" or view.choices is None else ChoiceTable(view.choices)


def _costs(session: Session, view: SweepView) -> dict[str, CostToTarget] | None:
    """By experiment; None: the document names no target."""
    target = target_of(view.document)
    if target is None:
        return None
    finished = [run.experiment for cell in view.cells for run in cell.runs if run.state == State.FINISHED.value]
    return costs_to_target(session, finished, target) if finished else {}


@router.post("/sweeps/{id}/cancel", responses=NOT_FOUND)
def cancel(use: Using, id: Id) -> SweepView:
    """Cancel all its experiments that have not ended; reused ones continue."""
    return _steer(use, id, lambda session, row: sweeps.for_each(session, row, lifecycle.cancel))


@router.post("/sweeps/{id}/pause", responses=NOT_FOUND)
def pause(use: Using, id: Id) -> SweepView:
    """Pause all its experiments that have not ended, running ones after their present round; reused ones continue."""
    return _steer(use, id, lambda session, row: sweeps.for_each(session, row, steering.pause))


@router.post("/sweeps/{id}/resume", responses=NOT_FOUND)
def resume(use: Using, id: Id) -> SweepView:
    """Put its paused experiments back into the queue."""
    answer = _steer(use, id, lambda session, row: sweeps.for_each(session, row, steering.resume))
    use.hint_slots()
    return answer


@router.patch("/sweeps/{id}/queue", responses=NOT_FOUND, openapi_extra=QUEUE_BODY)
def change_queue(use: Using, id: Id, change: PostedQueueChange) -> SweepView:
    """Another priority, first moment or window for all its experiments that have not ended; reused ones keep theirs."""
    columns = change.columns()

    def move(session: Session, experiment: str) -> object:
        return steering.change_plan(session, experiment, columns)

    answer = _steer(use, id, lambda session, row: sweeps.for_each(session, row, move))
    use.hint_slots()
    return answer


@router.post(
    "/sweeps/{id}/retry",
    responses={**NOT_FOUND, 409: {"model": Errors, "description": "This version does not understand one of its specs"}},
)
def retry(
    use: Using,
    id: Id,
    cell: Annotated[int | None, Query(ge=0, lt=MOST_EXPERIMENTS, description="Only this cell, counted from 0")] = None,
) -> SweepView:
    """Run again only what failed, diverged or was cancelled; reused experiments also if they were deleted."""
    anew = _deleted_runs(use, id)
    answer = _steer(use, id, lambda session, row: sweeps.retry(session, row, cell, anew))
    use.hint_slots()
    return answer


def _deleted_runs(use: Services, id: str) -> list[NewRun]:
    """What the document asks for in the place of reused experiments that were deleted."""
    with use.database.read() as session:
        row = _found(session, id)
        gone = sweeps.deleted(session, row)
    if not gone:
        return []
    plan = make_plan(SweepSpec.parse(row.document), use.settings.data_root, weights_of(use)).or_raise()
    return [_new_run(point) for point in plan.points if (point.cell, point.seed) in gone]


def _steer(use: Services, id: str, change: Callable[[Session, Sweep], object]) -> SweepView:
    try:
        with use.database.write() as session:
            change(session, _found(session, id))
    except NotUnderstood as error:
        raise Refusal(409, str(error), field=error.field) from None
    use.events.ring()
    return _view(use, id)


@router.delete(
    "/sweeps/{id}",
    status_code=204,
    responses={**NOT_FOUND, 409: {"model": Errors, "description": "Some of its experiments have not ended"}},
)
def delete(use: Using, id: Id) -> None:
    """Hide the sweep. Its experiments stay."""
    try:
        with use.database.write() as session:
            sweeps.mark_deleted(session, _found(session, id))
    except NotEnded:
        raise Refusal(409, f"sweep {id} has not ended; cancel it before deleting it", field="state") from None
