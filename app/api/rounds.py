"""Read the rounds: of one experiment, of several as columns, as CSV."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from app.api.experiments import NOT_FOUND, Id
from app.api.services import SOME_IDS, Using
from app.errors import Refusal, not_found
from app.numbers import json_text
from app.round_table import csv_lines
from app.store import changes, experiments, rounds
from engine.records import RoundRecord

router = APIRouter(tags=["rounds"])

COMPARE_LIMIT = 200
DEFAULT_FIELDS = "accuracy,loss,bytes_up,bytes_down,client_flops,seconds"


class Rounds(BaseModel):
    """The records of one experiment, in order."""

    experiment: str
    rounds: list[RoundRecord]
    seq: int = Field(description="Number of the last change contained; events after it are new")


class Columns(BaseModel):
    """Chosen fields of several experiments, a list a field."""

    experiments: dict[str, dict[str, list[Any]]]
    seq: int = Field(description="Number of the last change contained; events after it are new")


@router.get("/experiments/{id}/rounds", response_model=Rounds, responses=NOT_FOUND)
def get_rounds(
    use: Using, id: Id, after: Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only later rounds")] = -1
) -> Response:
    """The stored rounds; ask again with `after` for what is new, or listen to the events."""
    with use.database.read() as session:
        seq = changes.current(session)
        if experiments.get(session, id) is None:
            raise not_found("experiment", id)
        records = rounds.after(session, id, after)
    return _json({"experiment": id, "rounds": records, "seq": seq})


@router.get(
    "/experiments/{id}/rounds.csv",
    response_class=StreamingResponse,
    responses={**NOT_FOUND, 200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def get_rounds_csv(use: Using, id: Id) -> Response:
    """A line a round, for a spreadsheet."""
    with use.database.read() as session:
        row = experiments.get(session, id)
        if row is None:
            raise not_found("experiment", id)
        records = rounds.after(session, id)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", row.name or "").strip("-.")[:60]
    file = f"{name}-{row.id}.csv" if name else f"{row.id}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return StreamingResponse(csv_lines(records), media_type="text/csv", headers=headers)


@router.get("/rounds", response_model=Columns, responses=NOT_FOUND)
def get_columns(
    use: Using,
    experiments_: Annotated[
        str,
        Query(
            alias="experiments",
            max_length=27 * COMPARE_LIMIT,
            description="Ids, separated by commas",
            json_schema_extra=SOME_IDS,
        ),
    ],
    fields: Annotated[
        str, Query(max_length=500, description="Fields of a round, separated by commas; client_accuracy is large")
    ] = DEFAULT_FIELDS,
) -> Response:
    """Curves of several experiments at once."""
    ids = list(dict.fromkeys(part for part in experiments_.split(",") if part))
    if not 1 <= len(ids) <= COMPARE_LIMIT:
        raise Refusal(
            422, f"give 1 to {COMPARE_LIMIT} ids, but got {len(ids)}", field="experiments", value=experiments_
        )
    names = [part for part in fields.split(",") if part]
    with use.database.read() as session:
        seq = changes.current(session)
        there = experiments.ids_of(session, ids)
        if missing := [key for key in ids if key not in there]:
            raise not_found("experiment", missing[0])
        try:
            columns = rounds.columns(session, ids, names)
        except ValueError as error:
            raise Refusal(422, str(error), field="fields", value=fields) from None
    return _json({"experiments": columns, "seq": seq})


def _json(content: dict[str, Any]) -> Response:
    """The store's values are JSON already; validating thousands of rows again would only cost time."""
    return Response(json_text(content), media_type="application/json")
