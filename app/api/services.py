"""What routes need from the application, as dependencies."""

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from app.config import Settings
from app.events import Events
from app.queue import Queue
from app.rehearsals import Rehearsals
from app.storage import Storage, find_weights
from app.store import queue, workers
from app.store.database import Database
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError, explained, refuse_mistaken

ID = "[0-9A-HJKMNP-TV-Z]{26}"
ONE_ID, SOME_IDS = {"pattern": f"^{ID}$"}, {"pattern": f"^{ID}(,{ID})*$"}
"""How ids are written, for OpenAPI; any other text names nothing, which is a 404."""
AnyModel = TypeVar("AnyModel", bound=BaseModel)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Services:
    """Made once by app.main."""

    settings: Settings
    database: Database
    queue: Queue
    events: Events
    rehearsals: Rehearsals

    def hint_slots(self) -> None:
        """Several experiments may be due: one hint for each slot that can take one, so that none waits for the next.

        They are stored by now, so nothing here may fail the request; the reconciler sends what is missing.
        """
        try:
            with self.database.read() as session:
                due = queue.due(session, self.settings.lease_seconds)
                slots = workers.live_slots(session, self.settings.silent_seconds)
        except SQLAlchemyError as error:
            log.warning("cannot count the slots, one hint is sent: %s", str(error).splitlines()[0])
            due = slots = 1
        self.queue.hint(max(1, min(due, slots)))


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


# Bodies are parsed by hand, so that every problem comes with the field's path and a sentence, and in a thread, because
# a large one takes long enough to hold up everybody else.


async def posted_json(request: Request) -> Any:
    """The body's values; None where there is no body."""
    body = await request.body()
    return await run_in_threadpool(json.loads, body) if body else None


async def posted_spec(request: Request) -> ExperimentSpec:
    """The body as a spec."""
    return await run_in_threadpool(partial(ExperimentSpec.parse, strict=True), await posted_json(request))


def posted(model: type[AnyModel]) -> Callable[[Request], Awaitable[AnyModel]]:
    """A dependency: the body as this model."""

    def parse(data: Any) -> AnyModel:
        try:
            found = model.model_validate(data)
        except ValidationError as error:
            raise SpecError(explained(error.errors(include_url=False), "the request")) from None
        refuse_mistaken(data, found.model_dump(mode="json", by_alias=True))
        return found

    async def read(request: Request) -> AnyModel:
        return await run_in_threadpool(parse, await posted_json(request))

    return read


def weights_of(use: Services) -> catalogue.Weights:
    """Finds trained networks by their checksum, for specs that start from them."""
    return partial(find_weights, Storage(use.settings.storage))


def check_spec(use: Services, spec: ExperimentSpec) -> None:
    """SpecError: it cannot run here."""
    catalogue.check(spec, use.settings.data_root, weights_of(use))


Using = Annotated[Services, Depends(services)]
PostedSpec = Annotated[ExperimentSpec, Depends(posted_spec)]


def json_body(model: str, description: str) -> dict[str, Any]:
    """What OpenAPI shows for a route that parses its body by hand; app.main adds the schema it names."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


SPEC_BODY = json_body("ExperimentSpec", "The spec itself")
