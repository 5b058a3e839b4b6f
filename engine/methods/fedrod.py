"""FedRoD: a generic model for balanced classes is shared; a private second head adds what is special about the client.

Chen, Chao: On Bridging Generic and Personalized Federated Learning for Image Classification. ICLR 2022.
https://arxiv.org/abs/2107.00778

    generic    min_{θ,φ}  CE(φ(z) + γ·log n_k, y),  z = f(x; θ)        balanced softmax: n_{k,c} samples of class c
    personal   min_ψ      CE(sg φ(z) + ψ_k(sg z), y)
    server     (θ, φ) = Σ w_k (θ_k, φ_k)
    use        φ(z) + ψ_k(z)

Both losses come from one forward pass; neither reaches the parameters of the other. ψ_k starts as a copy of the generic
head, stays at home and is clipped apart. A class without samples counts as 1e-8 of one. Deviations: the linear variant,
without hypernetwork; one average per architecture; tested with θ and φ as the local work left them. The loss of a round
is the sum of both.
"""

import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Predictor, Trace
from engine.kit.sharing import AveragesModels
from engine.kit.training import fit

RESIDUAL = "residual"
SMALLEST_COUNT = 1e-8


class FedRoDParams(AlgorithmParams):
    name: Literal["fedrod"] = "fedrod"
    gamma: float = Field(1.0, ge=0, le=10, description="γ: exponent of the class counts; 0: the generic part is FedAvg")


def log_counts(counts: Tensor) -> Tensor:
    """log n_c, finite for a class without samples."""
    return torch.log(counts.clamp(min=SMALLEST_COUNT))


class FedRoD(AveragesModels[FedRoDParams]):
    Params = FedRoDParams
    method = Method.of(
        __doc__,
        shares="the generic model, averaged per architecture",
        family="homogeneous",
        traces=(Trace("accuracy_generic", "Accuracy of the generic model alone", "accuracy"),),
    )

    def init_client(self, client: Client) -> None:
        client.parts[RESIDUAL] = copy.deepcopy(client.model.head)

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        f, φ, ψ, γ = client.model.body, client.model.head, client.parts[RESIDUAL], self.params.gamma
        log_n = log_counts(client.train.class_counts(self.setup.classes).float())

        def objective(x: Tensor, y: Tensor) -> Tensor:
            z = f(x)
            generic = φ(z)
            balanced = cross_entropy(generic if γ == 0 else generic + γ * log_n, y)
            return balanced + cross_entropy(generic.detach() + ψ(z.detach()), y)

        fit(client, objective, client.train, update=[client.model, ψ])
        return self.upload(client)

    def predictor(self, client: Client) -> Predictor:
        f, φ, ψ = client.model.body, client.model.head, client.parts[RESIDUAL]

        def personal(x: Tensor) -> Tensor:
            z = f(x)
            logits: Tensor = φ(z) + ψ(z)
            return logits

        return personal

    def readouts(self, client: Client) -> dict[str, Predictor]:
        return {"generic": client.model}
