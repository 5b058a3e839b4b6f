"""FedGH: the server trains one head on the clients' prototypes, and all clients start from it.

Yi, Wang, Liu, Shi, Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header. ACM Multimedia 2023.
https://arxiv.org/abs/2303.13137

    client   h_k ← φ^{t-1};  E epochs of  min CE(h_k(f_k(x)), y)  on body and head together
             p_{k,c} = mean of f_k(x) over the client's samples of class c, with the f_k just trained
    server   φ^t: SGD from φ^{t-1} on  min CE(φ(p_{k,c}), c)  over all pairs (p_{k,c}, c)
    use      h(f_k(x)):  the head just trained, or φ^t where all clients are tested after aggregation

The server takes one step per pair, ordered by client and class, or S epochs of shuffled mini-batches (`server_steps`).
φ replaces every client's own head, and a single batch at a rate of 0.01 hardly moves it. Seen on digits with
one seed and preset B with 20 tiny networks of which a fifth take part, 40 rounds: accuracy is 0.37, with S = 100 and a
rate of 0.1 it is 0.92, and that of Standalone is 0.66.
Deviations: the published code steps a client's optimiser in the server's loop and never clears the gradients, so that
its φ stays at its random start; here φ moves. Heads of different shape form groups with a φ each. Under preset B the
prototypes come from a body whose batch norm is recalibrated (`training.recalibrate_below`).
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, Presets, ServerState, Upload
from engine.kit.prototypes import all_rows, prototypes
from engine.kit.sharing import SharesHead
from engine.kit.tensors import copy_tensors, revive
from engine.kit.training import fit_classifier, pair_batches, server_fit, supervised


class FedGHParams(AlgorithmParams):
    preset_values: ClassVar[Presets] = {"B": {"server_steps": "batches"}, "C": {"server_steps": "batches"}}

    name: Literal["fedgh"] = "fedgh"
    server_lr: float = Field(0.01, ge=0, le=10, description="Learning rate of the server's head; 0 keeps it as it was")
    server_epochs: int = Field(1, ge=0, le=100, description="S: passes of the server over the prototypes in a round")
    server_steps: Literal["pairs", "batches"] = Field(
        "pairs", description="One step per prototype in the order of clients, or shuffled mini-batches of size B"
    )


class FedGH(SharesHead[FedGHParams]):
    Params = FedGHParams
    method = Method.of(
        __doc__,
        shares="the mean feature of each class up, a head trained on them down",
        family="split",
        heterogeneous="any models with one linear layer as head",
    )

    server_does_more = True  # it trains the head on prototypes

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        return prototypes(client)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        groups, flops = dict(server.groups), 0
        for group in dict.fromkeys(upload.group for upload in uploads):
            rows = all_rows([upload for upload in uploads if upload.group == group])
            p, c = rows["means"], rows["classes"]
            φ = revive(partial(nn.Linear, p.shape[1], self.setup.classes), groups[group], p.device)
            pairs, B = self.params.server_steps == "pairs", self.setup.training.batch_size
            draws = None if pairs else self.setup.server_draws(f"fedgh {group}", round)
            S = self.params.server_epochs
            batches = pair_batches(p, c, batch_size=1 if pairs else B, epochs=S, draws=draws)
            flops += server_fit(self.setup, supervised(φ), batches, update=φ, lr=self.params.server_lr, round=round)
            groups[group] = copy_tensors(φ)
        return server.next(groups, flops=flops)
