"""Change what is for people: name, tags and notes."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from app.api.experiments import NOT_FOUND, Id
from app.api.services import Services, Using
from app.errors import Refusal, not_found
from app.store import experiments, labels
from app.store.views import ExperimentView, experiment_view
from engine.spec import ExperimentSpec

router = APIRouter(tags=["experiments"])

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The fields to change",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": ["string", "null"], "maxLength": 200},
                        "tags": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 50}},
                        "notes": {"type": "string", "maxLength": 10_000},
                    },
                }
            }
        },
    }
}


@router.patch("/experiments/{id}", responses=NOT_FOUND, openapi_extra=BODY)
async def relabel(use: Using, id: Id, request: Request) -> ExperimentView:
    """Change name, tags or notes. They are not part of the fingerprint, so this works in every state."""
    body = await request.json() if await request.body() else None
    if not isinstance(body, dict) or not body:
        raise Refusal(422, "give at least one of name, tags and notes", field="", value=body)
    unknown = [key for key in body if key not in labels.FIELDS]
    if unknown:
        message = f"only {', '.join(labels.FIELDS)} can be changed; everything else decides the result"
        raise Refusal(422, message, field=unknown[0], value=body[unknown[0]])
    answer = await run_in_threadpool(_relabel, use, id, body)
    use.events.ring()
    return answer


def _relabel(use: Services, id: str, body: dict[str, Any]) -> ExperimentView:
    with use.database.write() as session:
        row = experiments.get(session, id)
        if row is None:
            raise not_found("experiment", id)
        checked = ExperimentSpec.parse({**row.spec, **body}).canonical()  # the rules of the spec hold here too
        changed = labels.relabel(session, id, {name: checked[name] for name in body})
        assert changed is not None, "it was there a moment ago, in the same transaction"
        return experiment_view(changed)
