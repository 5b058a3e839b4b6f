"""What routes need from the application, as dependencies."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.events import Events
from app.queue import Queue
from app.storage import Storage, find_weights
from app.store import experiments, workers
from app.store.database import Database
from engine import catalogue
from engine.spec import ExperimentSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Services:
    """Made once by app.main."""

    settings: Settings
    database: Database
    queue: Queue
    events: Events

    def hint_slots(self) -> None:
        """Several experiments may be due: one hint for each slot that can take one, so that none waits for the next.

        They are stored by now, so nothing here may fail the request; the reconciler sends what is missing.
        """
        try:
            with self.database.read() as session:
                due = experiments.due(session, self.settings.lease_seconds)
                slots = workers.live_slots(session, self.settings.silent_seconds)
        except SQLAlchemyError as error:
            log.warning("cannot count the slots, one hint is sent: %s", str(error).splitlines()[0])
            due = slots = 1
        self.queue.hint(max(1, min(due, slots)))


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def posted_spec(request: Request) -> ExperimentSpec:
    """The body as a spec. Parsed by hand, so that every problem comes with the field's path and a sentence."""
    return ExperimentSpec.parse(await request.json() if await request.body() else None)


def weights_of(use: Services) -> catalogue.Weights:
    """Finds trained networks by their checksum, for specs that start from them."""
    return partial(find_weights, Storage(use.settings.storage))


def check_spec(use: Services, spec: ExperimentSpec) -> None:
    """SpecError: it cannot run here."""
    catalogue.check(spec, use.settings.data_root, weights_of(use))


Using = Annotated[Services, Depends(services)]
PostedSpec = Annotated[ExperimentSpec, Depends(posted_spec)]

SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The spec itself",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ExperimentSpec"}}},
    }
}
"""What OpenAPI shows for a route that takes PostedSpec; app.main adds the schema it names."""
