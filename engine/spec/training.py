"""What a spec may say about local training."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from engine.spec.frozen import LATER, Frozen


class TrainingSpec(Frozen):
    """Local SGD, the same for every method."""

    epochs: int = Field(10, ge=1, le=1000, description="Local epochs E")
    batch_size: int = Field(512, ge=1, le=65_536, description="Batch size B")
    lr: float = Field(0.01, ge=0, le=10, description="Learning rate η")
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD momentum")
    weight_decay: float = Field(0.001, ge=0, le=1, description="SGD weight decay")
    clip: float | None = Field(50.0, gt=0, le=1e6, description="Largest gradient norm of a module; null: no clipping")
    augment: bool = Field(True, description="Apply the augmentation of dataset.transform (none has none)")
    schedule: Annotated[Literal["constant", "cosine", "exponential"], LATER] = Field(
        "constant",
        description="How every local learning rate, the method's own included, changes from round to round: "
        "not at all, by ½(1 + cos π(t-1)/T), or by decay^(t-1)",
    )
    decay: Annotated[float, LATER] = Field(
        0.99, gt=0, le=1, description="Factor of the exponential schedule from one round to the next"
    )
    divergence_tolerance: Annotated[float, LATER] = Field(
        0.5,
        ge=0,
        le=1,
        description="Largest share of a round's cohort whose training may diverge: these clients sit out the round; "
        "beyond it the run ends. 0: it ends with the first; 1: never",
    )
    recalibrate_below: Annotated[int, LATER] = Field(
        0,
        ge=0,
        le=100_000,
        description="Batch norm's running statistics are taken from all own samples after training, as long as the "
        "network has seen fewer batches than this; 0: never",
    )

    @model_validator(mode="after")
    def _decay_is_used(self) -> Self:
        if self.schedule != "exponential" and self.decay != type(self).model_fields["decay"].default:
            raise ValueError(f"decay belongs to the exponential schedule, but schedule is {self.schedule}")
        return self

    def lr_factor(self, round: int, rounds: int) -> float:
        """What a local learning rate is multiplied by in this round; 1 in the opening and in round 1."""
        past = max(0, round - 1)
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * past / rounds)) / 2
        return self.decay**past if self.schedule == "exponential" else 1.0
