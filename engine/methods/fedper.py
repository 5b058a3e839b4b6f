"""FedPer: the body is shared, the head stays at home.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers. arXiv 2019.
https://arxiv.org/abs/1912.00818

    client   θ_k ← θ_a;  E epochs of  min CE(h_k(f(x; θ_k)), y)  on body and head together
    server   θ_a = Σ w_k θ_k  per architecture
    use      h_k(f(x; θ))  with the θ just trained, or the newest one where all clients are tested after aggregation
"""

from typing import Literal

from engine.kit.contract import AlgorithmParams, Client, Method, Payload
from engine.kit.sharing import AveragesBodies
from engine.kit.training import fit_classifier


class FedPerParams(AlgorithmParams):
    name: Literal["fedper"] = "fedper"


class FedPer(AveragesBodies[FedPerParams]):
    Params = FedPerParams
    method = Method.of(__doc__, shares="the body, averaged per architecture", family="split")

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        fit_classifier(client)
        return self.upload(client)
