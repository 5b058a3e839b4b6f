"""FedBABU: only the body is learned together, under a head that stays at its random start; the head is tuned for use.

Oh, Kim, Yun: FedBABU: Towards Enhanced Representation for Federated Image Classification. ICLR 2022.
https://arxiv.org/abs/2106.06042

    client   φ_0 frozen:  E epochs of  min_θ CE(h(f(x; θ_k); φ_0), y),  from θ_a
    server   θ_a = Σ w_k θ_k  per architecture
    use      φ ← copy of φ_0;  E_ft epochs of  min_φ CE(h(f(x; θ_a); φ), y);  the copy is thrown away

φ_0 comes from the common seed: it is the same for all clients of an architecture, is never sent and does not decay.
Deviation: for use only the head is tuned, with the optimiser of the training (`ft_part`: the authors' notebook tunes
the whole model with lr 0.001). The tuning of a copy is booked as cost of evaluation.
"""

from collections.abc import Mapping
from typing import Literal

from torch import nn

from engine.kit.contract import Client, Method, Payload
from engine.kit.finetuning import FineTuningParams, TunesForTest
from engine.kit.sharing import AveragesBodies
from engine.kit.training import fit, supervised


class FedBABUParams(FineTuningParams):
    name: Literal["fedbabu"] = "fedbabu"


class FedBABU(TunesForTest[FedBABUParams], AveragesBodies[FedBABUParams]):
    Params = FedBABUParams
    method = Method.of(__doc__, shares="the body, averaged per architecture", family="split")

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {}  # the head is φ_0 for ever

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        model = client.model
        fit(client, supervised(model), client.train, update=[model.body], through=[model.head])
        return self.upload(client)
