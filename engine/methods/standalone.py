"""Standalone: every client trains alone and nothing travels.

Local training without federation.

    client   E epochs of  min CE(F_k(x), y)
    use      F_k(x)

The yardstick of all personalised methods. A client of the cohort trains as many local epochs as under any other method;
idle clients do not train.
"""

from typing import Literal

from engine.kit.contract import Algorithm, AlgorithmParams, Client, Method, Payload
from engine.kit.training import fit_classifier


class StandaloneParams(AlgorithmParams):
    name: Literal["standalone"] = "standalone"


class Standalone(Algorithm[StandaloneParams]):
    Params = StandaloneParams
    method = Method.of(__doc__, shares="nothing", family="standalone")

    def local_update(self, client: Client, received: Payload) -> Payload:
        fit_classifier(client)
        return {}
