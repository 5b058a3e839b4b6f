"""FedAPEN: a private and a shared model teach each other and answer together, with a weight that each client learns.

Qin, Deng, Zhao, Yan: FedAPEN: Personalized Cross-silo Federated Learning with Adaptability to Statistical
Heterogeneity. KDD 2023. https://dl.acm.org/doi/10.1145/3580305.3599344

    weight   a_k ← argmin_a  CE(a·F_k(x) + (1-a)·G(x), y)  by SGD on the adaptability set, F_k and G frozen, a in [0, 1]
    client   G_k ← G;  every batch, on logits:  e_F = a_k·F + (1-a_k)·sg(G),  e_G = a_k·sg(F) + (1-a_k)·G
             min_F  CE(F, y) + KL(sg(p_G) ‖ p_F) + CE(e_F, y)
             min_G  CE(G, y) + KL(sg(p_F) ‖ p_G) + CE(e_G, y)
    server   G = mean of G_k
    use      a_k·F_k(x) + (1-a_k)·G(x)  with the newest G

The adaptability set is a part of the training samples that is fixed for the whole run and never trained on. A client
trains with a_k = 0.5 the first time; every later time it first learns a_k for the G it has just received. For a test it
learns a copy of a_k for the newest G. Deviations: a client that did not take part learns a_k when it next receives G,
not every round (in the paper all clients take part); the frozen models answer once, not once per epoch; the learning
rate does not decay; under preset B the batch norm of F_k is recalibrated (`training.recalibrate_below`), so a_k is
learned for it. At least two samples stay for training.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.kit.contract import Client, ClientDataset, Method, Moment, Payload, Predictor, Trace
from engine.kit.distillation import divergence, learn_share
from engine.kit.sharing import SharesSmallModel, SmallModelParams
from engine.kit.training import fit, forward_pass


class FedAPENParams(SmallModelParams):
    name: Literal["fedapen"] = "fedapen"
    weighting: Literal["uniform", "samples"] = Field(
        "uniform", description="Weight of a client in the average: the same for all, or its share of the samples"
    )
    adaptability_ratio: float = Field(
        0.05, ge=0, le=0.5, description="Share of the training samples set aside to learn a_k; 0: a_k stays 0.5"
    )
    weight_lr: float = Field(0.001, ge=0, le=1, description="Learning rate of a_k")
    weight_epochs: int = Field(10, ge=0, le=100, description="Epochs of a_k on the adaptability set")
    use_kl: bool = Field(True, description="The two models learn from each other's answers")
    use_ensemble: bool = Field(True, description="Both models learn from the loss of their common answer")


class Ensemble(nn.Module):
    """a_k, and whether its client has trained before."""

    a: Tensor
    trained: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor(0.5))
        self.register_buffer("trained", torch.tensor(False))


class FedAPEN(SharesSmallModel[FedAPENParams]):
    Params = FedAPENParams
    method = Method.of(
        __doc__,
        shares="a small model with its head, averaged over all clients",
        family="mutual",
        traces=(
            Trace("ensemble_weight", "Ensemble weight aₖ"),
            Trace("accuracy_private", "Accuracy of the private model alone", "accuracy"),
            Trace("accuracy_shared", "Accuracy of the shared model alone", "accuracy"),
        ),
    )
    tested = Moment.AFTER_AGGREGATION

    def init_client(self, client: Client) -> None:
        super().init_client(client)
        client.parts["ensemble"] = Ensemble()

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        train, adaptability = self._split(client)
        ensemble = client.part("ensemble", Ensemble)
        if ensemble.trained:
            self._learn_weight(client, adaptability)
        F, G, a = client.model, self.shared(client), ensemble.a.item()

        def objective(x: Tensor, y: Tensor) -> Tensor:
            logits_F, logits_G = F(x), G(x)
            return self.loss(a, logits_F, logits_G, y) + self.loss(1 - a, logits_G, logits_F, y)

        fit(client, objective, train, update=[F, G])
        ensemble.trained.fill_(True)
        client.trace("ensemble_weight", a)
        return self.upload(client)

    def loss(self, share: float, own: Tensor, peer: Tensor, y: Tensor) -> Tensor:
        """CE(own, y) + KL(sg(p_peer) ‖ p_own) + CE(share·own + (1-share)·sg(peer), y)."""
        loss = cross_entropy(own, y)
        if self.params.use_kl:
            loss = loss + divergence(peer, own)
        if self.params.use_ensemble:
            loss = loss + cross_entropy(share * own + (1 - share) * peer.detach(), y)
        return loss

    def _split(self, client: Client) -> tuple[ClientDataset, ClientDataset]:
        """What is trained on, in its own order, and the adaptability set: the last ⌊ratio·n_k⌋ of a permutation."""
        n = len(client.train)
        m = min(int(self.params.adaptability_ratio * n + 1e-6), max(0, n - 2))  # batch norm needs two samples
        order = torch.randperm(n, generator=client.lasting_draws("adaptability"))
        return client.train.subset(order[: n - m].sort().values), client.train.subset(order[n - m :])

    def _learn_weight(self, client: Client, adaptability: ClientDataset) -> None:
        F, G, ensemble = client.model, self.shared(client), client.part("ensemble", Ensemble)
        epochs, batch_size = self.params.weight_epochs, self.setup.training.batch_size
        if len(adaptability) == 0 or epochs == 0:
            return
        answers = forward_pass(
            client, lambda x: torch.stack([F(x), G(x)], 1), adaptability, forward=[F, G]
        )  # (m, 2, L)
        of_F, of_G = answers.unbind(1)
        lr, a, y = self.params.weight_lr, ensemble.a.item(), adaptability.labels
        ensemble.a.fill_(learn_share(of_F, of_G, y, a, lr=lr, epochs=epochs, batch_size=batch_size))

    def prepare(self, client: Client, received: Payload | None) -> None:
        super().prepare(client, received)
        self._learn_weight(client, self._split(client)[1])

    def predictor(self, client: Client) -> Predictor:
        F, G, a = client.model, self.shared(client), client.part("ensemble", Ensemble).a
        return lambda x: a * F(x) + (1 - a) * G(x)

    def readouts(self, client: Client) -> Mapping[str, Predictor]:
        return {"private": client.model, "shared": self.shared(client)}

    def features(self, client: Client) -> Predictor:
        """Those of both models side by side: the answer is a mean of what their heads make of them."""
        f, g = client.model.body, self.shared(client).body
        return lambda x: torch.cat([f(x), g(x)], 1)
