"""FedMRL: the features of a shared small model and of the private one are fused, and read at two nested widths.

Yi, Yu, Ren, Wang, Liu, Li: Federated Model Heterogeneous Matryoshka Representation Learning. NeurIPS 2024.
https://arxiv.org/abs/2406.00488

    features   z = P_k([G_ex(x) ; f_k(x)]),  P_k: R^{d_s+d_k} → R^{d_k}  one private linear layer
    client     G_k ← G;  min  m_F·CE(h_k(z), y) + m_G·CE(g(z[:d_s]), y)  over f_k, h_k, P_k and G = (G_ex, g) together
    server     G = Σ w_k G_k,  extractor and head
    use        h_k(z)  with the G just trained, or with the newest one where all clients are tested after aggregation

Deviations: none from the paper. The projector belongs to its client and is kept over rounds, and the small head is
trained and sent as it is (public codes draw a new projector every round, or overwrite the small head by a part of the
large one). d_s is 128, as a public library tuned it, unless the narrowest private model is narrower.
"""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.kit.contract import Client, Method, Payload, Predictor
from engine.kit.sharing import SharesSmallModel, SmallModelParams
from engine.kit.training import fit
from engine.models import ARCHITECTURES

TUNED_WIDTH = 128


class FedMRLParams(SmallModelParams):
    name: Literal["fedmrl"] = "fedmrl"
    shared_dim: int | None = Field(
        None, ge=1, le=8192, description="d_s: feature width of G, at most that of any model; null: 128, or that width"
    )
    local_weight: float = Field(1.0, ge=0, le=10, description="m_F: weight of the private head's loss")
    shared_weight: float = Field(1.0, ge=0, le=10, description="m_G: weight of the small head's loss")

    @model_validator(mode="after")
    def _something_is_learned(self) -> Self:
        if self.local_weight == self.shared_weight == 0:
            raise ValueError("local_weight or shared_weight must be positive, but both are 0")
        return self


class FedMRL(SharesSmallModel[FedMRLParams]):
    Params = FedMRLParams
    method = Method.of(__doc__, shares="a small model with its head, averaged over all clients", family="mutual")

    def why_not(self) -> str | None:
        narrowest, d_s = self._narrowest(), self.small_width()
        if d_s > narrowest:
            return f"algorithm.shared_dim must be at most the narrowest model's width {narrowest}, but got {d_s}"
        return super().why_not()

    def _narrowest(self) -> int:
        """min_k d_k."""
        own = [ARCHITECTURES[name].feature_dim for name in self.setup.architectures]
        return self.setup.feature_dim or min(own)

    def small_width(self) -> int:
        return self.params.shared_dim or min(TUNED_WIDTH, self._narrowest())

    def init_client(self, client: Client) -> None:
        super().init_client(client)
        d, d_s = client.model.feature_dim, self.small_width()
        client.parts["projector"] = self.setup.make("projector", lambda: nn.Linear(d_s + d, d))

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        h, G, P = client.model.head, self.shared(client), client.parts["projector"]
        m_F, m_G, d_s = self.params.local_weight, self.params.shared_weight, self.small_width()

        def objective(x: Tensor, y: Tensor) -> Tensor:
            z = self._fused(client, x)
            losses = []
            if m_F > 0:
                losses.append(m_F * cross_entropy(h(z), y))
            if m_G > 0:
                losses.append(m_G * cross_entropy(G.head(z[:, :d_s]), y))  # the nested prefix
            return torch.stack(losses).sum()

        fit(client, objective, client.train, update=[client.model, G, P])
        return self.upload(client)

    def _fused(self, client: Client, x: Tensor) -> Tensor:
        """z = P_k([G_ex(x) ; f_k(x)]), (B, d_k)."""
        z: Tensor = client.parts["projector"](torch.cat([self.shared(client).body(x), client.model.body(x)], 1))
        return z

    def features(self, client: Client) -> Predictor:
        return lambda x: self._fused(client, x)
