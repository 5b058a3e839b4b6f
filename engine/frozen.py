"""The base of every immutable, closed pydantic model of the engine."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Unknown keys are refused, values never change, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)
