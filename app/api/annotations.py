"""Change what is for people: name, tags and notes."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from app.api.experiments import NOT_FOUND, Id
from app.api.services import Services, Using, posted_json
from app.errors import Refusal, not_found
from app.store import experiments, steering
from app.views.experiments import ExperimentView, experiment_view
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

router = APIRouter(tags=["experiments"])

TAG = {"type": "string", "minLength": 1, "maxLength": 50}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The fields to change",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "minProperties": 1,
                    "properties": {
                        "name": {"type": ["string", "null"], "maxLength": 200},
                        "tags": {"type": "array", "maxItems": 20, "items": TAG},
                        "notes": {"type": "string", "maxLength": 10_000},
                    },
                }
            }
        },
    }
}


@router.patch("/experiments/{id}", responses=NOT_FOUND, openapi_extra=BODY)
async def annotate(use: Using, id: Id, request: Request) -> ExperimentView:
    """Change name, tags or notes. They are not part of the fingerprint, so this works in every state."""
    body = await posted_json(request)
    if not isinstance(body, dict) or not body:
        raise Refusal(422, "give at least one of name, tags and notes", field="", value=body)
    unknown = [key for key in body if key not in experiments.ANNOTATIONS]
    if unknown:
        message = f"only {', '.join(experiments.ANNOTATIONS)} can be changed; everything else decides the result"
        raise Refusal(422, message, field=unknown[0], value=body[unknown[0]])
    _check(body)
    answer = await run_in_threadpool(_annotate, use, id, body)
    use.events.ring()
    return answer


def _check(body: dict[str, Any]) -> None:
    """The rules of the spec hold here too; that all else of a spec is missing does not matter."""
    try:
        ExperimentSpec.parse(body)
    except SpecError as error:
        if wrong := tuple(problem for problem in error.problems if problem.field.partition(".")[0] in body):
            raise SpecError(wrong) from None


def _annotate(use: Services, id: str, body: dict[str, Any]) -> ExperimentView:
    with use.database.write() as session:
        row = steering.annotate(session, id, body)
        if row is None:
            raise not_found("experiment", id)
        return experiment_view(row)
