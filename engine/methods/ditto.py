"""Ditto: beside the global model of FedAvg every client trains a personal one that is tied to it.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization. ICML 2021.
https://arxiv.org/abs/2012.04221

    global     w_k ← w^t;  E epochs of  min_w CE(F(x; w_k), y)
    personal   E epochs of  min_v CE(F(x; v_k), y) + (λ/2)‖v_k - w^t‖²,  with w^t as it was received
    server     w^{t+1} = Σ_{k∈S^t} (n_k / Σ_{j∈S^t} n_j) w_k
    use        F(x; v_k)

v_k is a whole model of its own with its own running statistics; it starts at w^0, stays at home and waits while its
client is idle. Deviation: one average per architecture. The loss of a round is that of the global branch.

The authors' λ = 1 goes with plain SGD. Momentum m makes a steady pull 1/(1-m) times as strong, so preset A, with
m = 0.9, sets λ = 0.1; with λ = 1 the personal model would be the global one again after a few steps. Preset C, with
m = 0.5, keeps λ = 1, which then pulls like λ = 2, the largest value that the authors tried.
"""

import copy
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Predictor, Presets
from engine.kit.sharing import AveragesModels
from engine.kit.training import fit, fit_classifier, proximity
from engine.models import SplitModel

PERSONAL = "model"  # the part takes the model's role, so that its dropout masks are those of a model trained alone


class DittoParams(AlgorithmParams):
    preset_values: ClassVar[Presets] = {"A": {"weight": 0.1}}

    name: Literal["ditto"] = "ditto"
    weight: float = Field(1.0, ge=0, le=100, description="λ: pull of the personal model to the global; 0 is Standalone")
    personal_epochs: int | None = Field(
        None, ge=0, le=100, description="Epochs of the personal model; null: the local epochs E"
    )


class Ditto(AveragesModels[DittoParams]):
    Params = DittoParams
    method = Method.of(__doc__, shares="the global model, averaged per architecture", family="homogeneous")

    def init_client(self, client: Client) -> None:
        client.parts[PERSONAL] = copy.deepcopy(client.model)

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        upload = self.upload(client)
        v, λ = client.part(PERSONAL, SplitModel), self.params.weight

        def personal_objective(x: Tensor, y: Tensor) -> Tensor:
            loss = cross_entropy(v(x), y)
            return loss if λ == 0 else loss + λ * proximity(v, received)

        fit(client, personal_objective, client.train, update=[v], epochs=self.params.personal_epochs)
        return upload

    def features(self, client: Client) -> Predictor:
        return client.part(PERSONAL, SplitModel).body

    def predictor(self, client: Client) -> Predictor:
        return client.parts[PERSONAL]
