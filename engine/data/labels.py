"""Which output of a client's head stands for which class: the label modes of a partition."""

import numpy as np

from engine.data.allocation import Flags, Ints, PartitionError
from engine.data.partitions.rule import LabelMode


def label_maps(mode: LabelMode, owned: Flags, all_ids: bool, rng: np.random.Generator) -> tuple[Ints | None, int]:
    """(N, L) global id → local id with -1 for a class the client has no sample of, and the head width.

    `unified` needs no map. `permuted` is a private permutation of all ids. `independent` maps the client's own n
    classes onto 0..n-1, where all clients must own equally many; with all_ids it is a permutation of all ids.
    """
    clients, classes = owned.shape
    if mode == "unified":
        return None, classes
    if mode == "permuted" or all_ids:
        owned, width = np.ones_like(owned), classes
    else:
        width = _common_width(owned)
    lots = rng.random((clients, classes))
    lots[~owned] = 2.0  # behind every lot of an owned class
    order = np.argsort(lots, axis=1, kind="stable")
    maps = np.empty((clients, classes), dtype=np.int64)
    np.put_along_axis(maps, order, np.arange(classes)[None, :], axis=1)
    maps[~owned] = -1
    return maps, width


def _common_width(owned: Flags) -> int:
    numbers = owned.sum(axis=1)
    few, many = int(numbers.argmin()), int(numbers.argmax())
    if numbers[few] != numbers[many]:
        raise PartitionError(
            "partition.labels",
            f"independent labels need equally many classes at every client, but client {few} owns {numbers[few]} "
            f"and client {many} owns {numbers[many]}; use unified or permuted",
        )
    return int(numbers[few])
