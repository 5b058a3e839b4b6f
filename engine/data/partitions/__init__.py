"""Every way to spread samples over clients: one module for each, in the order in which lists show them."""

from typing import Annotated

from pydantic import Field

from engine.data.partitions.balanced import Balanced
from engine.data.partitions.dirichlet import Dirichlet
from engine.data.partitions.dirichlet_mix import DirichletMix
from engine.data.partitions.feature_shift import FeatureShift
from engine.data.partitions.iid import Iid
from engine.data.partitions.imported import ImportedPartition
from engine.data.partitions.pathological import Pathological
from engine.data.partitions.practical import Practical
from engine.data.partitions.quantity_skew import QuantitySkew

PartitionSpec = Annotated[
    Pathological
    | Practical
    | Dirichlet
    | Balanced
    | DirichletMix
    | Iid
    | FeatureShift
    | QuantitySkew
    | ImportedPartition,
    Field(discriminator="name", description="How samples are spread over clients"),
]
