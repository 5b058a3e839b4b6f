"""What can be chosen, and whether a spec would run, before anything is stored."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from app.api.services import SPEC_BODY, PostedSpec, Using, check_spec
from engine import catalogue

router = APIRouter(tags=["catalogue"])


class Checked(BaseModel):
    """A spec that would run."""

    fingerprint: str
    spec: dict[str, Any] = Field(description="The complete spec, presets and defaults written out")


class PartitionPreview(BaseModel):
    """Who would hold what."""

    clients: int
    classes: int
    counts: list[list[int]] = Field(description="Samples by client and class")
    fingerprint: str
    notes: list[str]


@router.get("/catalog")
def catalog(use: Using) -> dict[str, Any]:
    """Algorithms, data sets, partitions, model families and presets, with the schemas of their parameters."""
    return catalogue.catalogue(use.settings.data_root)


@router.post("/check", openapi_extra=SPEC_BODY)
async def check(use: Using, spec: PostedSpec) -> Checked:
    """Would it run? Nothing is stored."""
    await run_in_threadpool(check_spec, use, spec)
    return Checked(fingerprint=spec.fingerprint(), spec=spec.canonical())


@router.post("/partition", openapi_extra=SPEC_BODY)
async def partition(use: Using, spec: PostedSpec) -> PartitionPreview:
    """The client × class table of a spec."""
    await run_in_threadpool(check_spec, use, spec)
    found = await run_in_threadpool(catalogue.preview_partition, spec, use.settings.data_root)
    return PartitionPreview(**found)
