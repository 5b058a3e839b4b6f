"""pFedAFM: a shared small extractor beside every private model, mixed feature by feature.

Yi, Yu, Ren, Zhang, Wang, Liu, Li: pFedAFM: Adaptive Feature Mixture for Batch-Level Personalization in Heterogeneous
Federated Learning. arXiv 2024. https://arxiv.org/abs/2404.17847

    phase 1   θ frozen:      R = (1-α_k)⊙G(x; θ^{t-1}) + α_k⊙f_k(x);  min_{ω,α}  CE(h_k(R), y);  α_k clamped to [0, 1]
    phase 2   ω, α frozen:   min_θ  CE(h_k(G(x; θ)), y)
    server    θ^t = Σ w_k θ_k
    use       h_k((1-α_k)⊙G(x; θ) + α_k⊙f_k(x))  with the newest θ received

α_k ∈ R^d belongs to the client, starts at 1 and is carried over rounds. Phase 2 passes through the head that phase 1
has just trained. Deviations: weights are normalised over the clients that took part; the optimiser is new in every
phase; every client owns its α and its upload (in the public code they are one tensor). The clamp is the code's, not the
paper's. After the end-to-end ablation a client is tested with the θ it has just trained.
"""

from collections.abc import Mapping
from math import inf
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Predictor, Presets, Trace
from engine.kit.modules import Vector
from engine.kit.sharing import AveragesModule, SmallModel, why_no_small_model
from engine.kit.training import Unit, fit
from engine.models import build

HISTOGRAM_BINS = 20


class PFedAFMParams(AlgorithmParams):
    preset_values: ClassVar[Presets] = {
        "A": {"alpha_weight_decay": 0.001},
        "B": {"small_model": "fedavgcnn"},
        "C": {"small_model": "compfl-cnn"},
    }

    name: Literal["pfedafm"] = "pfedafm"
    alpha_lr: float = Field(0.1, ge=0, le=10, description="η_α: learning rate of the mixing vector; 0 is Standalone")
    alpha_weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of α, which drives it to 0 by itself")
    alpha_clamp: bool = Field(True, description="Keep every component of α in [0, 1]")
    small_model: SmallModel = Field("cnn-5", description="Architecture whose body is the shared extractor G")
    end_to_end: bool = Field(False, description="Ablation: one phase that trains ω, α and θ together")
    plain_sgd: bool = Field(False, description="The paper's text: no momentum, no weight decay, no clipping")


class PFedAFM(AveragesModule[PFedAFMParams]):
    Params = PFedAFMParams
    method = Method.of(
        __doc__,
        shares="a small extractor, averaged over all clients",
        family="proposed",
        heterogeneous="any models with one common feature width",
        traces=(
            Trace("alpha_mean", "Mean of αₖ"),
            Trace("alpha_histogram", "Histogram of αₖ", last_round_only=True),
            Trace("accuracy_small", "Accuracy of the small model alone", "accuracy"),
            Trace("accuracy_large", "Accuracy of the large model alone", "accuracy"),
        ),
    )

    def why_not(self) -> str | None:
        d = self.setup.feature_dim
        if d is None:
            return "pFedAFM mixes feature by feature and needs one width: set models.feature_dim or use another family"
        return why_no_small_model(self.method.title, self.params.small_model, self.setup, d)

    def init_client(self, client: Client) -> None:
        setup, width = self.setup, client.model.feature_dim
        client.parts["small"] = setup.make(
            "small", lambda: build(self.params.small_model, setup.shape, setup.classes, width).body
        )
        client.parts["alpha"] = Vector(width, 1.0)

    def shared(self, client: Client) -> nn.Module:
        return client.parts["small"]

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {"model": client.model, "parts.alpha": client.parts["alpha"]}

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        h, G, α = client.model.head, client.parts["small"], client.part("alpha", Vector)
        R = self.features(client)

        def mixed_objective(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(h(R(x)), y)  # Eq. of phase 1

        def small_objective(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(h(G(x)), y)  # Eq. of phase 2: no mixing

        def clamp() -> None:
            with torch.no_grad():
                α.value.clamp_(0, 1)

        model = self._unit(client.model)
        mixing = self._unit(α, lr=self.params.alpha_lr, weight_decay=self.params.alpha_weight_decay)
        small = self._unit(G)
        after_step = clamp if self.params.alpha_clamp else None
        if self.params.end_to_end:
            fit(client, mixed_objective, client.train, update=[model, mixing, small], after_step=after_step)
            upload = self.upload(client)
        else:
            fit(client, mixed_objective, client.train, update=[model, mixing], forward=[G], after_step=after_step)
            fit(client, small_objective, client.train, update=[small], through=[h])
            upload = self.upload(client)
            self.receive(client, received)  # the client goes on with the θ it was given until the next one comes
        self._trace_mixture(client, α.value.detach())
        return upload

    def readouts(self, client: Client) -> Mapping[str, Predictor]:
        small, model = client.parts["small"], client.model
        return {"small": lambda x: model.head(small(x)), "large": model}

    def features(self, client: Client) -> Predictor:
        f, G, vector = client.model.body, client.parts["small"], client.part("alpha", Vector)

        def mixture(x: Tensor) -> Tensor:
            α = vector.value
            R: Tensor = (1 - α) * G(x) + α * f(x)  # written so that α = 1 gives f(x) to the bit
            return R

        return mixture

    def _unit(self, module: nn.Module, lr: float | None = None, weight_decay: float | None = None) -> Unit:
        if self.params.plain_sgd:
            return Unit(module, lr=lr, weight_decay=0.0, momentum=0.0, clip=inf)
        return Unit(module, lr=lr, weight_decay=weight_decay)

    def _trace_mixture(self, client: Client, α: Tensor) -> None:
        client.trace("alpha_mean", float(α.mean()))
        if client.round == self.setup.rounds:
            inside = α.clamp(0, 1)  # without the clamp of training the outer bins also hold what lies outside
            client.trace("alpha_histogram", torch.histc(inside.cpu(), HISTOGRAM_BINS, 0, 1).tolist())
