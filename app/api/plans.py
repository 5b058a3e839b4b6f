"""The options of a submission, which travel beside the spec as query parameters."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import ValidationError

from app.errors import Refusal
from app.store.plan import MOST_PRIORITY, TIME, Moment, Plan, StopRule, Window

SPAN = {"pattern": rf"^\s*{TIME}\s*-\s*{TIME}\s*$"}
"""How a window is written, for OpenAPI; the window says itself what is wrong with it."""


def submitted_plan(
    priority: Annotated[int, Query(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher ones are taken first")] = 0,
    start_after: Annotated[Moment | None, Query(description="Not before this moment; ISO 8601 with a zone")] = None,
    window: Annotated[
        str | None,
        Query(max_length=20, description="Part of every day in which it may run: 22:00-08:00", json_schema_extra=SPAN),
    ] = None,
    zone: Annotated[
        str, Query(max_length=64, description="Time zone of the window, as in Europe/Berlin or +02:00")
    ] = "UTC",
    stop_target: Annotated[float | None, Query(gt=0, le=1, description="Stop when this accuracy is reached")] = None,
    stop_patience: Annotated[
        int | None, Query(ge=1, le=100_000, description="Stop after this many rounds without a higher accuracy")
    ] = None,
    stop_min_gain: Annotated[float, Query(ge=0, le=1, description="What counts as higher, with stop_patience")] = 0.0,
) -> Plan:
    """422 with the parameter's name where one is wrong."""
    asks_to_stop = stop_target is not None or stop_patience is not None or stop_min_gain
    return Plan(
        priority=priority,
        start_after=start_after,
        window=None if window is None else _window(window, zone),
        stop=_stop(stop_target, stop_patience, stop_min_gain) if asks_to_stop else None,
    )


def _window(text: str, zone: str) -> Window:
    try:
        return Window.parse(text, zone)
    except ValidationError as error:
        item = error.errors()[0]
        field = "zone" if item["loc"] == ("zone",) else "window"
        raise Refusal(422, words(item["msg"]), field=field, value=zone if field == "zone" else text) from None
    except ValueError as error:
        raise Refusal(422, str(error), field="window", value=text) from None


def _stop(target: float | None, patience: int | None, min_gain: float) -> StopRule:
    try:
        return StopRule(target=target, patience=patience, min_gain=min_gain)
    except ValidationError as error:
        raise Refusal(422, words(error.errors()[0]["msg"]), field="stop_min_gain", value=min_gain) from None


def words(message: str) -> str:
    """A validator's sentence without the framework's opening."""
    return message.removeprefix("Value error, ")


SubmittedPlan = Annotated[Plan, Depends(submitted_plan)]
