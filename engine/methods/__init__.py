"""Every method by its id, in the order in which lists show them: those of this folder, then those from elsewhere."""

import os
from pathlib import Path
from typing import Any

from engine.kit.contract import Algorithm
from engine.kit.elsewhere import VARIABLE, MethodsUnusable, methods_of
from engine.methods.compfl import CompFL
from engine.methods.ditto import Ditto
from engine.methods.fd import FD
from engine.methods.fedapen import FedAPEN
from engine.methods.fedarc import FedARC
from engine.methods.fedavg import FedAvg
from engine.methods.fedavgft import FedAvgFT
from engine.methods.fedbabu import FedBABU
from engine.methods.feddbe import FedDBE
from engine.methods.fedgen import FedGen
from engine.methods.fedgh import FedGH
from engine.methods.fedkd import FedKD
from engine.methods.fedmrl import FedMRL
from engine.methods.fedper import FedPer
from engine.methods.fedproto import FedProto
from engine.methods.fedprox import FedProx
from engine.methods.fedrep import FedRep
from engine.methods.fedrod import FedRoD
from engine.methods.fedtgp import FedTGP
from engine.methods.fml import FML
from engine.methods.lgfedavg import LGFedAvg
from engine.methods.pfedafm import PFedAFM
from engine.methods.pfedes import PFedES
from engine.methods.scaffold import SCAFFOLD
from engine.methods.standalone import Standalone

_BUILT_IN: tuple[type[Algorithm[Any]], ...] = (
    PFedAFM,
    PFedES,
    FedARC,
    CompFL,
    Standalone,
    FedAvg,
    FedAvgFT,
    LGFedAvg,
    FD,
    FedProto,
    FedTGP,
    FedGen,
    FedGH,
    FML,
    FedKD,
    FedAPEN,
    FedMRL,
    FedPer,
    FedRep,
    FedBABU,
    Ditto,
    FedRoD,
    FedProx,
    SCAFFOLD,
    FedDBE,
)


def _name(algorithm: type[Algorithm[Any]]) -> str:
    return str(algorithm.Params.model_fields["name"].default)


def _registry() -> dict[str, type[Algorithm[Any]]]:
    registry = {_name(algorithm): algorithm for algorithm in _BUILT_IN}
    folder = os.environ.get(VARIABLE)
    for algorithm in methods_of(Path(folder)) if folder else ():
        name = _name(algorithm)
        if name in registry:
            other = registry[name].__name__
            raise MethodsUnusable(f"{VARIABLE}: {algorithm.__name__} has the id {name!r}, but so has {other}")
        registry[name] = algorithm
    return registry


REGISTRY = _registry()
"""Every method by its id."""
