"""FedKD: a private mentor and a shared mentee teach each other; only the mentee's compressed update travels.

Wu, Wu, Lyu, Huang, Xie: Communication-efficient federated learning via knowledge distillation. Nature Communications
13, 2022. https://www.nature.com/articles/s41467-022-29763-x

    client   from one forward of mentor F and mentee G, with  c = sg(CE_F + CE_G)  and  z  their features:
             min  CE_F + CE_G + [KL(sg(p_G) ‖ p_F) + KL(sg(p_F) ‖ p_G)]/c + MSE(z_F, W_k·z_G)/c
    up       C(Δ_k),  Δ_k = θ_k - θ.  C keeps of every weight the leading singular values, as many as carry the share
             T_t = T_start + (T_end - T_start)·t/T  of its energy Σ σ²;  D multiplies the factors again
    server   θ ← θ + D(C(Σ w_k D(C(Δ_k))))
    down     C(Σ …) of the round before; in round 1 the dense initial mentee
    use      F_k(x)

Deviations: the hidden loss counts once (the public codes add it to both losses, one backward each); peers and c are
detached (`no_detach`); a weight that needs all its singular values keeps them (the public codes make it zero); a matrix
whose factors are not shorter is sent as it is; the server adds what the clients get, so that all hold the same base. A
client that was away is taken to know the newest base and pays for one message, unless `strict_wire`: then it keeps the
base it has, and after an absence is sent the compressed model instead of the update. SVD is not in client_flops; it is
the trace `svd_flops`.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from engine.kit.compression import Slices, compress, decompress, svd_flops
from engine.kit.contract import Client, Groups, Method, Payload, Presets, ServerState, Trace, Upload
from engine.kit.distillation import divergence
from engine.kit.sharing import SharesSmallModel, SmallModelParams
from engine.kit.tensors import copy_tensors, live_tensors, load_tensors, minus, plus, weighted_mean
from engine.kit.training import Unit, fit


class FedKDParams(SmallModelParams):
    preset_values: ClassVar[Presets] = {
        "B": {"small_model": "fedavgcnn", "weighting": "uniform", "clip": 10.0},
        "C": {"small_model": "compfl-cnn", "clip": 10.0},
    }

    name: Literal["fedkd"] = "fedkd"
    energy_start: float = Field(0.95, gt=0, le=1, description="T_start: energy kept by the SVD at first; 1 sends all")
    energy_end: float = Field(0.98, gt=0, le=1, description="T_end: energy kept in the last round, at least T_start")
    mentee_lr: float | None = Field(None, ge=0, le=10, description="Learning rate of the mentee; null: training.lr")
    kd_weight: float = Field(1.0, ge=0, le=10, description="Weight of the divergences L_d; 0 switches them off")
    hidden_weight: float = Field(1.0, ge=0, le=10, description="Weight of the hidden loss L_h; 0 switches it off")
    clip: float | None = Field(
        None, gt=0, le=1e6, description="Largest gradient norm of F, G and W each; null: as in training.clip"
    )
    no_detach: bool = Field(False, description="As in the public codes: gradients also flow through peers and c")
    compressed: Literal["update", "parameters"] = Field("update", description="What is compressed and sent")
    slices: Slices = Field("matrix", description="A convolution is compressed as one matrix or kernel by kernel")
    strict_wire: bool = Field(False, description="A client that was away is sent the compressed model, and is lossy")

    @model_validator(mode="after")
    def _energy_grows(self) -> Self:
        if self.energy_start > self.energy_end:
            raise ValueError(
                f"energy_start must be at most energy_end, but got {self.energy_start} and {self.energy_end}"
            )
        return self

    def depends_on_rounds(self, topology: str) -> str | None:
        if self.energy_start == self.energy_end:
            return None
        return f"FedKD's energy threshold goes from {self.energy_start} to {self.energy_end} over all its rounds"


class Memory(nn.Module):
    """The base that a client holds under strict_wire, and the server's round it belongs to."""

    round: Tensor

    def __init__(self, mentee: nn.Module) -> None:
        super().__init__()
        self.mentee = deepcopy(mentee)
        self.register_buffer("round", torch.tensor(-1))


class FedKD(SharesSmallModel[FedKDParams]):
    Params = FedKDParams
    method = Method.of(
        __doc__,
        shares="the update of a small model with its head, compressed by SVD",
        family="mutual",
        traces=(Trace("svd_flops", "FLOPs of the SVD", "FLOPs"),),
    )
    server_does_more = True  # it adds the compressed mean of compressed updates
    shared_state = frozenset({"base", "update", "model"})
    """The θ before the newest, the message that leads from one to the other, and a message with all of θ."""

    def init_client(self, client: Client) -> None:
        super().init_client(client)
        mentee, d = self.shared(client), client.model.feature_dim
        client.parts["hidden"] = self.setup.make("hidden map", lambda: nn.Linear(mentee.feature_dim, d, bias=False))
        if self._strict:
            client.parts["memory"] = Memory(mentee)

    @property
    def _strict(self) -> bool:
        return self.params.strict_wire and self.params.compressed == "update"

    def known(self, server: ServerState, client: Client) -> Payload:
        return {} if self._strict or "base" not in server.shared else server.shared["base"]["all"]

    def download(self, server: ServerState, client: Client) -> Payload:
        if server.round == 0:
            return server.groups["all"]
        return server.shared["model" if self._gets_model(client, server.round) else "update"]["all"]

    def _gets_model(self, client: Client, server_round: int) -> bool:
        """Whether its message stands for all of θ: it is not taken to hold the base of the newest update."""
        if self._strict:
            return int(client.part("memory", Memory).round) != server_round - 1
        return self.params.compressed == "parameters"

    def receive(self, client: Client, received: Payload) -> None:
        θ, server_round = live_tensors(self.shared(client)), client.round - 1
        if server_round == 0:
            load_tensors(θ, received)
        elif self._gets_model(client, server_round):
            load_tensors(θ, decompress(received, θ))
        else:
            base = live_tensors(client.part("memory", Memory).mentee) if self._strict else client.known
            load_tensors(θ, plus(base, decompress(received, θ)))
        if self._strict:
            memory = client.part("memory", Memory)
            load_tensors(memory.mentee, θ)
            memory.round.fill_(server_round)

    def prepare(self, client: Client, received: Payload | None) -> None:
        return  # the mentee does not answer

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        F, G, W, params = client.model, self.shared(client), client.parts["hidden"], self.params
        θ = copy_tensors(G)
        detach = not params.no_detach

        def objective(x: Tensor, y: Tensor) -> Tensor:
            z_F, z_G = F.body(x), G.body(x)
            of_F, of_G = F.head(z_F), G.head(z_G)
            loss = labels = cross_entropy(of_F, y) + cross_entropy(of_G, y)
            c = (labels.detach() if detach else labels).clamp(min=1e-8)
            if params.kd_weight > 0:  # L_d of both models
                mutual = divergence(of_G, of_F, detach=detach) + divergence(of_F, of_G, detach=detach)
                loss = loss + params.kd_weight * mutual / c
            if params.hidden_weight > 0:  # L_h, once
                loss = loss + params.hidden_weight * mse_loss(z_F, W(z_G)) / c
            return loss

        trained = [Unit(F, clip=params.clip), Unit(G, lr=params.mentee_lr, clip=params.clip)]
        if params.hidden_weight > 0:
            trained.append(Unit(W, clip=params.clip))
        fit(client, objective, client.train, update=trained)
        θ_k = copy_tensors(G)
        change = minus(θ_k, θ) if params.compressed == "update" else θ_k
        client.trace("svd_flops", svd_flops(change, self._energy(client.round), params.slices))
        return compress(change, self._energy(client.round), params.slices)

    def _energy(self, t: int) -> float:
        """T_t."""
        start, end = self.params.energy_start, self.params.energy_end
        return start + (end - start) * t / self.setup.rounds

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        θ = server.groups["all"]
        mean = weighted_mean([decompress(upload.payload, θ) for upload in uploads], self.weights(uploads))
        return self._sent(server, mean, round)

    def idle(self, server: ServerState, round: int) -> ServerState:
        """Without a usable message the mean update is zero; the next round's clients must still be sent something."""
        θ = server.groups["all"]
        if self.params.compressed == "parameters":
            return server.next(server.groups, model=server.shared.get("model") or {"all": compress(θ, 1.0)})
        return self._sent(server, {name: torch.zeros_like(tensor) for name, tensor in θ.items()}, round)

    def _sent(self, server: ServerState, mean: Payload, round: int) -> ServerState:
        θ, T_t, slices = server.groups["all"], self._energy(round), self.params.slices
        message, flops = compress(mean, T_t, slices), svd_flops(mean, T_t, slices)
        sent = decompress(message, θ)
        if self.params.compressed == "parameters":
            return server.next({"all": sent}, model={"all": message}, flops=flops)
        new = plus(θ, sent)
        shared: dict[str, Groups] = {"base": {"all": θ}, "update": {"all": message}}
        if self._strict:
            shared["model"] = {"all": compress(new, T_t, slices)}
            flops += svd_flops(new, T_t, slices)
        return server.next({"all": new}, flops=flops, **shared)
