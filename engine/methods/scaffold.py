"""SCAFFOLD: control variates take the drift of a client's own data out of every local step.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning. ICML
2020. https://arxiv.org/abs/1910.06378

    client   y_i ← x;  K_i steps  y_i ← y_i - η_l·(g_i(y_i) - c_i + c)
             c_i⁺ = c_i - c + (x - y_i) / (K_i·η_l)                                          (option II)
    server   x ← x + (η_g / |S|)·Σ_{i∈S} (y_i - x);   c ← c + (1/N)·Σ_{i∈S} (c_i⁺ - c_i)
    use      F(·; x)  with the newest x received

c and c_i start at zero; c_i stays at home. Clipping and weight decay belong to g_i. N counts all clients of the
architecture, not those that took part, and K_i the steps really made. Deviations: **momentum is 0 whatever the spec
says**, since with momentum option II no longer estimates the mean gradient and the run diverges; batch norm's running
statistics are averaged without variate and without η_g; one x and one c per architecture. Without control nothing but
the model travels.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from engine.kit.contract import AlgorithmParams, Client, Method, Moment, Payload, ServerState, Upload
from engine.kit.modules import Shadow
from engine.kit.sharing import AveragesModels
from engine.kit.tensors import copy_tensors, join_groups, load_tensors, shares, split_groups, weighted_mean
from engine.kit.training import Unit, fit, supervised


class SCAFFOLDParams(AlgorithmParams):
    name: Literal["scaffold"] = "scaffold"
    server_lr: float = Field(1.0, ge=0, le=10, description="η_g: step of the server toward the mean of the clients")
    use_control: bool = Field(True, description="Correct local steps by c - c_i; off: FedAvg with equal weights")
    weights: Literal["uniform", "samples"] = Field(
        "uniform", description="Weight of a client in the mean of the models: the same for all, or its samples"
    )


class SCAFFOLD(AveragesModels[SCAFFOLDParams]):
    Params = SCAFFOLDParams
    method = Method.of(
        __doc__,
        shares="the whole model and a control variate of its size, per architecture",
        family="homogeneous",
    )
    tested = Moment.BEFORE_LOCAL_WORK
    shared_state = frozenset({"control"})
    server_does_more = True  # it goes a step of η_g toward the mean, and averages the variates too

    def why_not(self) -> str | None:
        if self.params.use_control and self.setup.training.lr == 0:
            return "SCAFFOLD divides by the learning rate: training.lr must be above 0, but got 0"
        return None

    def init_client(self, client: Client) -> None:
        client.parts["control"] = Shadow(client.model)

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        controls = {self.group(k): copy_tensors(k.part("control", Shadow).tensors()) for k in examples}
        return ServerState(super().init_server(examples).groups, {"control": controls})

    def download(self, server: ServerState, client: Client) -> Payload:
        group = self.group(client)
        return self._message(server.groups[group], server.shared["control"][group])

    def receive(self, client: Client, received: Payload) -> None:
        super().receive(client, split_groups(received)["model"])

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        y, η_l = client.model, self.setup.training.lr * client.lr_factor
        train = Unit(y, momentum=0.0)
        if not self.params.use_control:
            fit(client, supervised(y), client.train, update=[train])
            return self._message(self.upload(client), {})
        x, c = split_groups(received).values()
        c_i = client.part("control", Shadow).tensors()
        correction = {name: c[name] - c_i[name] for name in c}
        steps = 0

        def correct() -> None:
            nonlocal steps
            steps += 1
            for name, parameter in y.named_parameters():
                if parameter.grad is not None:
                    parameter.grad.add_(correction[name])  # g + c - c_i

        fit(client, supervised(y), client.train, update=[train], before_step=correct)
        with torch.no_grad():
            Δc = {name: (x[name] - value) / (steps * η_l) - c[name] for name, value in y.named_parameters()}
        load_tensors(c_i, {name: c_i[name] + Δc[name] for name in c_i})  # c_i⁺
        return self._message(self.upload(client), Δc)

    def _message(self, model: Payload, variate: Payload) -> Payload:
        return join_groups({"model": model, "control": variate} if self.params.use_control else {"model": model})

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        return super().weights(uploads) if self.params.weights == "samples" else shares([1] * len(uploads))

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        groups, controls, η_g = dict(server.groups), dict(server.shared["control"]), self.params.server_lr
        for group in dict.fromkeys(upload.group for upload in uploads):
            members = [upload for upload in uploads if upload.group == group]
            sent = [split_groups(member.payload) for member in members]
            x, c = groups[group], controls[group]
            mean = weighted_mean([message["model"] for message in sent], self.weights(members))
            moved = weighted_mean([{name: tensors[name] for name in c} for tensors in (x, mean)], [1 - η_g, η_g])
            groups[group] = {**mean, **moved}
            if self.params.use_control:
                N = self.setup.architectures.count(group)
                Δ = [message["control"] for message in sent]
                controls[group] = weighted_mean([c, *Δ], [1.0, *[1 / N] * len(Δ)])
        return server.next(groups, control=controls)
