"""FedARC: local and shared features are fused, corrected by private residuals and pulled toward a fixed global anchor.

FedARC: Adaptive Residual Compensation for Data and Model Heterogeneous Federated Learning. Under review, 2025.

    features    zF = f_k(x),  zG = G(x; θ),  z = P_k([zF ; zG])                                        fusion (FRF)
    residuals   uF = z + r_F,  uG = z[:d2] + r_G                                                       (ARC)
    means       mF ← (1-κ)·sg(mF) + κ·mean(aF),  mG ← (1-κ)·sg(mG) + κ·mean(aG)
    loss        a_F·[CE(h_k(uF), y) + λ·MSE(mF, z̄)] + a_G·[CE(g_k(uG), y) + λ·MSE(mG, z̄[:d2])]         (SAA)
    server      θ = Σ w_k θ_k
    use         h_k(P_k([f_k(x) ; G(x; θ)]) + r_F)

Only θ travels; f_k, h_k, P_k, g_k, r_F and r_G are private and persistent. The anchor z̄ = Σ n_k z̄_k / Σ n_k is made
once before round 1: every client trains one epoch of fusion only, without residuals and anchor but with the weights a_F
and a_G of every round, sends the mean of the vector to be anchored, and forgets the training. Readings: the anchored
vectors are the extractors' outputs as in the printed formula (`anchor_level`: the prose says the fused z); MSE without
½; the moving means start each round from the first batch's detached mean, which is unbiased; the head of the shared
branch stays private, as only the extractor is said to travel.
Deviation: a mean that is not finite is left out of the anchor, and under preset B batch norm is recalibrated before z̄_k
is taken (`training.recalibrate_below`): after ten batches the features of a ResNet-152 can be anything.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Predictor, ServerState, Upload
from engine.kit.modules import Together, Vector
from engine.kit.moving_mean import MovingMeans
from engine.kit.sharing import AveragesModule, SmallModel, why_no_small_model
from engine.kit.tensors import shares, weighted_mean
from engine.kit.training import fit, forward_pass
from engine.models import build


class FedARCParams(AlgorithmParams):
    name: Literal["fedarc"] = "fedarc"
    anchor_weight: float = Field(1.0, ge=0, le=1000, description="λ: weight of the semantic anchor; 0 switches it off")
    momentum: float = Field(0.1, ge=0, le=1, description="κ: share of the current batch in the moving mean")
    shared_dim: int | None = Field(
        None, ge=1, le=8192, description="d2: width of the shared features; null: half of d1"
    )
    local_weight: float = Field(1.0, ge=0, le=10, description="a_F: weight of the local branch")
    shared_weight: float = Field(1.0, ge=0, le=10, description="a_G: weight of the shared branch")
    residuals: bool = Field(True, description="ARC: train the residual vectors")
    anchoring: bool = Field(True, description="SAA: pull mean features toward the anchor")
    anchor_level: Literal["extractor", "fused"] = Field("extractor", description="Which vectors are anchored")
    anchor_init: Literal["train", "moving", "forward"] = Field(
        "train",
        description="Mean features for the anchor: after one epoch (train), its moving mean, or untrained (forward)",
    )
    mean_start: Literal["batch", "zero"] = Field("batch", description="What the moving mean starts from each round")
    inference: Literal["fused", "raw_local"] = Field("fused", description="h_k on the fused feature, or on f_k alone")
    share_head: bool = Field(False, description="Send the head of the shared branch too, as FedMRL does")
    small_model: SmallModel = Field("fedavgcnn", description="Architecture whose body is the shared extractor")

    @model_validator(mode="after")
    def _something_is_learned(self) -> Self:
        if self.local_weight == self.shared_weight == 0:
            raise ValueError("local_weight or shared_weight must be positive, but both are 0")
        return self


class Residuals(nn.Module):
    """r_F and r_G: zero at first, private, kept over rounds, clipped together."""

    def __init__(self, d1: int, d2: int) -> None:
        super().__init__()
        self.local = Vector(d1, 0.0)
        self.shared = Vector(d2, 0.0)


class FedARC(AveragesModule[FedARCParams]):
    Params = FedARCParams
    method = Method.of(
        __doc__,
        shares="a small extractor, averaged over all clients; the anchor once",
        family="proposed",
        heterogeneous="any models with one common feature width",
    )

    shared_state = frozenset({"anchor"})

    def why_not(self) -> str | None:
        d1 = self.setup.feature_dim
        if d1 is None:
            return "FedARC fuses features of one width: set models.feature_dim or use another family"
        if self._shared_dim(d1) > d1:
            return f"algorithm.shared_dim must be at most models.feature_dim = {d1}, but got {self.params.shared_dim}"
        return why_no_small_model(self.method.title, self.params.small_model, self.setup, self._shared_dim(d1))

    def _shared_dim(self, d1: int) -> int:
        return self.params.shared_dim or max(1, d1 // 2)

    def _anchors(self) -> bool:
        return self.params.anchoring and self.params.anchor_weight > 0

    def init_client(self, client: Client) -> None:
        setup, d1, L = self.setup, client.model.feature_dim, self.setup.classes
        d2 = self._shared_dim(d1)
        extractor = setup.make("small", lambda: build(self.params.small_model, setup.shape, L, d2).body)
        client.parts["small"] = extractor
        client.parts["small_head"] = setup.make("small head", lambda: nn.Linear(d2, L))
        client.parts["projector"] = setup.make("projector", lambda: nn.Linear(d1 + d2, d1))
        client.parts["residuals"] = Residuals(d1, d2)

    def shared(self, client: Client) -> nn.Module:
        if self.params.share_head:
            return Together(body=client.parts["small"], head=client.parts["small_head"])
        return client.parts["small"]

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        kept = ["projector", "residuals"] if self.params.share_head else ["projector", "residuals", "small_head"]
        return {"model": client.model, **{f"parts.{name}": client.parts[name] for name in kept}}

    def opens(self) -> bool:
        return self._anchors()

    def opening_update(self, client: Client, received: Payload) -> Payload:
        """z̄_k: the mean of the vector to be anchored over the client's training samples."""
        self.receive(client, received)
        means = MovingMeans(self.params.momentum, self.params.mean_start)
        if self.params.anchor_init != "forward":
            self._train(client, means, residuals=False, anchor=None, epochs=1)
        if self.params.anchor_init == "moving":
            return {"mean": means.values[0]}
        fused = self.params.anchor_level == "fused"
        used = [client.model.body, client.parts["small"], client.parts["projector"]] if fused else [client.model.body]
        return {"mean": forward_pass(client, lambda x: self._anchored(client, x), client.train, forward=used).mean(0)}

    def close_opening(self, server: ServerState, uploads: Sequence[Upload]) -> ServerState:
        anchor = weighted_mean([u.payload for u in uploads], shares([u.num_samples for u in uploads]))
        return server.next(server.groups, anchor={"all": anchor})

    def announce(self, server: ServerState, client: Client) -> Payload:
        return server.shared["anchor"]["all"] if server.shared else {}  # nobody's mean was finite: there is no anchor

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        means = MovingMeans(self.params.momentum, self.params.mean_start)
        anchor = client.announced.get("mean") if self._anchors() else None
        self._train(client, means, residuals=self.params.residuals, anchor=anchor)
        return self.upload(client)

    def _train(
        self, client: Client, means: MovingMeans, *, residuals: bool, anchor: Tensor | None, epochs: int | None = None
    ) -> None:
        f, h = client.model.body, client.model.head
        G, g, P = (client.parts[name] for name in ("small", "small_head", "projector"))
        r, λ = client.part("residuals", Residuals), self.params.anchor_weight
        r_F, r_G = r.local.value, r.shared.value
        d2, a_F, a_G = len(r_G), self.params.local_weight, self.params.shared_weight

        def objective(x: Tensor, y: Tensor) -> Tensor:
            zF, zG = f(x), G(x)
            z = P(torch.cat([zF, zG], 1))  # (B, d1): FRF
            uF, uG = (z + r_F, z[:, :d2] + r_G) if residuals else (z, z[:, :d2])  # ARC: a nested prefix, not a split
            branches = ((a_F, h, uF), (a_G, g, uG))
            losses = [a * cross_entropy(head(u), y) for a, head, u in branches if a > 0]
            mF, mG = means.update(*((z, z[:, :d2]) if self.params.anchor_level == "fused" else (zF, zG)))
            if anchor is not None:
                anchored = ((a_F, mF, anchor), (a_G, mG, anchor[:d2]))
                losses += [a * λ * mse_loss(m, target) for a, m, target in anchored if a > 0]  # SAA
            return sum(losses[1:], losses[0])

        trained: list[nn.Module] = [client.model, Together(body=G, head=g), P]
        fit(client, objective, client.train, update=[*trained, r] if residuals else trained, epochs=epochs)

    def _anchored(self, client: Client, x: Tensor) -> Tensor:
        zF: Tensor = client.model.body(x)
        if self.params.anchor_level == "extractor":
            return zF
        fused: Tensor = client.parts["projector"](torch.cat([zF, client.parts["small"](x)], 1))
        return fused

    def features(self, client: Client) -> Predictor:
        f, G, P = client.model.body, client.parts["small"], client.parts["projector"]
        if self.params.inference == "raw_local":
            return f
        r_F = client.part("residuals", Residuals).local.value

        def fused(x: Tensor) -> Tensor:
            uF: Tensor = P(torch.cat([f(x), G(x)], 1)) + r_F
            return uF

        return fused
