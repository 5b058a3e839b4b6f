"""FedGen: the head is shared, and a generator of features that the server trains gives it samples of all classes.

Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning. ICML 2021.
https://arxiv.org/abs/2105.10056

    client   h_k ← φ^{t-1};  E epochs of  min CE(h_k(f_k(x)), y) + α·CE(h_k(Γ(ỹ, u)), ỹ)
             on body and head together; as many ỹ as there are y in the batch
    server   Γ: S steps of Adam on  min CE(Σ_k w_k h_k(Γ(ỹ, u)), ỹ)  over the heads received
             φ^t = Σ w_k h_k
    use      h(f_k(x)):  the head just trained, or φ^t where all clients are tested after aggregation

Γ: [u ; onehot(ỹ)] → Linear → BatchNorm → ReLU → Linear, with u uniform in [0, 1]^q and ỹ from the training labels of
all clients, which are counted once before round 1. Γ is sent, and the second term exists, once Γ has been trained.
Deviations: this is the form for heterogeneous models, in which only the head is shared; the original (`full_fedgen`)
also has a diversity loss, teachers weighed by label, a KL term and decaying weights:

    client   min CE(h_k(f_k(x)), y) + α·a_t·[CE(h_k(Γ(ỹ, u)), ỹ) + KL(sg softmax h_k(Γ(y, u')) ‖ softmax h_k(f_k(x)))]
             with a_t = max(1e-4, 10·0.98^t)
    server   min Σ_k mean[w_{k,ỹ}·CE(h_k(Γ(ỹ, u)), ỹ)] + exp(-mean_{i,j}[mean(u_i - u_j)²·mean|z_i - z_j|])
             with z = Γ(ỹ, u) and w_{k,c} = (n_{k,c} + 1) / Σ_j (n_{j,c} + 1)
             Adam, decay 0.01, kept over rounds, rate 3e-4·0.98^{t-1}

BatchNorm of Γ is in train mode on the server and in eval mode on clients (a public code trains with an untrained Γ and
with batch statistics). Heads of different shape form groups with a φ and a Γ each.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, ServerState, Upload
from engine.kit.distillation import divergence
from engine.kit.sharing import SharesHead
from engine.kit.tensors import Tensors, copy_tensors, join_groups, load_tensors, revive, split_groups
from engine.kit.training import fit, fit_classifier, server_fit

FULL_LR, FULL_DECAY, FULL_FADING = 3e-4, 1e-2, 0.98
FULL_WEIGHT, FULL_LEAST_WEIGHT = 10.0, 1e-4


class FedGenParams(AlgorithmParams):
    name: Literal["fedgen"] = "fedgen"
    gen_weight: float = Field(
        1.0, ge=0, le=100, description="α: weight of the loss on generated features; 0 is LG-FedAvg"
    )
    gen_steps: int = Field(100, ge=0, le=10_000, description="S: steps of the generator in a round; 0 is LG-FedAvg")
    gen_lr: float = Field(0.1, gt=0, le=1, description="Learning rate of the generator, with Adam")
    noise_dim: int = Field(32, ge=1, le=4096, description="q: width of the noise u")
    hidden_dim: int = Field(512, ge=1, le=8192, description="Width of the generator's hidden layer")
    full_fedgen: bool = Field(
        False,
        description="The original: diversity loss, teachers by label, KL term, decaying weights; own learning rate",
    )


class FeatureGenerator(nn.Module):
    """Γ: class and noise to a feature (B, d)."""

    def __init__(self, classes: int, q: int, hidden: int, d: int) -> None:
        super().__init__()
        self.classes = classes
        self.q = q
        self.expand = nn.Linear(q + classes, hidden)
        self.normalise = nn.BatchNorm1d(hidden)
        self.project = nn.Linear(hidden, d)

    def forward(self, ỹ: Tensor, u: Tensor) -> Tensor:
        hidden = self.expand(torch.cat([u, one_hot(ỹ, self.classes).to(u.dtype)], 1))
        z: Tensor = self.project(self.normalise(hidden).relu())
        return z

    def draw(self, counts: Tensor, number: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """ỹ as often as the counts say, and u; drawn on the CPU, so that they are the same on every device."""
        ỹ = torch.multinomial(counts.cpu().double(), number, replacement=True, generator=draws)
        return ỹ.to(self.expand.weight.device), self.noise(number, draws)

    def noise(self, number: int, draws: torch.Generator) -> Tensor:
        """u, (B, q)."""
        return torch.rand(number, self.q, generator=draws).to(self.expand.weight.device)


class FedGen(SharesHead[FedGenParams]):
    Params = FedGenParams
    method = Method.of(
        __doc__,
        shares="the last linear layer, averaged per head shape, and down also a generator of features",
        family="distillation",
        heterogeneous="any models with one linear layer as head",
    )
    shared_state = frozenset({"labels", "generator", "adam"})

    def why_not(self) -> str | None:
        B = self.setup.training.batch_size
        if self._generates() and B < 2:
            return f"the generator of FedGen has batch norm: training.batch_size must be at least 2, but got {B}"
        return super().why_not()

    def _generates(self) -> bool:
        return self.params.gen_weight > 0 and self.params.gen_steps > 0

    def _generator(self, d: int) -> FeatureGenerator:
        return FeatureGenerator(self.setup.classes, self.params.noise_dim, self.params.hidden_dim, d)

    def init_client(self, client: Client) -> None:
        if self._generates():
            d = client.model.feature_dim
            client.parts["generator"] = self.setup.make("generator", lambda: self._generator(d))

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        server = super().init_server(examples)
        if not self._generates():
            return server
        generators = {self.group(client): copy_tensors(client.parts["generator"]) for client in examples}
        return server.next(server.groups, generator=generators)

    def opens(self) -> bool:
        return self._generates()

    def opening_update(self, client: Client, received: Payload) -> Payload:
        return {"counts": torch.bincount(client.train.labels, minlength=self.setup.classes)}

    def close_opening(self, server: ServerState, uploads: Sequence[Upload]) -> ServerState:
        of_clients = torch.stack([upload.payload["counts"] for upload in uploads])  # (N, L), in the order of the ids
        labels = {"counts": of_clients.sum(0), **({"of_clients": of_clients} if self.params.full_fedgen else {})}
        return server.next(server.groups, labels={"all": labels})

    def announce(self, server: ServerState, client: Client) -> Payload:
        return {"counts": server.shared["labels"]["all"]["counts"]}

    def download(self, server: ServerState, client: Client) -> Payload:
        if self.opens() and "labels" not in server.shared:
            return {}  # labels are counted before anything is sent
        group = self.group(client)
        parts = {"head": server.groups[group]}
        if self._generates():
            generator = server.shared["generator"][group]
            if generator["normalise.num_batches_tracked"] > 0:  # it has been trained
                parts["generator"] = generator
        return join_groups(parts)

    def receive(self, client: Client, received: Payload) -> None:
        for name, tensors in split_groups(received).items():
            load_tensors(client.model.head if name == "head" else client.parts[name], tensors)

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        if "generator" not in split_groups(received):
            fit_classifier(client)
            return self.upload(client)
        F, h, α = client.model, client.model.head, self.params.gen_weight
        Γ, counts, draws = (
            client.part("generator", FeatureGenerator),
            client.announced["counts"],
            client.draws("fedgen"),
        )

        full = self.params.full_fedgen
        a_t = max(FULL_LEAST_WEIGHT, FULL_WEIGHT * FULL_FADING**client.round) if full else 1.0

        def objective(x: Tensor, y: Tensor) -> Tensor:
            ỹ, u = Γ.draw(counts, len(y), draws)
            logits = F(x)
            generated = cross_entropy(h(Γ(ỹ, u)), ỹ)
            if full:
                generated = generated + divergence(h(Γ(y, Γ.noise(len(y), draws))), logits)
            return cross_entropy(logits, y) + α * a_t * generated

        fit(client, objective, client.train, update=[F], forward=[Γ])
        return self.upload(client)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        new = super().aggregate(server, uploads, round)
        if not self._generates():
            return new
        generators, adam, flops = dict(server.shared["generator"]), dict(server.shared.get("adam", {})), 0
        for group in dict.fromkeys(upload.group for upload in uploads):
            members = [upload for upload in uploads if upload.group == group]
            memory = dict(adam.get(group, {}))
            generators[group], spent = self._train_generator(server, group, members, memory, round)
            flops += spent
            if memory:
                adam[group] = memory
        return new.next(new.groups, generator=generators, adam=adam, flops=flops)

    def _train_generator(
        self, server: ServerState, group: str, members: Sequence[Upload], memory: Tensors, round: int
    ) -> tuple[Tensors, int]:
        """Γ of a group and the FLOPs spent; the original also leaves what Adam keeps over rounds in `memory`."""
        first = members[0].payload["weight"]
        L, d = first.shape
        Γ = revive(lambda: self._generator(d), server.shared["generator"][group], first.device)
        heads = [revive(partial(nn.Linear, d, L), member.payload, first.device) for member in members]
        labels = server.shared["labels"]["all"]
        w, counts, B = self.weights(members), labels["counts"], self.setup.training.batch_size

        def objective(ỹ: Tensor, u: Tensor) -> Tensor:
            z = Γ(ỹ, u)
            logits = torch.stack([w_k * h_k(z) for w_k, h_k in zip(w, heads, strict=True)]).sum(0)
            return cross_entropy(logits, ỹ)

        def full_objective(ỹ: Tensor, u: Tensor) -> Tensor:
            z = Γ(ỹ, u)
            losses = [(w_c[ỹ] * cross_entropy(h_k(z), ỹ, reduction="none")).mean() for w_c, h_k in teachers]
            return torch.stack(losses).sum() + diversity(u, z)

        draws = self.setup.server_draws(f"fedgen generator {group}", round)
        batches = (Γ.draw(counts, B, draws) for _ in range(self.params.gen_steps))
        lr, adam = self.params.gen_lr, torch.optim.Adam
        if not self.params.full_fedgen:
            flops = server_fit(
                self.setup, objective, batches, update=Γ, through=heads, lr=lr, optimiser=adam, round=round
            )
            return copy_tensors(Γ), flops
        own = labels["of_clients"][[member.client for member in members]].to(first) + 1  # (K, L)
        teachers = list(zip(own / own.sum(0), heads, strict=True))
        flops = server_fit(
            self.setup,
            full_objective,
            batches,
            update=Γ,
            through=heads,
            lr=FULL_LR * FULL_FADING ** (round - 1),
            optimiser=adam,
            weight_decay=FULL_DECAY,
            memory=memory,
            round=round,
        )
        return copy_tensors(Γ), flops


def diversity(u: Tensor, z: Tensor) -> Tensor:
    """exp(-mean of |u_i - u_j|²·|z_i - z_j| over all pairs), small where different noise gives different features."""
    noise = (u[:, None] - u[None]).square().mean(2)  # (B, B)
    features = (z[:, None] - z[None]).abs().mean(2)
    return torch.exp(-(noise * features).mean())
