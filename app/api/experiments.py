"""Submit, list, look at and cancel experiments."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import IntegrityError
from starlette.concurrency import run_in_threadpool

from app.api.services import SPEC_BODY, PostedSpec, Services, Using, check_spec
from app.errors import Errors, Refusal, not_found
from app.store import experiments, idempotency, sequence
from app.store.experiments import AlreadyFinished
from app.store.idempotency import KeyReused
from app.store.states import State
from app.store.views import ExperimentView, experiment_view
from engine.spec import ExperimentSpec

log = logging.getLogger(__name__)
router = APIRouter(tags=["experiments"])

Id = Annotated[str, Path(description="The experiment's ULID")]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Errors, "description": "There is no such experiment"}}


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
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=200, description="The same key with the same body makes one experiment"),
    ] = None,
) -> Response:
    """Queue an experiment. It exists when the answer comes, whether or not a worker or the broker is there."""
    digest = idempotency.request_hash(request.method, request.url.path, await request.body())
    answer, replayed = await run_in_threadpool(_submit, use, spec, idempotency_key, digest)
    headers = {"Location": f"/api/experiments/{answer['id']}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        use.queue.hint()
        use.events.ring()
    return JSONResponse(answer, 201, headers)


def _submit(use: Services, spec: ExperimentSpec, key: str | None, digest: str) -> tuple[dict[str, Any], bool]:
    """The answer, and whether it was given before."""
    if key is not None and (stored := _stored_answer(use, key, digest)) is not None:
        return stored, True
    check_spec(use, spec)
    plain, fingerprint = spec.canonical(), spec.fingerprint()
    try:
        with use.database.write() as session:
            if key is not None and (stored := _find(session, key, digest)) is not None:
                return stored, True
            answer = experiment_view(experiments.submit(session, plain, fingerprint)).model_dump(mode="json")
            if key is not None:
                idempotency.keep(session, key, digest, answer["id"], answer)
            return answer, False
    except IntegrityError:
        # on PostgreSQL two requests with one key can meet: the other one was first
        if key is None or (stored := _stored_answer(use, key, digest)) is None:
            raise
        return stored, True


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
        return experiment_view(row)


@router.post(
    "/experiments/{id}/cancel",
    responses={**NOT_FOUND, 409: {"model": Errors, "description": "It has already ended"}},
)
def cancel(use: Using, id: Id) -> ExperimentView:
    """A queued experiment is cancelled at once; a running one within a few seconds. Stored rounds stay."""
    try:
        with use.database.write() as session:
            row = experiments.cancel(session, id)
            if row is None:
                raise not_found("experiment", id)
            answer = experiment_view(row)
    except AlreadyFinished as error:
        raise Refusal(409, str(error), field="state", value=error.state.value) from None
    use.events.ring()
    return answer
