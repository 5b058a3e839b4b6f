"""The REST interface: routes only parse, call the store, and answer."""

from typing import Any

from fastapi import APIRouter

from app.api import (
    annotations,
    artifacts,
    catalog,
    checkpoints,
    compare,
    estimate,
    events,
    experiments,
    extend,
    health,
    partitions,
    rounds,
    sweeps,
    workers,
)
from app.errors import Errors

REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": Errors, "description": "The Host is not this machine"},
    403: {"model": Errors, "description": "A change that another site asked for"},
    413: {"model": Errors, "description": "The body is larger than 1 MB"},
    415: {"model": Errors, "description": "The body is not JSON (or, for a sweep, YAML)"},
    422: {"model": Errors, "description": "What was sent cannot be done, field by field"},
    503: {"model": Errors, "description": "The store refuses, `value` says why; try again after Retry-After seconds"},
}

router = APIRouter(prefix="/api", responses=REFUSED)
router.include_router(experiments.router)
router.include_router(extend.router)
router.include_router(annotations.router)
router.include_router(rounds.router)
router.include_router(compare.router)
router.include_router(sweeps.router)
router.include_router(artifacts.router)
router.include_router(checkpoints.router)
router.include_router(partitions.router)
router.include_router(events.router)
router.include_router(catalog.router)
router.include_router(estimate.router)
router.include_router(workers.router)

health_router = health.router
