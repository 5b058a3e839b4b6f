"""FedAvg-FT: FedAvg, and before its test every client tunes a copy of the global model.

Collins, Hassani, Mokhtari, Shakkottai: FedAvg with Fine Tuning: Local Updates Lead to Representation Learning.
NeurIPS 2022. https://arxiv.org/abs/2205.13692

    client   w_k ← w^{t-1};  E epochs of  min CE(F(x; w_k), y)
    server   w^t = Σ_{k∈S^t} (n_k / Σ_{j∈S^t} n_j) w_k
    use      w ← copy of w^{t-1};  E_ft epochs of  min_φ CE(h(f(x); φ), y)  on the frozen body;  the copy is thrown away

The copy never reaches the server, so the parameters are those of FedAvg to the bit. Deviations: only the head is tuned,
as in the comparison of CompFL (`ft_part`: the paper tunes all); one average per architecture. The tuning of a copy is
booked as cost of evaluation.
"""

from typing import Literal

from engine.kit.contract import Client, Method, Payload
from engine.kit.finetuning import FineTuningParams, TunesForTest
from engine.kit.sharing import AveragesModels
from engine.kit.training import fit_classifier


class FedAvgFTParams(FineTuningParams):
    name: Literal["fedavg-ft"] = "fedavg-ft"


class FedAvgFT(TunesForTest[FedAvgFTParams], AveragesModels[FedAvgFTParams]):
    Params = FedAvgFTParams
    method = Method.of(
        __doc__,
        shares="the whole model, averaged per architecture; a tuned copy of it stays with the client",
        family="homogeneous",
    )

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        return self.upload(client)
