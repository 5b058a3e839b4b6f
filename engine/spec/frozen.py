"""The base of every immutable, closed pydantic model of the engine."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

LATER: Final = "later"
"""Marks a field that came after the first release: `Annotated[int | None, LATER] = Field(None, …)`.

Its default must mean what was done before, and then it does not count in a fingerprint: specs keep theirs. An exception
needs a decision that says why finished experiments are still the same (docs/decisions/0008). A field that is
renamed or goes needs an upgrade: engine.spec.versions."""


class Frozen(BaseModel):
    """Unknown keys are refused, values never change, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


def essence(model: BaseModel) -> dict[str, Any]:
    """The plain JSON values of a model without fields marked LATER that have their defaults."""
    plain = model.model_dump(mode="json")
    return {
        name: essence(value) if isinstance(value := getattr(model, name), BaseModel) else plain[name]
        for name, field in type(model).model_fields.items()
        if LATER not in field.metadata or getattr(model, name) != field.get_default(call_default_factory=True)
    }
