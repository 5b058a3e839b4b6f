"""Published numbers, read once from the file beside this module."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FILE = Path(__file__).with_name("published.json")

Status = Literal["value", "failed-to-converge", "not-applicable", "target-not-reached", "not-run"]


class Statement(BaseModel):
    """One number a paper prints, or its remark that there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    paper: str = Field(description="Key of the paper that prints it, which is not always the method's own")
    place: str = Field(description="Table, figure or section")
    study: str | None = Field(None, description="The set-up it belongs to")
    method: str | None = None
    params: dict[str, Any] = {}
    metric: str
    unit: str = Field(description="Accuracies are percent here, and fractions everywhere else")
    headline: Literal["best-round", "final-round"] | None = Field(None, description="null: the paper does not say")
    relation: Literal["=", ">", "~"] = "="
    value: float | None = Field(description="null unless the status is `value`")
    std: float | None = Field(None, description="What is printed after ±; no paper says what it is")
    printed: str | None = Field(None, description="The characters in the paper")
    status: Status
    trials: int | None = Field(None, description="null: not stated")
    spec: dict[str, Any] = Field({}, description="The part of a spec that the paper states")
    inferred: tuple[str, ...] = Field((), description="Paths of this statement that the paper does not print")
    note: str | None = None


@cache
def papers() -> dict[str, str]:
    """Titles of the papers by key."""
    found: dict[str, str] = _read()["papers"]
    return found


@cache
def statements() -> tuple[Statement, ...]:
    """All of them, in the papers' order."""
    return tuple(Statement.model_validate(row) for row in _read()["statements"])


def about(method: str, metric: str = "accuracy") -> list[Statement]:
    """What is published about a method."""
    return [row for row in statements() if row.method == method and row.metric == metric]


def _read() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content
