"""What routes need from the application, as dependencies."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request

from app.config import Settings
from app.events import Events
from app.queue import Queue
from app.storage import Storage, find_weights
from app.store.database import Database
from engine import catalogue
from engine.spec import ExperimentSpec


@dataclass(frozen=True)
class Services:
    """Made once by app.main."""

    settings: Settings
    database: Database
    queue: Queue
    events: Events


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
