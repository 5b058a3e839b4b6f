"""FedProto: clients exchange class prototypes, the mean features of each class.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients. AAAI 2022.
https://arxiv.org/abs/2105.00243

    client   min CE(h_k(f_k(x)), y) + λ·MSE(f_k(x), p̄_y)                                              E epochs
             p_{k,c} = mean of f_k(x) over the client's samples of class c, with the f_k just trained
    server   p̄_c = mean of p_{k,c} over the clients that sent class c; a class that nobody sent keeps its p̄_c
    use      h_k(f_k(x)), or argmin_c ‖f_k(x) - p̄_c‖ with the newest p̄ received

A sample whose class has no p̄_c yet adds nothing to the second term, and the mean still divides by the batch size.
Deviations: the printed average weighs a client by its samples of the class, the authors' code does not (`weights`);
prototypes come from one more pass in eval mode, as cost comparisons assume, while public codes average the features met
during training, in all epochs or in the last one (`source`). One public code forgets classes that were not sent in the
round, which hurts when few clients take part (`forget_missing`). The authors look for the nearest prototype among a
client's own classes, others among all (`candidates`). Under preset B the pass is made by a body whose batch norm is
recalibrated (`training.recalibrate_below`).
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from engine.kit.contract import Client, Method, Payload, Presets, ServerState, Upload
from engine.kit.prototypes import ClassMeans, all_rows, keep_missing, mean_rows, prototypes, pulled_to
from engine.kit.sharing import PrototypeParams, SharesPrototypes
from engine.kit.training import fit


class FedProtoParams(PrototypeParams):
    preset_values: ClassVar[Presets] = {"B": {"weight": 10.0, "readout": "proto"}}

    name: Literal["fedproto"] = "fedproto"
    weight: float = Field(
        1.0, ge=0, le=1000, description="λ: weight of the distance to the prototypes; 0 is Standalone"
    )
    source: Literal["post", "online", "online_last"] = Field(
        "post",
        description="Prototypes from a pass after training, or from the features met in all epochs or in the last one",
    )
    weights: Literal["uniform", "size"] = Field(
        "uniform", description="Weight of a sender in a class's mean: the same for all, or its samples of the class"
    )
    candidates: Literal["all", "own"] = Field(
        "all", description="Look for the nearest prototype among all classes or among those of the client's own samples"
    )
    forget_missing: bool = Field(False, description="Forget the prototype of a class that nobody sent in the round")


class FedProto(SharesPrototypes[FedProtoParams]):
    Params = FedProtoParams
    method = Method.of(
        __doc__,
        shares="the mean feature of each class",
        family="distillation",
        heterogeneous="any models with one common feature width",
    )

    def local_update(self, client: Client, received: Payload) -> Payload:
        table, source = self.receive(client, received), self.params.source
        earlier = len(client.train) * (self.setup.training.epochs - 1)
        met = ClassMeans(self.setup.classes, skip=earlier if source == "online_last" else 0)
        observe = None if source == "post" else met.add
        fit(client, pulled_to(table, client, self.params.weight, observe), client.train, update=[client.model])
        return prototypes(client) if source == "post" else met.table()

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        new = mean_rows(all_rows(uploads), by_size=self.params.weights == "size")
        return server.next({"all": new if self.params.forget_missing else keep_missing(server.groups["all"], new)})

    def candidates(self, client: Client) -> list[int]:
        return client.train.classes() if self.params.candidates == "own" else super().candidates(client)
