"""Another number of rounds for a finished experiment: continue it, or read a shorter run out of it."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.api.experiments import NOT_FOUND, Id
from app.api.once import IdempotencyKey, created, find_answer, once, request_digest
from app.api.partitions import refuse_other_partition
from app.api.services import Services, Using, check_spec, json_body, posted
from app.errors import Errors, Refusal, not_found
from app.storage import Storage, checkpoints_after
from app.store import continuing, experiments, idempotency, queue, rounds
from app.store.continuing import Inheritance, NotFinished
from app.store.states import NotNow, State
from app.store.tables import Experiment
from app.views.experiments import ExperimentView, experiment_view
from engine import catalogue
from engine.catalogue import Untellable
from engine.records import RoundRecord
from engine.spec.experiment import ExperimentSpec

router = APIRouter(tags=["experiments"])


class Extension(BaseModel):
    """Another number of rounds."""

    model_config = ConfigDict(extra="forbid")

    rounds: int = Field(ge=1, le=100_000, description="Rounds T of the new experiment, more or fewer")


PostedExtension = Annotated[Extension, Depends(posted(Extension))]


class ExtendedView(ExperimentView):
    """The experiment with that number of rounds."""

    told: str = Field(description="What was taken over and where training resumes, in a sentence")


@dataclass(frozen=True)
class Way:
    """How one experiment comes out of another."""

    inheritance: Inheritance
    told: str


@router.post(
    "/experiments/{id}/extend",
    status_code=201,
    response_model=ExtendedView,
    openapi_extra=json_body("Extension", "Another number of rounds"),
    responses={
        **NOT_FOUND,
        200: {"model": ExtendedView, "description": "There is an experiment with this result already"},
        201: created("It has the common rounds, and the rest is queued", "experiment"),
        409: {"model": Errors, "description": "It has not finished, or its rounds are not those of the other run"},
    },
)
async def extend(
    request: Request, use: Using, id: Id, extension: PostedExtension, idempotency_key: IdempotencyKey = None
) -> Response:
    """A new experiment whose spec differs in `rounds` alone and that has the common rounds from the beginning.

    With more rounds it is queued and resumes from the last checkpoint; with fewer it has finished at once. All its
    results are those of a run submitted with that number of rounds; where they could not be, it is refused.
    """
    digest = await request_digest(request)
    answer, status, replayed = await run_in_threadpool(_extend, use, id, extension.rounds, idempotency_key, digest)
    headers = {"Location": f"/api/experiments/{answer['id']}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    elif status == 201:
        use.queue.hint()
        use.events.ring()
    return JSONResponse(answer, status, headers)


def _extend(use: Services, id: str, count: int, key: str | None, digest: str) -> tuple[dict[str, Any], int, bool]:
    """The answer, its status, and whether it was given before."""
    if key is not None and (stored := find_answer(use, key, digest)) is not None:
        return stored, 201, True
    try:
        source = _source(use, id)
        spec = experiments.stored_spec(source)
        wanted = ExperimentSpec.parse({**spec.canonical(), "rounds": count})
        fingerprint = wanted.fingerprint()
        with use.database.read() as session:
            found = continuing.same(session, fingerprint)
            if found is not None:
                return _there(session, found), 200, False
        way = _way(use, source, spec, wanted)
        is_new = False

        def store(session: Session) -> dict[str, Any]:
            nonlocal is_new
            taken = continuing.take_over(session, id, wanted.canonical(), fingerprint, way.inheritance)
            if taken is None:
                raise not_found("experiment", id)
            row, is_new = taken
            if not is_new:
                return _there(session, row)
            answer = _answer(session, row, way.told)
            if key is not None:
                idempotency.keep(session, key, digest, row.id, answer)
            return answer

        answer, replayed = once(use, key, digest, store)
    except NotNow as error:
        raise Refusal(409, str(error), field=error.field, value=error.state.value) from None
    return answer, 201 if is_new or replayed else 200, replayed


def _source(use: Services, id: str) -> Experiment:
    with use.database.read() as session:
        row = experiments.get(session, id)
    if row is None:
        raise not_found("experiment", id)
    if row.state is not State.FINISHED:
        raise NotFinished(row)
    return row


def _way(use: Services, source: Experiment, spec: ExperimentSpec, wanted: ExperimentSpec) -> Way:
    """Refusal: the rounds of the one are not those of the other."""
    done, count = source.next_round - 1, wanted.rounds
    reason = spec.depends_on_rounds()
    if reason is not None and count != spec.rounds:
        raise _other_rounds(f"a run of {count} rounds is another one from the start: {reason}", count)
    check_spec(use, wanted)
    common = min(done, count)
    with use.database.read() as session:
        record = rounds.get(session, source.id, common)
    try:
        last: RoundRecord | None = catalogue.at_horizon(RoundRecord.model_validate(record), spec, count)
        why = ""
    except ValidationError as error:
        raise _other_rounds(f"round {common} of {source.id} is damaged in the store: {error}", count) from None
    except Untellable as error:
        if count <= done:
            raise _other_rounds(f"{count} rounds cannot be read out of {source.id}: {error}", count) from None
        last, why = None, f"; {error}, so round {common} is computed again"
    inheritance = Inheritance(common, last)
    if count <= done:
        return Way(inheritance, f"rounds 0 to {count} are those of {source.id}; nothing was computed")
    here = catalogue.preview_partition(wanted, use.settings.data_root)["fingerprint"]
    refuse_other_partition(here, source.partition_fingerprint)
    start = _start(use, source, before=inheritance.rounds)
    return Way(inheritance, f"rounds 0 to {inheritance.rounds - 1} are those of {source.id}{why}; {start}")


def _start(use: Services, source: Experiment, before: int) -> str:
    """Where the training will resume, as far as the names of files tell."""
    again = "its training starts again from round 0, and the rounds that are there are compared"
    if source.checkpoint is None:
        return f"no checkpoint was kept: {again}"
    try:
        found = [number for number in checkpoints_after(Storage(use.settings.storage), source.id) if number < before]
    except OSError as error:
        return f"it resumes from the last checkpoint that can be read, which the storage cannot name now ({error})"
    return f"it resumes from the checkpoint of round {found[-1]}" if found else f"no checkpoint is left: {again}"


def _other_rounds(message: str, count: int) -> Refusal:
    return Refusal(409, f"{message}; submit it as a separate experiment", field="rounds", value=count)


def _there(session: Session, row: Experiment) -> dict[str, Any]:
    return _answer(
        session, row, f"{row.id} has this result already: it is {row.state.value}, and nothing new is queued"
    )


def _answer(session: Session, row: Experiment, told: str) -> dict[str, Any]:
    view = experiment_view(row, queue.position(session, row))
    return ExtendedView(**view.model_dump(), told=told).model_dump(mode="json")
