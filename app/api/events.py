"""The live stream of rounds and states."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse

from app.api.services import SOME_IDS, Using
from app.errors import Refusal
from app.events import TooManySubscribers

router = APIRouter(tags=["events"])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "`event: state`: an experiment; `event: round`: a record; `id:` the number of the change; "
            "`event: ping`: there is nothing else up to this number",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(
    use: Using,
    experiments: Annotated[
        str | None,
        Query(
            max_length=27 * 500,
            description="Ids, separated by commas; without it: all experiments",
            json_schema_extra=SOME_IDS,
        ),
    ] = None,
    after: Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Send what came after this number")] = None,
    last_event_id: Annotated[
        str | None, Header(max_length=20, description="Set by browsers when they connect again; wins over `after`")
    ] = None,
) -> Response:
    """Everything after the given number in the order of the commits, and then everything new, without a gap."""
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id)
    ids = None if experiments is None else [part for part in experiments.split(",") if part]
    try:
        stream = use.events.subscribe(ids, after)
    except TooManySubscribers:
        raise Refusal(503, "too many open event streams; close a tab", headers={"Retry-After": "10"}) from None
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
