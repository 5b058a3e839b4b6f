"""Methods whose clients tune a copy of the received model on their own samples for the test and throw it away."""

from typing import Literal, TypeVar

from pydantic import Field

from engine.kit.contract import AlgorithmParams, Client, Moment, Payload
from engine.kit.sharing import AveragesPerArchitecture
from engine.kit.training import Unit, fit, supervised


class FineTuningParams(AlgorithmParams):
    """How long, how fast and what of the copy is tuned."""

    ft_epochs: int = Field(5, ge=0, le=100, description="Epochs of tuning before the test; 0 tests the model as it is")
    ft_lr: float | None = Field(None, ge=0, le=10, description="Learning rate of tuning; null: η of the training")
    ft_part: Literal["head", "full"] = Field("head", description="Tune the head on a frozen body, or the whole model")


T = TypeVar("T", bound=FineTuningParams)


class TunesForTest(AveragesPerArchitecture[T]):
    """The client's model is tuned where it stands, because what happens for a test is forgotten after it."""

    tested = Moment.BEFORE_LOCAL_WORK

    def prepare(self, client: Client, received: Payload | None) -> None:
        super().prepare(client, received)
        self._tune(client)

    def _tune(self, client: Client) -> None:
        model, head_only = client.model, self.params.ft_part == "head"
        update = Unit(model.head if head_only else model, lr=self.params.ft_lr)
        frozen = [model.body] if head_only else []
        fit(client, supervised(model), client.train, update=[update], forward=frozen, epochs=self.params.ft_epochs)
