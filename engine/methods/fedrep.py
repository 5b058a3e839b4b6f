"""FedRep: first the private head learns on the shared body, then the body learns under that head.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated Learning. ICML
2021. https://arxiv.org/abs/2102.07078

    head     θ frozen:    E_h epochs of  min_φ CE(h(f(x; θ_a); φ_k), y)
    body     φ_k frozen:  E_b epochs of  min_θ CE(h(f(x; θ_k); φ_k), y),  from θ_a
    server   θ_a = Σ w_k θ_k  per architecture
    use      h(f(x; θ); φ_k)

Deviations: weights n_k / Σ n_j instead of equal ones; as many epochs for the head as for the body (official scripts: 10
and 5 or 1); under preset B a body that nobody has trained yet is recalibrated before the head learns on it
(`training.recalibrate_below`). With E_h = 0 and a head that is not frozen it is FedPer.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from engine.kit.contract import AlgorithmParams, Client, Method, Payload
from engine.kit.sharing import AveragesBodies
from engine.kit.training import fit, supervised


class FedRepParams(AlgorithmParams):
    name: Literal["fedrep"] = "fedrep"
    head_epochs: int = Field(5, ge=0, le=100, description="E_h: epochs of the head on the frozen body")
    body_epochs: int = Field(5, ge=0, le=100, description="E_b: epochs of the body under the head")
    freeze_head: bool = Field(True, description="The head rests while the body learns; off with E_h = 0: FedPer")

    @model_validator(mode="after")
    def _something_is_trained(self) -> Self:
        if self.head_epochs == self.body_epochs == 0:
            raise ValueError("head_epochs and body_epochs must not both be 0: nothing would be trained")
        return self


class FedRep(AveragesBodies[FedRepParams]):
    Params = FedRepParams
    method = Method.of(__doc__, shares="the body, averaged per architecture", family="split")

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        model, body, head = client.model, client.model.body, client.model.head
        objective, E_b = supervised(model), self.params.body_epochs
        fit(client, objective, client.train, update=[head], forward=[body], epochs=self.params.head_epochs)
        if self.params.freeze_head:
            fit(client, objective, client.train, update=[body], through=[head], epochs=E_b)
        else:
            fit(client, objective, client.train, update=[model], epochs=E_b)
        return self.upload(client)
