"""FedProx: FedAvg with a local objective that is tied to the model received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks. MLSys 2020.
https://arxiv.org/abs/1812.06127

    client   w ← w^t;  E epochs of  min_w CE(F(x; w), y) + (μ/2)‖w - w^t‖²;  a straggler makes fewer epochs
    server   w^{t+1} = Σ_{k∈S^t} (n_k / Σ_{j∈S^t} n_j) w_k,  stragglers included
    use      F(x; w)  with the newest w received

Deviations: weights n_k / Σ n_j as in the official code (the paper draws clients with probability n_k and averages
equally); one average per architecture. A step is stable while η·μ < 2; keep η·μ < 1.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.kit.contract import AlgorithmParams, Client, Method, Moment, Payload
from engine.kit.sharing import AveragesModels
from engine.kit.training import fit, proximity


class FedProxParams(AlgorithmParams):
    name: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.01, ge=0, le=100, description="μ: pull of the local model to the received one; 0 is FedAvg")
    straggler_ratio: float = Field(
        0.0, ge=0, le=1, description="Share of the cohort that makes only 1 to E-1 epochs, drawn anew in every round"
    )


class FedProx(AveragesModels[FedProxParams]):
    Params = FedProxParams
    method = Method.of(__doc__, shares="the whole model, averaged per architecture", family="homogeneous")
    tested = Moment.BEFORE_LOCAL_WORK

    def local_update(self, client: Client, received: Payload) -> Payload:
        self.receive(client, received)
        F, μ = client.model, self.params.mu

        def objective(x: Tensor, y: Tensor) -> Tensor:
            loss = cross_entropy(F(x), y)
            return loss if μ == 0 else loss + μ * proximity(F, received)

        fit(client, objective, client.train, update=[F], epochs=self.epochs(client))
        return self.upload(client)

    def stragglers(self, round: int) -> list[int]:
        """The clients of the cohort that are slow in this round."""
        cohort = self.setup.participants(round)
        order = torch.randperm(len(cohort), generator=self.setup.server_draws("stragglers", round))
        slow: list[int] = order[: int(self.params.straggler_ratio * len(cohort) + 0.5)].tolist()
        return sorted(cohort[position] for position in slow)

    def epochs(self, client: Client) -> int:
        """E, or e ~ U{1, …, max(1, E-1)} for a straggler."""
        E = self.setup.training.epochs
        if client.id not in self.stragglers(client.round):
            return E
        return int(torch.randint(1, max(1, E - 1) + 1, (1,), generator=client.draws("straggler")))
