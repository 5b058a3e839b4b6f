"""What experiments spent until a target accuracy, read from no more of their rounds than it takes."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import Session

from app.store import rounds
from engine.records import CostToTarget, RoundRecord, cost_to_target

FIELDS = ("accuracy", "scalars_up", "scalars_down", "bytes_up", "bytes_down", "client_flops", "cohort")


def costs_to_target(session: Session, ids: Sequence[str], target: float) -> dict[str, CostToTarget]:
    """By experiment id."""
    columns = rounds.columns(session, ids, FIELDS)
    return {key: cost_to_target(_records(lists), target) for key, lists in columns.items()}


def _records(lists: Mapping[str, Sequence[Any]]) -> list[RoundRecord]:
    """Only the fields that costs are made of; they were checked when they were stored."""
    return [
        RoundRecord.model_construct(**dict(zip(lists, values, strict=True)))
        for values in zip(*lists.values(), strict=True)
    ]
