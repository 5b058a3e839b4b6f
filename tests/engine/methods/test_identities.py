"""Where one method becomes another: the models of all clients after every round, to the bit.

One table for every identity that can be said about whole models under the server's schedule. The others stand with
their methods: the read-outs under all protocols, FedARC = FedMRL, FedKD without compression, SCAFFOLD's variates, the
means of FedDBE and FedARC, the generic branches of Ditto, FedAvg-FT and FedRoD, and CompFL without a server.
"""

from typing import Any, NamedTuple

import pytest

from engine.kit.contract import Client, Payload
from engine.kit.tensors import Tensors, copy_tensors
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.testing import EQUAL, same
from tests.engine.conftest import SpecMaker
from tests.engine.methods.federation import PLAIN
from tests.engine.methods.test_proximal import WITH_DROPOUT

ONE_CLIENT: dict[str, Any] = {"clients": 1, "partition": {"name": "iid"}, "participation": 1.0}
ONE_STEP: dict[str, Any] = {"training": {"epochs": 1, "batch_size": 1000, "lr": 0.05}}
WITHOUT_MOMENTUM: dict[str, Any] = {**EQUAL, "training": PLAIN}


class Identity(NamedTuple):
    """A method at its limit, what it must equal there, and the setting in which it does."""

    first: dict[str, Any]
    second: str
    setting: dict[str, Any]


IDENTITIES: dict[str, Identity] = {
    "pFedES, μ = 0": Identity({"name": "pfedes", "mu": 0}, "standalone", {}),
    "pFedAFM, η_α = 0": Identity({"name": "pfedafm", "alpha_lr": 0}, "standalone", {}),
    "FedProto, λ = 0": Identity({"name": "fedproto", "weight": 0}, "standalone", {}),
    "FD, λ = 0": Identity({"name": "fd", "weight": 0}, "standalone", {}),
    "FedTGP, λ = 0": Identity({"name": "fedtgp", "weight": 0}, "standalone", {}),
    "FML, α = β = 1": Identity({"name": "fml", "alpha": 1, "beta": 1}, "standalone", {}),
    "FML with dropout": Identity({"name": "fml", "alpha": 1, "beta": 1}, "standalone", WITH_DROPOUT),
    "FedAPEN, labels only": Identity(
        {"name": "fedapen", "use_kl": False, "use_ensemble": False, "adaptability_ratio": 0}, "standalone", {}
    ),
    "FedKD, labels only": Identity({"name": "fedkd", "kd_weight": 0, "hidden_weight": 0}, "standalone", {}),
    "LG-FedAvg, N = 1": Identity({"name": "lg-fedavg"}, "standalone", ONE_CLIENT),
    "FedPer, N = 1": Identity({"name": "fedper"}, "standalone", ONE_CLIENT),
    "FedAvg, N = 1": Identity({"name": "fedavg"}, "standalone", ONE_CLIENT),
    "FedRep, E_h = 0, free head": Identity(
        {"name": "fedrep", "head_epochs": 0, "body_epochs": 2, "freeze_head": False}, "fedper", {}
    ),
    "CompFL, all off": Identity(
        {"name": "compfl", "align": False, "greedy": False, "kd": False, "adaptation": False}, "fedper", {}
    ),
    "FedGen, α = 0": Identity({"name": "fedgen", "gen_weight": 0}, "lg-fedavg", {}),
    "FedRoD, γ = 0": Identity({"name": "fedrod", "gamma": 0}, "fedavg", {}),
    "FedAvg-FT, no epochs": Identity({"name": "fedavg-ft", "ft_epochs": 0}, "fedavg", {}),
    "FedProx, μ = 0": Identity({"name": "fedprox", "mu": 0}, "fedavg", {}),
    "FedProx, one step": Identity({"name": "fedprox", "mu": 10}, "fedavg", ONE_STEP),
    "FedDBE, both parts off": Identity({"name": "feddbe", "mean_weight": 0, "train_bias": False}, "fedavg", {}),
    "SCAFFOLD, no control": Identity({"name": "scaffold", "use_control": False}, "fedavg", WITHOUT_MOMENTUM),
}


def models(spec: ExperimentSpec) -> list[list[Tensors]]:
    """After every round, the private or shared model that answers for each client, with the newest shared parts."""
    run = Run(spec)

    def answering(client: Client, received: Payload) -> Tensors:
        run.algorithm.prepare(client, received)
        return copy_tensors(client.model)

    return [run.query_clients(range(run.setup.clients), answering) for _record in run.rounds()]


@pytest.mark.parametrize("identity", IDENTITIES.values(), ids=IDENTITIES.keys())
def test_both_have_the_same_models_after_every_round(identity: Identity, small_spec: SpecMaker) -> None:
    first, second = (models(small_spec(method, **identity.setting)) for method in (identity.first, identity.second))
    start, *_, end = second
    assert not all(same(a, b) for a, b in zip(start, end, strict=True)), "nothing was learned"
    for ours, theirs in zip(first, second, strict=True):
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
