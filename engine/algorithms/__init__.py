"""Every method by its id, in the order in which lists show them."""

from typing import Any

from engine.algorithm import Algorithm
from engine.algorithms.compfl import CompFL
from engine.algorithms.ditto import Ditto
from engine.algorithms.fd import FD
from engine.algorithms.fedapen import FedAPEN
from engine.algorithms.fedarc import FedARC
from engine.algorithms.fedavg import FedAvg
from engine.algorithms.fedavgft import FedAvgFT
from engine.algorithms.fedbabu import FedBABU
from engine.algorithms.feddbe import FedDBE
from engine.algorithms.fedgen import FedGen
from engine.algorithms.fedgh import FedGH
from engine.algorithms.fedkd import FedKD
from engine.algorithms.fedmrl import FedMRL
from engine.algorithms.fedper import FedPer
from engine.algorithms.fedproto import FedProto
from engine.algorithms.fedprox import FedProx
from engine.algorithms.fedrep import FedRep
from engine.algorithms.fedrod import FedRoD
from engine.algorithms.fedtgp import FedTGP
from engine.algorithms.fml import FML
from engine.algorithms.lgfedavg import LGFedAvg
from engine.algorithms.pfedafm import PFedAFM
from engine.algorithms.pfedes import PFedES
from engine.algorithms.scaffold import SCAFFOLD
from engine.algorithms.standalone import Standalone

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


REGISTRY: dict[str, type[Algorithm[Any]]] = {_name(algorithm): algorithm for algorithm in _BUILT_IN}
