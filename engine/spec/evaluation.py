"""What a spec may say about tests."""

from typing import Literal

from pydantic import Field

from engine.spec.frozen import Frozen


class EvaluationSpec(Frozen):
    """When and on which clients accuracy is measured."""

    protocol: Literal["A", "B", "C"] = Field(
        "A", description="A, C: the cohort around its local work; B: all clients after aggregation"
    )
    every: int = Field(
        1, ge=1, le=100_000, description="Rounds from one test to the next; the last round is always tested"
    )
