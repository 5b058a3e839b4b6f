"""Submit, list, look at and cancel experiments."""

import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.api.once import find_answer, once
from app.api.services import SPEC_BODY, PostedSpec, Services, Using, check_spec
from app.errors import Errors, Refusal, not_found
from app.store import experiments, idempotency, listing, sequence
from app.store.experiments import AlreadyFinished
from app.store.listing import Filter, Sort
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
    next: str | None = Field(description="Value of `before` for the next page; null on the last one, and when sorted")
    total: int = Field(description="How many match")
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
    if key is not None and (stored := find_answer(use, key, digest)) is not None:
        return stored, True
    check_spec(use, spec)
    plain, fingerprint = spec.canonical(), spec.fingerprint()

    def store(session: Session) -> dict[str, Any]:
        answer = experiment_view(experiments.submit(session, plain, fingerprint)).model_dump(mode="json")
        if key is not None:
            idempotency.keep(session, key, digest, answer["id"], answer)
        return answer

    return once(use, key, digest, store)


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
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="Leave out so many")] = 0,
    before: Annotated[str | None, Query(max_length=26, description="Only experiments older than this id")] = None,
) -> ExperimentPage:
    """A page of experiments, newest first unless sorted otherwise."""
    wanted = Filter(state, algorithm, dataset, tag, search, before)
    with use.database.read() as session:
        seq = sequence.current(session)
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
