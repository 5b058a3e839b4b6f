"""Who held what in a stored experiment."""

import threading
from collections import OrderedDict
from typing import Any

from fastapi import APIRouter

from app.advice import with_command
from app.api.catalog import PartitionPreview
from app.api.experiments import NOT_FOUND, Id
from app.api.services import Using
from app.errors import Errors, Refusal, not_found
from app.store import experiments
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

router = APIRouter(tags=["experiments"])

KEPT = 16
"""Tables in memory; the largest, of 10,000 clients, takes some ten MB."""


class Tables:
    """The tables asked for last, by the partition's fingerprint."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, PartitionPreview] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, fingerprint: str | None) -> PartitionPreview | None:
        with self._lock:
            if fingerprint is None or fingerprint not in self._tables:
                return None
            self._tables.move_to_end(fingerprint)
            return self._tables[fingerprint]

    def put(self, table: PartitionPreview) -> None:
        with self._lock:
            self._tables[table.fingerprint] = table
            self._tables.move_to_end(table.fingerprint)
            while len(self._tables) > KEPT:
                self._tables.popitem(last=False)


_known = Tables()

CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Errors, "description": "The data set is not here, or it is another one than the experiment used"}
}


# a plain function: the framework runs it in a thread
@router.get("/experiments/{id}/partition", responses={**NOT_FOUND, **CONFLICT})
def partition(use: Using, id: Id) -> PartitionPreview:
    """The client × class table of an experiment, computed from its stored spec."""
    with use.database.read() as session:
        row = experiments.get(session, id)
        if row is None:
            raise not_found("experiment", id)
        stored, spec = row.partition_fingerprint, row.spec
    found = _known.get(stored)
    if found is not None:
        return found
    try:
        found = PartitionPreview(**catalogue.preview_partition(ExperimentSpec.parse(spec), use.settings.data_root))
    except SpecError as error:
        first = with_command(error.problems[0])
        raise Refusal(409, first.message, field=first.field, value=first.value) from None
    refuse_other_partition(found.fingerprint, stored)
    _known.put(found)
    return found


def refuse_other_partition(here: str, stored: str | None) -> None:
    """Refusal: the files on this machine are not those that the experiment used."""
    if stored is not None and here != stored:
        raise Refusal(
            409,
            f"the data set on this machine gives the partition {here[:12]}, but the experiment used "
            f"{stored[:12]}: put the files that the worker used into the data folder here",
            field="partition_fingerprint",
            value=stored,
        )
