"""FD (federated distillation): clients exchange the mean logits of each class.

Jeong, Oh, Kim, Park, Bennis, Kim: Communication-Efficient On-Device Machine Learning: Federated Distillation and
Augmentation under Non-IID Private Data. NeurIPS workshop MLPCD 2018. https://arxiv.org/abs/1811.11479

    client   min CE(F_k(x), y) + λ·CE(softmax(ḡ_y), F_k(x))                                           E epochs
             g_{k,c} = mean of F_k(x) over the samples of class c met in these epochs, before each step
    server   ḡ_c = mean of g_{k,c} over the clients that sent class c; a class that nobody sent keeps its ḡ_c
    use      F_k(x)

A sample whose class has no ḡ_c yet adds nothing to the second term, and the mean still divides by the batch size.
Deviations: the target is the softmax of the mean logits; one public code uses the logits themselves as probabilities,
which is unbounded (`target`). The paper leaves the receiver's own logits out of its average; the papers that compare
with it do not (`leave_one_out`). The augmentation of the second half of the paper is another method.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.kit.contract import AlgorithmParams, Client, Method, Payload, ServerState, Upload
from engine.kit.prototypes import ClassMeans, all_rows, keep_missing, mean_rows
from engine.kit.sharing import SharesClassTable
from engine.kit.training import fit


class FDParams(AlgorithmParams):
    name: Literal["fd"] = "fd"
    weight: float = Field(1.0, ge=0, le=100, description="λ: weight of the distillation term; 0 is Standalone")
    target: Literal["softmax", "raw"] = Field(
        "softmax", description="Distil toward softmax(ḡ_y), or toward ḡ_y itself as if it were a distribution"
    )
    leave_one_out: bool = Field(False, description="Leave the receiver's own logits out of the mean it gets")


class FD(SharesClassTable[FDParams]):
    Params = FDParams
    method = Method.of(__doc__, shares="the mean logits of each class", family="distillation")

    def width(self, client: Client) -> int:
        return self.setup.classes

    def local_update(self, client: Client, received: Payload) -> Payload:
        table, F, λ = self.receive(client, received), client.model, self.params.weight
        targets = table.rows.softmax(1) if self.params.target == "softmax" else table.rows
        distils = λ > 0 and bool(table.known.any())
        g = ClassMeans(self.setup.classes)

        def objective(x: Tensor, y: Tensor) -> Tensor:
            logits = F(x)
            g.add(logits, y)
            loss = cross_entropy(logits, y)
            if not distils:
                return loss
            return loss + λ * table.mean_over_batch(cross_entropy(logits, targets[y], reduction="none"), y)

        fit(client, objective, client.train, update=[F])
        return g.table()

    def download(self, server: ServerState, client: Client) -> Payload:
        held = server.groups["all"]
        if not (self.params.leave_one_out and held):
            return held
        others = held["senders"] != client.id
        return mean_rows({name: tensor[others] for name, tensor in held.items()})

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        if not self.params.leave_one_out:
            return super().aggregate(server, uploads, round)
        return server.next({"all": keep_missing(server.groups["all"], all_rows(uploads))})
