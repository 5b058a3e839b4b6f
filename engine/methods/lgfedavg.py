"""LG-FedAvg: the head is shared, the body stays at home.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: Think Locally, Act Globally: Federated Learning with
Local and Global Representations. arXiv 2020. https://arxiv.org/abs/2001.01523

    client   h_k ← φ^{t-1};  E epochs of  min CE(h_k(f_k(x)), y)  on body and head together
    server   φ^t = Σ w_k h_k  over the clients whose heads have one shape
    use      h(f_k(x)):  the head just trained, or φ^t where all clients are tested after aggregation

Deviations: only the last linear layer is shared and training starts from scratch, as in every paper that compares with
it (the original code starts from a FedAvg model and shares other layers as well). Heads of different shape form groups
with a φ each.
"""

from typing import Literal

from engine.kit.contract import AlgorithmParams, Client, Method, Payload
from engine.kit.sharing import SharesHead
from engine.kit.training import fit_classifier


class LGFedAvgParams(AlgorithmParams):
    name: Literal["lg-fedavg"] = "lg-fedavg"


class LGFedAvg(SharesHead[LGFedAvgParams]):
    Params = LGFedAvgParams
    method = Method.of(
        __doc__,
        shares="the last linear layer, averaged per head shape",
        family="split",
        heterogeneous="any models with one linear layer as head",
    )

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        return self.upload(client)
