"""A copy of the model is tuned on the client's own samples for the test and thrown away afterwards."""

from typing import Literal

from pydantic import Field

from engine.algorithm import AlgorithmParams, Client
from engine.training import Unit, fit, supervised


class FineTuningParams(AlgorithmParams):
    """How long, how fast and what of the copy is tuned."""

    ft_epochs: int = Field(5, ge=0, le=100, description="Epochs of tuning before the test; 0 tests the model as it is")
    ft_lr: float | None = Field(None, ge=0, le=10, description="Learning rate of tuning; null: η of the training")
    ft_part: Literal["head", "full"] = Field("head", description="Tune the head on a frozen body, or the whole model")


def fine_tune(client: Client, params: FineTuningParams) -> None:
    """Tune the client's model where it stands: what happens for a test is forgotten after it."""
    model = client.model
    head_only = params.ft_part == "head"
    tuned = Unit(model.head if head_only else model, lr=params.ft_lr)
    frozen = [model.body] if head_only else []
    fit(client, supervised(model), client.train, update=[tuned], forward=frozen, epochs=params.ft_epochs)
