"""Submit, list, look at and steer experiments."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.api.once import IdempotencyKey, created, find_answer, once, request_digest
from app.api.plans import SubmittedPlan
from app.api.services import ID, ONE_ID, SPEC_BODY, PostedSpec, Services, Using, check_spec, json_body, posted
from app.errors import Errors, Refusal, not_found
from app.store import changes, experiments, idempotency, lifecycle, listing, logs, queue, steering
from app.store.listing import Filter, Sort
from app.store.plan import MOST_PRIORITY, Moment, Plan, Window
from app.store.states import NotNow, State
from app.store.tables import Experiment
from app.views.experiments import ExperimentView, experiment_view
from app.views.workers import LogLineView, log_line_view
from engine.spec.experiment import ExperimentSpec

log = logging.getLogger(__name__)
router = APIRouter(tags=["experiments"])

Id = Annotated[str, Path(description="The experiment's ULID", json_schema_extra=ONE_ID)]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Errors, "description": "There is no such experiment"}}

NOT_ALLOWED: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND,
    409: {"model": Errors, "description": "Its state does not allow that"},
}


class ExperimentPage(BaseModel):
    """Newest first."""

    items: list[ExperimentView]
    next: str | None = Field(description="Value of `before` for the next page; null on the last one, and when sorted")
    total: int = Field(description="How many match")
    seq: int = Field(description="Number of the last change contained; events after it are new")


@router.post(
    "/experiments",
    status_code=201,
    response_model=ExperimentView,
    openapi_extra=SPEC_BODY,
    responses={
        201: created("The experiment is stored and queued", "experiment"),
    },
)
async def submit(
    request: Request,
    use: Using,
    spec: PostedSpec,
    plan: SubmittedPlan,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Queue an experiment. It exists when the answer comes, whether or not a worker or the broker is there."""
    digest = await request_digest(request)
    answer, replayed = await run_in_threadpool(_submit, use, spec, plan, idempotency_key, digest)
    headers = {"Location": f"/api/experiments/{answer['id']}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        use.queue.hint()
        use.events.ring()
    return JSONResponse(answer, 201, headers)


def _submit(
    use: Services, spec: ExperimentSpec, plan: Plan, key: str | None, digest: str
) -> tuple[dict[str, Any], bool]:
    """The answer, and whether it was given before."""
    if key is not None and (stored := find_answer(use, key, digest)) is not None:
        return stored, True
    check_spec(use, spec)
    plain, fingerprint = spec.canonical(), spec.fingerprint()

    def store(session: Session) -> dict[str, Any]:
        answer = _view(session, experiments.submit(session, plain, fingerprint, plan)).model_dump(mode="json")
        if key is not None:
            idempotency.keep(session, key, digest, answer["id"], answer)
        return answer

    return once(use, key, digest, store)


def _view(session: Session, row: Experiment) -> ExperimentView:
    return experiment_view(row, queue.position(session, row))


@router.get("/experiments", response_model=ExperimentPage)
def list_experiments(
    use: Using,
    state: State | None = None,
    algorithm: Annotated[str, Query(max_length=64)] = "",
    dataset: Annotated[str, Query(max_length=64)] = "",
    tag: Annotated[str, Query(max_length=50)] = "",
    search: Annotated[str, Query(max_length=200, description="Words in name, tags, method, data set or id")] = "",
    sort: Sort = Sort.CREATED,
    order: Literal["down", "up"] = "down",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="Number of experiments to skip")] = 0,
    before: Annotated[str | None, Query(pattern=f"^{ID}$", description="Only experiments older than this id")] = None,
) -> ExperimentPage:
    """A page of experiments, newest first unless sorted otherwise."""
    wanted = Filter(state, algorithm, dataset, tag, search, before)
    with use.database.read() as session:
        seq = changes.current(session)
        rows = listing.find(session, wanted, sort=sort, descending=order == "down", limit=limit + 1, offset=offset)
        total = listing.count(session, wanted)
        following = rows[limit - 1].id if len(rows) > limit and sort is Sort.CREATED and order == "down" else None
        items = [experiment_view(row) for row in rows[:limit]]
    return ExperimentPage(items=items, next=following, total=total, seq=seq)


@router.get("/experiments/{id}", responses=NOT_FOUND)
def get_experiment(use: Using, id: Id) -> ExperimentView:
    """One experiment as it stands now."""
    with use.database.read() as session:
        row = experiments.get(session, id)
        if row is None:
            raise not_found("experiment", id)
        return _view(session, row)


def _steer(
    use: Services, id: str, ask: Callable[[Session], Experiment | None], *, hint: bool = False
) -> ExperimentView:
    """Ask for a change in one transaction; 404 where there is nothing, 409 where the state does not allow it."""
    try:
        with use.database.write() as session:
            row = ask(session)
            if row is None:
                raise not_found("experiment", id)
            answer = _view(session, row)
    except NotNow as error:
        raise Refusal(409, str(error), field=error.field, value=error.state.value) from None
    use.events.ring()
    if hint:
        use.queue.hint()
    return answer


@router.post("/experiments/{id}/cancel", responses=NOT_ALLOWED)
def cancel(use: Using, id: Id) -> ExperimentView:
    """A queued experiment is cancelled at once; a running one within a few seconds. Stored rounds stay."""
    return _steer(use, id, lambda session: lifecycle.cancel(session, id))


@router.post("/experiments/{id}/pause", responses=NOT_ALLOWED)
def pause(use: Using, id: Id) -> ExperimentView:
    """A queued experiment is paused at once; a running one after its present round."""
    return _steer(use, id, lambda session: steering.pause(session, id))


@router.post("/experiments/{id}/resume", responses=NOT_ALLOWED)
def resume(use: Using, id: Id) -> ExperimentView:
    """Back to the queue; it resumes from its last checkpoint with the same bits."""
    return _steer(use, id, lambda session: steering.resume(session, id), hint=True)


class QueueChange(BaseModel):
    """Only the fields that are given are changed; null takes a restriction away."""

    model_config = ConfigDict(extra="forbid")

    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher ones are taken first")
    start_after: Moment | None = Field(None, description="Not before this moment; ISO 8601 with a zone")
    window: Window | None = Field(None, description="Part of every day in which it may run")

    def columns(self) -> dict[str, Any]:
        given = {"window_from", "window_to"} if "window" in self.model_fields_set else set()
        given |= self.model_fields_set - {"window"}
        all_columns = Plan(priority=self.priority, start_after=self.start_after, window=self.window).columns()
        return {name: value for name, value in all_columns.items() if name in given}


QUEUE_BODY = json_body("QueueChange", "The fields to change")
PostedQueueChange = Annotated[QueueChange, Depends(posted(QueueChange))]


@router.patch("/experiments/{id}/queue", responses=NOT_ALLOWED, openapi_extra=QUEUE_BODY)
def change_queue(use: Using, id: Id, change: PostedQueueChange) -> ExperimentView:
    """Another priority, first moment or window, for one that waits, is paused or runs."""
    return _steer(use, id, lambda session: steering.change_plan(session, id, change.columns()), hint=True)


@router.post("/experiments/{id}/retry", status_code=201, responses=NOT_ALLOWED)
def retry(use: Using, id: Id) -> ExperimentView:
    """A new experiment with the spec of one that failed, diverged or was cancelled, from the beginning."""
    return _steer(use, id, lambda session: steering.retry(session, id), hint=True)


@router.delete("/experiments/{id}", responses=NOT_ALLOWED)
def delete(use: Using, id: Id) -> ExperimentView:
    """Hide an ended experiment. For a day it can be restored; then its rounds and files are removed."""
    return _steer(use, id, lambda session: steering.mark_deleted(session, id))


@router.post("/experiments/{id}/undelete", responses=NOT_ALLOWED)
def undelete(use: Using, id: Id) -> ExperimentView:
    """Show a deleted experiment again."""
    return _steer(use, id, lambda session: steering.undelete(session, id))


class Log(BaseModel):
    """The newest lines, in order."""

    lines: list[LogLineView]


@router.get("/experiments/{id}/log", responses=NOT_FOUND)
def get_log(
    use: Using, id: Id, after: Annotated[int, Query(ge=0, le=2**31 - 1, description="Only lines after this number")] = 0
) -> Log:
    """What the workers said while they ran it."""
    with use.database.read() as session:
        if experiments.get(session, id) is None:
            raise not_found("experiment", id)
        return Log(lines=[log_line_view(line) for line in logs.after(session, id, after)])
