"""What a spec may say about the clients' networks."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from engine.models import FAMILIES, Assignment
from engine.spec.frozen import Frozen


class PretrainedSpec(Frozen):
    """Networks that another experiment trained, named by what is in them."""

    weights: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] = Field(
        min_length=1, max_length=16, description="sha256 of weights files; together they hold every architecture once"
    )
    part: Literal["body", "model"] = Field("body", description="Start from their bodies under new heads, or from both")

    @field_validator("weights")
    @classmethod
    def _in_order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """The order says nothing, so it must not change the fingerprint."""
        return tuple(sorted(set(value)))


class ModelsSpec(Frozen):
    """Which network each client owns."""

    family: str = Field(
        description="A family of architectures; one architecture is a family of one",
        json_schema_extra={"enum": [*sorted(FAMILIES)]},
    )
    feature_dim: int | None = Field(
        None, ge=1, le=8192, description="Common feature width; null takes the family's own"
    )
    assign: Assignment = Field(
        "modulo",
        description="Client id modulo the family's size, equal blocks of ids, or drawn with uniform probability",
    )
    pretrained: PretrainedSpec | None = Field(None, description="Trained networks to start from; null: random weights")

    @field_validator("family")
    @classmethod
    def _family_exists(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"unknown model family {value!r}; known: {', '.join(sorted(FAMILIES))}")
        return value
