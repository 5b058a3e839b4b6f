"""Submit, list, look at and steer experiments."""

import logging
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.api.plans import SubmittedPlan
from app.api.services import SPEC_BODY, PostedSpec, Services, Using
from app.errors import Errors, Refusal, not_found
from app.store import experiments, idempotency, logs, sequence, steering
from app.store.experiments import NotNow
from app.store.idempotency import KeyReused
from app.store.plan import MOST_PRIORITY, Plan, Window
from app.store.states import State
from app.store.tables import Experiment
from app.store.views import ExperimentView, LogLineView, experiment_view, log_line_view
from engine import catalogue
from engine.spec import ExperimentSpec

log = logging.getLogger(__name__)
router = APIRouter(tags=["experiments"])

Id = Annotated[str, Path(description="The experiment's ULID")]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Errors, "description": "There is no such experiment"}}

NOT_ALLOWED: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND,
    409: {"model": Errors, "description": "Its state does not allow that"},
}


class ExperimentPage(BaseModel):
    """Newest first."""

    items: list[ExperimentView]
    next: str | None = Field(description="Value of `before` for the next page; null on the last one")
    seq: int = Field(description="Number of the last change contained; events after it are new")


@router.post(
    "/experiments",
    status_code=201,
    response_model=ExperimentView,
    openapi_extra=SPEC_BODY,
    responses={
        201: {
            "description": "The experiment is stored and queued",
            "headers": {"Location": {"schema": {"type": "string"}, "description": "Address of the experiment"}},
        }
    },
)
async def submit(
    request: Request,
    use: Using,
    spec: PostedSpec,
    plan: SubmittedPlan,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=200, description="The same key with the same body makes one experiment"),
    ] = None,
) -> Response:
    """Queue an experiment. It exists when the answer comes, whether or not a worker or the broker is there."""
    address = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    digest = idempotency.request_hash(request.method, address, await request.body())
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
    if key is not None and (stored := _stored_answer(use, key, digest)) is not None:
        return stored, True
    catalogue.check(spec, use.settings.data_root)
    plain, fingerprint = spec.canonical(), spec.fingerprint()
    try:
        with use.database.write() as session:
            if key is not None and (stored := _find(session, key, digest)) is not None:
                return stored, True
            answer = _view(session, experiments.submit(session, plain, fingerprint, plan)).model_dump(mode="json")
            if key is not None:
                idempotency.keep(session, key, digest, answer["id"], answer)
            return answer, False
    except IntegrityError:
        # on PostgreSQL two requests with one key can meet: the other one was first
        if key is None or (stored := _stored_answer(use, key, digest)) is None:
            raise
        return stored, True


def _view(session: Session, row: Experiment) -> ExperimentView:
    return experiment_view(row, experiments.position(session, row))


def _stored_answer(use: Services, key: str, digest: str) -> dict[str, Any] | None:
    with use.database.read() as session:
        return _find(session, key, digest)


def _find(session: Any, key: str, digest: str) -> dict[str, Any] | None:
    try:
        return idempotency.find(session, key, digest)
    except KeyReused:
        raise Refusal(
            422,
            "this key was used before for another request; take a new key for a new experiment",
            field="Idempotency-Key",
            value=key,
        ) from None


@router.get("/experiments", response_model=ExperimentPage)
def list_experiments(
    use: Using,
    state: Annotated[State | None, Query(description="Only experiments in this state")] = None,
    search: Annotated[str, Query(max_length=200, description="Words in name, tags, algorithm, data set or id")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[str | None, Query(max_length=26, description="Only experiments older than this id")] = None,
) -> ExperimentPage:
    """A page of experiments, newest first."""
    with use.database.read() as session:
        seq = sequence.current(session)
        rows, following = experiments.page(session, state=state, search=search, limit=limit, before=before)
        return ExperimentPage(items=[experiment_view(row) for row in rows], next=following, seq=seq)


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
        raise Refusal(409, str(error), field="state", value=error.state.value) from None
    use.events.ring()
    if hint:
        use.queue.hint()
    return answer


@router.post("/experiments/{id}/cancel", responses=NOT_ALLOWED)
def cancel(use: Using, id: Id) -> ExperimentView:
    """A queued experiment is cancelled at once; a running one within a few seconds. Stored rounds stay."""
    return _steer(use, id, lambda session: experiments.cancel(session, id))


@router.post("/experiments/{id}/pause", responses=NOT_ALLOWED)
def pause(use: Using, id: Id) -> ExperimentView:
    """A queued experiment is paused at once; a running one after its present round."""
    return _steer(use, id, lambda session: steering.pause(session, id))


@router.post("/experiments/{id}/resume", responses=NOT_ALLOWED)
def resume(use: Using, id: Id) -> ExperimentView:
    """Back to the queue; it goes on after its last checkpoint with the same bits."""
    return _steer(use, id, lambda session: steering.resume(session, id), hint=True)


class QueueChange(BaseModel):
    """Only the fields that are given are changed; null takes a restriction away."""

    model_config = ConfigDict(extra="forbid")

    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher ones are taken first")
    start_after: AwareDatetime | None = Field(None, description="Not before this moment; ISO 8601 with a zone")
    window: Window | None = Field(None, description="Part of every day in which it may run")

    def columns(self) -> dict[str, Any]:
        given = {"window_from", "window_to"} if "window" in self.model_fields_set else set()
        given |= self.model_fields_set - {"window"}
        all_columns = Plan(priority=self.priority, start_after=self.start_after, window=self.window).columns()
        return {name: value for name, value in all_columns.items() if name in given}


@router.patch("/experiments/{id}/queue", responses=NOT_ALLOWED)
def change_queue(use: Using, id: Id, change: QueueChange) -> ExperimentView:
    """Another priority, first moment or window, for one that waits, is paused or runs."""
    return _steer(use, id, lambda session: steering.change_plan(session, id, change.columns()), hint=True)


@router.post("/experiments/{id}/retry", status_code=201, responses=NOT_ALLOWED)
def retry(use: Using, id: Id) -> ExperimentView:
    """A new experiment with the same spec, for one that failed, diverged or was cancelled. It starts anew."""
    return _steer(use, id, lambda session: steering.retry(session, id), hint=True)


@router.delete("/experiments/{id}", responses=NOT_ALLOWED)
def delete(use: Using, id: Id) -> ExperimentView:
    """Hide an ended experiment. For a day it can be had back; then its rounds and files are removed."""
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
