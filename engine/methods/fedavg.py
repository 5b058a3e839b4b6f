"""FedAvg: the server averages whole models.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data. AISTATS 2017. https://arxiv.org/abs/1602.05629

    client   w_k ← w^{t-1};  E epochs of  min CE(F(x; w_k), y)
    server   w^t = Σ_{k∈S^t} (n_k / Σ_{j∈S^t} n_j) w_k
    use      F(x; w)  with the newest w received

Deviations: clients of one architecture form a group with a model of its own, so that the method also runs with
heterogeneous models; with one architecture this is the ordinary method. Batch norm's running statistics are averaged
like parameters. A client is tested with the model it received, before its local work.
"""

from typing import Literal

from engine.kit.contract import AlgorithmParams, Client, Method, Moment, Payload
from engine.kit.sharing import AveragesModels
from engine.kit.training import fit_classifier


class FedAvgParams(AlgorithmParams):
    name: Literal["fedavg"] = "fedavg"


class FedAvg(AveragesModels[FedAvgParams]):
    Params = FedAvgParams
    method = Method.of(__doc__, shares="the whole model, averaged per architecture", family="homogeneous")
    tested = Moment.BEFORE_LOCAL_WORK

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        return self.upload(client)
