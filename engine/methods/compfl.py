"""CompFL: experts of several sizes grow together; a client helps the smaller ones and learns from those it holds.

Xu, Wan, Li, Chen, Shao, Chen, Huang: Cooperative Multiple Model Training for Personalized Federated Learning over
Heterogeneous Devices. FedKDD 2024.

    experts   θ_1 … θ_M, ascending by size of the body; client i owns j_i, holds all j ≤ j_i, keeps the heads φ_{i,j}
    select    ĵ = j_i with probability 1-ε, otherwise ĵ ~ U{1..j_i}                               (Greedy, Eq. 8)
    step 1    μ_{j,c} = mean of f(x; θ_j) over class c;  φ_{i,j} ← (W_c = μ_{j,c}, b_c = -½‖μ_{j,c}‖²);
              one epoch of  min CE(h(f(x; θ_j); φ), y)  on φ_{i,j} alone                          (Eq. 6)
    step 2    s_j = exp(ã_j/τ) / Σ exp(ã_j/τ)  over the teachers, ã_j from their local accuracy   (Eq. 7)
    step 4    min CE(p, y) + λ·Lf + μ·Lkd  on θ_ĵ and φ_{i,ĵ} together                            (Eq. 4)
              Lf  = mean (z - μ_{ĵ,y})²                                                           (Align, Eq. 2)
              Lkd = KL(½·onehot(y) + ½·Σ s_j p_j ‖ p)                                             (KD, Eq. 3)
    server    θ_j = Σ w_i θ_{j,i}  over the clients that trained j                                (Eq. 10)
    use       h(f(x; θ_{j_i}); φ_{i,j_i})

Step 1 is made for every expert that was received; the prototypes of ĵ are also the anchors of Lf. Without a server the
experts walk from client to client as tokens (token-walk), or are trained one after another, largest first, and averaged
among neighbours (gossip); see engine.kit.peer_to_peer.

Readings and deviations: teachers are the experts held except the one in training (Eq. 3 also names the model itself,
appendix C only smaller ones); there is no distillation before the end of the warm-up; KL(target ‖ prediction), because
the printed direction explodes where the target is near zero; Lf is a mean over the feature's components, as in the
author's FedPAC, not the printed sum; the accuracy of step 2 is measured on the training samples, as no validation set
is described; the server averages bodies as FedPer does, where Algorithm 1 adds the mean change, which is equal but not
to the bit; an architecture that no client owns is no expert. With `training.recalibrate_below` experts are recalibrated
before they make prototypes and teach (no preset of CompFL sets it). The loss of a round is that of step 4. No pass is
cached: training samples are augmented anew in every epoch.

Without a server: the v-th visit of a token in a round trains epochs vE … vE+E-1, and the epoch of step 1 has the number
of the first of them. Tokens that meet are taught by the copies stored before; a head that is refitted to such a copy is
forgotten with it, because the body it belongs to is replaced. The T rounds of gossip are those of the whole run, shared
out equally; for T rounds of each of the M experts, as the paper may mean it, set rounds to M·T.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, no_grad
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, one_hot

from engine.kit.contract import (
    AlgorithmParams,
    Client,
    ClientDataset,
    Method,
    Payload,
    ServerState,
    Setup,
    Trace,
)
from engine.kit.peer_to_peer import HOLDERS, Arrival, Gossip, Peers, TokenWalk, connected_graph
from engine.kit.prototypes import ClassMeans
from engine.kit.sharing import AveragesPerArchitecture
from engine.kit.tensors import copy_tensors, join_groups, load_tensors, split_groups
from engine.kit.training import Unit, fit, forward_pass
from engine.models import SplitModel, build, count

SMALLEST_TARGET = 1e-8
HELD_OUT = 10  # every tenth sample
LARGEST_GRAPH = 1000


class CompFLParams(AlgorithmParams):
    name: Literal["compfl"] = "compfl"
    align: bool = Field(True, description="Align: keep features near the class means of the received body")
    greedy: bool = Field(True, description="Greedy: sometimes train a smaller expert instead of the own one")
    kd: bool = Field(True, description="KD: learn from the other experts the client holds")
    adaptation: bool = Field(True, description="Step 1: refit the heads; off with all three components off: FedPer")
    epsilon: float = Field(0.3, ge=0, le=1, description="ε: probability of drawing the expert; 0 is Greedy off")
    tau: float = Field(0.1, gt=0, le=100, description="τ: temperature of the teachers' weights; small prefers the best")
    align_weight: float = Field(1.0, ge=0, le=1000, description="λ: weight of the alignment; 0 is Align off")
    kd_weight: float = Field(1.0, ge=0, le=1000, description="μ: weight of the distillation; 0 is KD off")
    warmup: int = Field(10, ge=0, le=100_000, description="Rounds before distillation starts")
    head_lr: float = Field(0.1, ge=0, le=10, description="η_g: learning rate of the head's epoch in step 1")
    head_momentum: float = Field(0.5, ge=0, lt=1, description="Momentum of the head's epoch")
    head_weight_decay: float = Field(0.0005, ge=0, le=1, description="Weight decay of the head's epoch")
    own_head_init: Literal["proto", "keep"] = Field(
        "proto", description="The own head starts step 1 from the prototypes, or as it is"
    )
    cosine: bool = Field(False, description="Prototypes enter the head with length 1: nearest class by angle")
    teachers: Literal["others", "strictly_smaller", "all_held"] = Field(
        "others",
        description="All experts held but the one in training; of these only those smaller than the own; or all held, "
        "the one in training as a frozen copy",
    )
    accuracy_scale: Literal["min_max", "fraction"] = Field(
        "min_max", description="ã_j: the teachers' accuracies stretched to [0, 1], or as they are"
    )
    accuracy_on: Literal["train", "holdout"] = Field(
        "train", description="Step 2 on the training samples, or on every tenth of them, which nothing else then uses"
    )
    kl: Literal["forward", "reverse"] = Field("forward", description="KL(target ‖ prediction), or the printed reverse")
    align_reduction: Literal["mean", "sum"] = Field("mean", description="Lf over the components of the feature")
    edge_probability: float = Field(
        1.0, gt=0, le=1, description="p: density of the random graph of clients; token-walk and gossip only"
    )
    hops: int | None = Field(
        None, ge=1, le=100_000, description="token-walk: hops of every token in a round; null: the size of the cohort"
    )
    walk: Literal["uniform", "metropolis"] = Field(
        "uniform",
        description="token-walk: any neighbour, or Metropolis-Hastings, which visits all clients equally often",
    )
    visit_training: Literal["greedy", "always"] = Field(
        "greedy",
        description="token-walk with Greedy: a visited client trains the token as often as Eq. 8 selects it, or always",
    )
    rounds_per_expert: int | None = Field(
        None, ge=1, le=100_000, description="gossip: rounds of every expert, the last has the rest; null: equal shares"
    )

    def depends_on_rounds(self, topology: str) -> str | None:
        if topology != "gossip" or self.rounds_per_expert is not None:
            return None
        return "CompFL's gossip gives every expert an equal share of all rounds (algorithm.rounds_per_expert is null)"


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(L, d): the mean feature of every class; zero where there is no sample."""
    means = ClassMeans(classes)
    means.add(features, labels)
    table = means.table()
    return features.new_zeros(classes, features.shape[1]).index_copy(0, table["classes"], table["means"])


def prototype_head(prototypes: Tensor, owned: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (L, d) and bias (L,) of the nearest-class-mean classifier; a class the client does not own never wins.

    W_c·z + b_c = ½‖z‖² - ½‖z - μ_c‖². A zero bias could win for features of small norm, hence the least bias.
    """
    bias = -prototypes.square().sum(1) / 2
    return prototypes * owned[:, None], torch.where(owned, bias, bias[owned].min())


def teacher_weights(accuracies: Sequence[float], τ: float, scale: Literal["min_max", "fraction"]) -> list[float]:
    """s_j of Eq. 7: equal accuracies weigh equally, one teacher alone weighs 1."""
    a = torch.tensor(accuracies, dtype=torch.float64)
    if scale == "min_max":
        a = (a - a.min()) / (a.max() - a.min()) if a.max() > a.min() else torch.zeros_like(a)
    weights: list[float] = (a / τ).softmax(0).tolist()
    return weights


def alignment(z: Tensor, anchors: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Lf of Eq. 2: the squared distance of each feature (B, d) to the anchor of its class (B, d)."""
    squares = (z - anchors).square()
    return squares.mean() if reduction == "mean" else squares.sum(1).mean()


def soft_target(y: Tensor, predictions: Sequence[Tensor], s: Sequence[float]) -> Tensor:
    """q = ½·onehot(y) + ½·Σ s_j p_j  (B, L)."""
    ensemble = torch.stack([weight * p for weight, p in zip(s, predictions, strict=True)]).sum(0)
    return (one_hot(y, ensemble.shape[1]) + ensemble) / 2


def distillation(logits: Tensor, q: Tensor, direction: Literal["forward", "reverse"]) -> Tensor:
    """Lkd of Eq. 3: KL(q ‖ p), or KL(p ‖ q) as printed; mean over the batch."""
    log_p = log_softmax(logits, 1)
    if direction == "forward":
        return kl_div(log_p, q, reduction="batchmean")
    return (log_p.exp() * (log_p - q.clamp_min(SMALLEST_TARGET).log())).sum(1).mean()


class Stored(nn.Module):
    """token-walk: which experts have left a copy at this client."""

    experts: Tensor

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.register_buffer("experts", torch.zeros(experts, dtype=torch.int64))


@lru_cache(maxsize=256)
def _kind(architecture: str, shape: tuple[int, int, int], classes: int, feature_dim: int | None) -> tuple[int, bool]:
    """Scalars of the body, and whether the head is deeper than one linear layer."""
    with torch.device("meta"):  # only sizes and kinds are asked for
        model = build(architecture, shape, classes, feature_dim)
    return count(model.body)[0], not isinstance(model.head, nn.Linear)


class CompFL(AveragesPerArchitecture[CompFLParams]):
    Params = CompFLParams
    method = Method.of(
        __doc__,
        shares="the body of one expert, averaged per architecture",
        family="proposed",
        heterogeneous="a few architectures of different size, each with one linear layer as head",
        traces=(
            Trace("expert", "Expert trained"),
            Trace("teacher_weights", "Weights of the teachers sⱼ"),
            Trace("visits", "Visits of each token", "visits"),
        ),
    )
    topologies = frozenset({"server", "token-walk", "gossip"})
    shared_state = frozenset({HOLDERS})

    def __init__(self, params: CompFLParams, setup: Setup) -> None:
        super().__init__(params, setup)
        kinds = {
            architecture: _kind(architecture, setup.shape, setup.classes, setup.feature_dim)
            for architecture in dict.fromkeys(setup.architectures)
        }
        self.experts = tuple(sorted(kinds, key=lambda architecture: kinds[architecture][0]))
        self._deep_heads = [architecture for architecture in self.experts if kinds[architecture][1]]

    def why_not(self) -> str | None:
        setup, M = self.setup, len(self.experts)
        if self.params.adaptation and self._deep_heads:
            return (
                f"CompFL writes prototypes into heads of one linear layer, but {self._deep_heads[0]} has a deeper "
                "head: switch algorithm.adaptation off or use another family"
            )
        if setup.topology == "server":
            return None
        if setup.clients > LARGEST_GRAPH:
            return f"{setup.topology} runs with at most {LARGEST_GRAPH} clients, but got {setup.clients}"
        if setup.topology == "gossip" and setup.cohort < setup.clients:
            return (
                f"gossip lets all {setup.clients} clients take part, but got a cohort of {setup.cohort}: "
                "set participation to 1"
            )
        if setup.topology == "gossip" and (self.params.rounds_per_expert or 1) * (M - 1) >= setup.rounds:
            return f"gossip trains {M} experts one after another, for which {setup.rounds} rounds are too few"
        try:
            connected_graph(setup.seed, setup.clients, self.params.edge_probability)
        except ValueError as error:
            return str(error)
        return None

    def peers(self) -> Peers | None:
        params, setup = self.params, self.setup
        if setup.topology == "token-walk":
            return TokenWalk(self, setup, params.edge_probability, hops=params.hops, walk=params.walk)
        if setup.topology == "gossip":
            return Gossip(self, setup, params.edge_probability, rounds_per_expert=params.rounds_per_expert)
        return None

    def holds(self, architecture: str) -> tuple[str, ...]:
        """1..j_i: the experts that a client of this architecture can hold, its own last."""
        return self.experts[: self.experts.index(architecture) + 1]

    def group(self, client: Client) -> str:
        """ĵ: the expert that the client trains in this round."""
        return self._select(client, "expert")

    def shared(self, client: Client) -> nn.Module:
        return self._expert(client, self.group(client)).body

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        if self.setup.topology != "server":  # the bodies are the client's own copies
            return {"model": client.model, "parts": client.parts}
        smaller = self.holds(client.architecture)[:-1]
        heads = {f"parts.{expert}.head": self._expert(client, expert).head for expert in smaller}
        return {"model.head": client.model.head, **heads}

    def init_client(self, client: Client) -> None:
        for expert in self.holds(client.architecture)[:-1]:
            client.parts[expert] = self.setup.model(expert)
        if self.setup.topology == "token-walk":
            client.parts["stored"] = Stored(len(self.experts))

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        if self.setup.topology == "gossip":
            return ServerState()
        return ServerState({client.architecture: copy_tensors(client.model.body) for client in examples})

    def download(self, server: ServerState, client: Client) -> Payload:
        if self.setup.topology != "server":
            return {}
        held, needed = self.holds(client.architecture), {client.architecture, self.group(client)}
        if not self._distils(client.round):
            held = tuple(expert for expert in held if expert in needed)
        return join_groups({expert: server.groups[expert] for expert in held})

    def local_update(self, client: Client, received: Payload) -> Payload:
        fresh = self._receive_experts(client, received)
        selected = self.group(client)
        teachers = self._teachers(client, selected, fresh) if self._distils(client.round) else []
        self._improve(client, selected, fresh, teachers)
        return self.upload(client)

    def prepare(self, client: Client, received: Payload | None) -> None:
        if received is not None:
            self._receive_experts(client, received)

    # without a server

    def host(self, client: Client, arrivals: Sequence[Arrival]) -> Payload:
        """token-walk: train every token that Eq. 8 selects, store a copy of every one, and let them go on."""
        stored = client.part("stored", Stored).experts
        known = [expert for expert, there in zip(self.experts, stored.tolist(), strict=True) if there]
        models = {expert: self._expert(client, expert) for expert in known}
        if len(arrivals) > 1:  # who arrives now teaches the others as it was before
            models |= {a.expert: copy.deepcopy(models[a.expert]) for a in arrivals if a.expert in models}
        departing: dict[str, Payload] = {}
        for arrival in arrivals:
            expert, model = arrival.expert, self._expert(client, arrival.expert)
            load_tensors(model.body, arrival.body)
            if self._trains(client, arrival):
                teachers = self._teachers(client, expert, known) if self._distils(client.round) else []
                used = {name: models[name] for name in teachers if name != expert}
                self._improve(client, expert, {**used, expert: model}, teachers, arrival.visit)
            stored[self.experts.index(expert)] = 1
            departing[expert] = copy_tensors(model.body)
        return join_groups(departing)

    def refine(self, client: Client, expert: str, age: int) -> Payload:
        """gossip: one round on the own copy of an expert, taught by the larger ones, which are finished."""
        held = self.holds(client.architecture)
        finished = held[held.index(expert) + 1 :]
        teachers = self._teachers(client, expert, finished) if self._distils(age) else []
        used = {name: self._expert(client, name) for name in (*teachers, expert)}
        self._improve(client, expert, used, teachers)
        return copy_tensors(self._expert(client, expert).body)

    def adopt(self, client: Client, expert: str, body: Payload) -> None:
        """gossip: go on with what the neighbours' copies and the own one gave together."""
        load_tensors(self._expert(client, expert).body, body)

    # the steps of the paper

    def _expert(self, client: Client, expert: str) -> SplitModel:
        return client.model if expert == client.architecture else client.part(expert, SplitModel)

    def _receive_experts(self, client: Client, received: Payload) -> dict[str, SplitModel]:
        fresh = {}
        for expert, body in split_groups(received).items():
            fresh[expert] = self._expert(client, expert)
            load_tensors(fresh[expert].body, body)
        return fresh

    def _select(self, client: Client, purpose: str) -> str:
        """Step 3, Eq. 8. The draws depend on round, client and purpose: asked again, the answer is the same."""
        held, draws = self.holds(client.architecture), client.draws(purpose)
        if self.params.greedy and torch.rand((), generator=draws).item() < self.params.epsilon:
            return held[int(torch.randint(len(held), (), generator=draws))]
        return held[-1]

    def _trains(self, client: Client, arrival: Arrival) -> bool:
        """Greedy off: the own type always, a smaller one never."""
        if self.params.greedy and self.params.visit_training == "always":
            return True
        return self._select(client, f"token {arrival.expert}, visit {arrival.visit}") == arrival.expert

    def _distils(self, age: int) -> bool:
        return self._has_kd() and age > self.params.warmup

    def _has_kd(self) -> bool:
        return self.params.kd and self.params.kd_weight > 0

    def _teachers(self, client: Client, selected: str, available: Iterable[str]) -> list[str]:
        """T_i, ascending."""
        names = set(available) - {selected}
        if self.params.teachers == "strictly_smaller":
            names -= {client.architecture}
        if self.params.teachers == "all_held":
            names |= {selected}
        return sorted(names, key=self.experts.index)

    def _improve(
        self, client: Client, selected: str, models: Mapping[str, SplitModel], teachers: Sequence[str], visit: int = 0
    ) -> None:
        """Steps 1, 2 and 4 on the selected expert; `models` are adapted, the teachers among them teach."""
        train, validation = self._samples(client)
        model = models[selected]
        prototypes = {
            name: self._adapt(client, models[name], train, anchors=name == selected, visit=visit)
            for name in sorted(models, key=self.experts.index)
        }
        anchors, λ, μ = prototypes[selected], self.params.align_weight, self.params.kd_weight
        T = [copy.deepcopy(model) if name == selected else models[name] for name in teachers]
        s = self._weigh(client, T, validation)

        def objective(x: Tensor, y: Tensor) -> Tensor:
            z = model.body(x)
            logits = model.head(z)
            loss = cross_entropy(logits, y)
            if self._aligns():
                loss = loss + λ * alignment(z, anchors[y], self.params.align_reduction)  # λ·Lf
            if T:
                with no_grad():
                    q = soft_target(y, [teacher(x).softmax(1) for teacher in T], s)
                loss = loss + μ * distillation(logits, q, self.params.kl)  # μ·Lkd
            return loss

        first_epoch = visit * self.setup.training.epochs
        fit(client, objective, train, update=[model], forward=T, first_epoch=first_epoch)
        self._trace(client, selected, dict(zip(teachers, s, strict=True)))

    def _aligns(self) -> bool:
        return self.params.align and self.params.align_weight > 0

    def _adapt(self, client: Client, model: SplitModel, train: ClientDataset, *, anchors: bool, visit: int) -> Tensor:
        """Step 1: refit the head to the body; returns the prototypes (L, d), empty if nobody needs them."""
        own = model.architecture == client.architecture
        initialise = self.params.adaptation and not (own and self.params.own_head_init == "keep")
        prototypes = torch.empty(0)
        if initialise or (anchors and self._aligns()):
            features = forward_pass(client, model.body, train, forward=[model.body])
            labels = train.labels.to(features.device)
            prototypes = class_means(features, labels, self.setup.classes)
        if initialise:
            owned = torch.bincount(labels, minlength=self.setup.classes) > 0
            weight, bias = prototype_head(normalize(prototypes) if self.params.cosine else prototypes, owned)
            load_tensors(model.head, {"weight": weight, "bias": bias})
        if self.params.adaptation:
            self._fit_head(client, model, train, visit)
        return prototypes

    def _fit_head(self, client: Client, model: SplitModel, train: ClientDataset, visit: int) -> None:
        def objective(x: Tensor, y: Tensor) -> Tensor:
            with no_grad():
                z = model.body(x)
            return cross_entropy(model.head(z), y)

        first = visit * self.setup.training.epochs
        head = Unit(model.head, self.params.head_lr, self.params.head_weight_decay, self.params.head_momentum)
        fit(client, objective, train, update=[head], forward=[model.body], epochs=1, first_epoch=first)
        client.losses.pop()  # not the loss of the round

    def _weigh(self, client: Client, teachers: Sequence[SplitModel], validation: ClientDataset) -> list[float]:
        """Step 2."""
        if not teachers:
            return []
        accuracies = []
        for teacher in teachers:
            answers = forward_pass(client, teacher, validation, forward=[teacher]).argmax(1)
            accuracies.append((answers == validation.labels.to(answers.device)).double().mean().item())
        return teacher_weights(accuracies, self.params.tau, self.params.accuracy_scale)

    def _samples(self, client: Client) -> tuple[ClientDataset, ClientDataset]:
        """What is trained on and what step 2 is measured on."""
        train = client.train
        if not (self._has_kd() and self.params.accuracy_on == "holdout") or len(train) < HELD_OUT:
            return train, train
        by_class = train.labels.argsort(stable=True)  # so that every class gives its share, in every round the same
        held_out = torch.zeros(len(train), dtype=torch.bool)
        held_out[by_class[HELD_OUT - 1 :: HELD_OUT]] = True
        return train.subset((~held_out).nonzero()[:, 0]), train.subset(held_out.nonzero()[:, 0])

    def _trace(self, client: Client, selected: str, weights: Mapping[str, float]) -> None:
        """ĵ, counted from 1, and s_1 … s_{j_i}; a group's accuracy follows from the clients' own."""
        client.trace("expert", float(self.experts.index(selected) + 1))
        if weights:
            client.trace("teacher_weights", [weights.get(name, 0.0) for name in self.holds(client.architecture)])
