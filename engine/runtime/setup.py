"""What is known of an experiment before its first network is built: data, partition, and what a method may know."""

from collections.abc import Sequence
from pathlib import Path

from engine.data.datasets import Dataset, load
from engine.data.partition import Partition, make_partition
from engine.kit.contract import Setup
from engine.models import FAMILIES, assign
from engine.spec.experiment import ExperimentSpec


def set_up(spec: ExperimentSpec, data_root: Path | None) -> tuple[Dataset, Partition, Setup]:
    """Everything that is known before the first network is built."""
    dataset = load(spec.dataset, data_root)
    partition = make_partition(dataset, spec.partition, spec.clients, spec.partition_seed)
    return (
        dataset,
        partition,
        describe(spec, dataset.shape, partition.classes, [len(s.train) for s in partition.shares]),
    )


def describe(spec: ExperimentSpec, shape: tuple[int, int, int], classes: int, samples: Sequence[int]) -> Setup:
    """What a method may know: the spec, and of the data only their shape, classes and amounts."""
    family = FAMILIES[spec.models.family]
    return Setup(
        seed=spec.seed,
        clients=spec.clients,
        rounds=spec.rounds,
        classes=classes,
        shape=shape,
        feature_dim=spec.models.feature_dim or family.feature_dim,
        training=spec.training,
        architectures=tuple(assign(family, spec.clients, spec.models.assign, spec.seed)),
        num_samples=tuple(samples),
        topology=spec.topology,
        cohort=spec.cohort_size,
    )
