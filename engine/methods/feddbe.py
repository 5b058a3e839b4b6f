"""FedDBE: FedAvg, a private offset of the feature, and mean features that are pulled toward one fixed global mean.

Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan: Eliminating Domain Bias for Federated Learning in Representation Space.
NeurIPS 2023. https://arxiv.org/abs/2311.14975

    mean     m ← (1-μ)·sg(m) + μ·mean(z),  z = f(x; θ);  0 at the start of every round
    client   min_{θ,φ,r}  CE(h(z + r_k; φ), y) + κ·mean_d ½(m - z̄)²                              (PRBM, MR)
    server   (θ, φ) = Σ w_k (θ_k, φ_k)
    use      h(f(x; θ) + r_k; φ)

z̄ = Σ w_k m_k is made once before round 1: every client trains a copy of the initial model, which it knows from the
common seed, for E epochs with CE alone, sends its m_k and forgets the training. r_k ∈ R^d starts at 0, stays at home,
is clipped apart and does not decay. m starts from 0 as in the code, so with μ < 1 it is biased low at first.
Deviation: one model and one z̄ per architecture. FedARC calls the weight λ and the momentum κ.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Predictor, ServerState, Upload
from engine.kit.modules import Vector
from engine.kit.moving_mean import MovingMeans
from engine.kit.sharing import AveragesModels
from engine.kit.tensors import weighted_mean
from engine.kit.training import Unit, fit, forward_pass

OFFSET = "offset"


class FedDBEParams(AlgorithmParams):
    name: Literal["feddbe"] = "feddbe"
    mean_weight: float = Field(50.0, ge=0, le=1000, description="κ: weight of the mean regularisation; 0 is off")
    momentum: float = Field(1.0, ge=0, le=1, description="μ: share of the current batch in the moving mean")
    train_bias: bool = Field(True, description="PRBM: train the offset r_k; off with κ = 0: FedAvg")
    init: Literal["train", "forward"] = Field(
        "train", description="Global mean from E epochs of a throw-away copy, or from features of the untrained model"
    )


class FedDBE(AveragesModels[FedDBEParams]):
    Params = FedDBEParams
    method = Method.of(
        __doc__,
        shares="the whole model, averaged per architecture; the mean feature once",
        family="homogeneous",
    )

    shared_state = frozenset({"means"})

    def init_client(self, client: Client) -> None:
        client.parts[OFFSET] = Vector(client.model.feature_dim, 0.0)

    def opens(self) -> bool:
        return self.params.mean_weight > 0

    def opening_download(self, server: ServerState, client: Client) -> Payload:
        return {}  # the initial model is known from the common seed

    def opening_update(self, client: Client, received: Payload) -> Payload:
        body = client.model.body
        if self.params.init == "forward":
            return {"mean": forward_pass(client, body, client.train, forward=[body]).mean(0)}
        means = MovingMeans(self.params.momentum, "zero")
        self._train(client, means, offset=False, center=None)
        return {"mean": means.values[0]}

    def close_opening(self, server: ServerState, uploads: Sequence[Upload]) -> ServerState:
        centers: dict[str, Payload] = {}
        for group in server.groups:
            members = [upload for upload in uploads if upload.group == group]
            if not members:  # nobody's mean was finite
                continue
            centers[group] = weighted_mean([member.payload for member in members], self.weights(members))
        return server.next(server.groups, means=centers)

    def announce(self, server: ServerState, client: Client) -> Payload:
        return server.shared.get("means", {}).get(self.group(client), {})

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        regularised = self.params.mean_weight > 0
        means = MovingMeans(self.params.momentum, "zero") if regularised else None
        center = client.announced.get("mean") if regularised else None
        self._train(client, means, offset=self.params.train_bias, center=center)
        return self.upload(client)

    def _train(self, client: Client, means: MovingMeans | None, *, offset: bool, center: Tensor | None) -> None:
        f, h, κ = client.model.body, client.model.head, self.params.mean_weight
        r = client.part(OFFSET, Vector)

        def objective(x: Tensor, y: Tensor) -> Tensor:
            z = f(x)
            loss = cross_entropy(h(z + r.value if offset else z), y)
            if means is None:
                return loss
            [m] = means.update(z)
            return loss if center is None else loss + κ * mse_loss(m, center) / 2

        offsets = [Unit(r, weight_decay=0.0)] if offset else []
        fit(client, objective, client.train, update=[client.model, *offsets])

    def features(self, client: Client) -> Predictor:
        f, r = client.model.body, client.part(OFFSET, Vector)

        def shifted(x: Tensor) -> Tensor:
            z: Tensor = f(x) + r.value
            return z

        return shifted
