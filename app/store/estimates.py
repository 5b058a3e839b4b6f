"""What experiments will cost, from what similar ones in the store have cost."""

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from app.store.tables import Experiment

LOOKED_AT = 2000
"""Newest experiments of the same methods and data sets that are looked at."""
SETTING = ("algorithm", "dataset", "models", "topology", "clients", "participation", "training")
"""What the time of a round depends on."""
TRAFFIC = ("algorithm", "dataset", "models", "topology", "clients", "participation")
"""What the bytes of a round depend on."""
KIND = ("algorithm", "dataset", "models", "topology")
"""Experiments alike in these differ in time by the work of a round alone."""

Spec = Mapping[str, Any]


@dataclass
class Measurements:
    """Seconds and bytes of a round, by the parts of a spec that decide them."""

    _seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _seconds_of_work: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _bytes: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, spec: Spec, *, rounds: int, seconds: float, total_bytes: int) -> None:
        """`rounds` counts the opening too."""
        a_round = seconds / rounds
        self._seconds[_key(spec, SETTING)].append(a_round)
        self._seconds_of_work[_key(spec, KIND)].append(a_round / _work(spec))
        self._bytes[_key(spec, TRAFFIC)].append(total_bytes / (rounds - 1))

    def seconds(self, spec: Spec) -> tuple[float, bool] | None:
        """Seconds of a round, and whether they were measured as they are or scaled by the work of a round."""
        if same := self._seconds.get(_key(spec, SETTING)):
            return statistics.median(same), True
        if alike := self._seconds_of_work.get(_key(spec, KIND)):
            return statistics.median(alike) * _work(spec), False
        return None

    def bytes(self, spec: Spec) -> float | None:
        """Bytes of a round, up and down."""
        same = self._bytes.get(_key(spec, TRAFFIC))
        return statistics.median(same) if same else None


def measure(session: Session, algorithms: Collection[str], datasets: Collection[str]) -> Measurements:
    """Read what there is to know about experiments with these methods and data sets."""
    query = (
        select(col(Experiment.spec), col(Experiment.next_round), col(Experiment.seconds), col(Experiment.totals))
        .where(
            col(Experiment.algorithm).in_(algorithms),
            col(Experiment.dataset).in_(datasets),
            col(Experiment.next_round) > 1,
        )
        .order_by(col(Experiment.id).desc())
        .limit(LOOKED_AT)
    )
    found = Measurements()
    for spec, rounds, seconds, totals in session.execute(query):
        found.add(spec, rounds=rounds, seconds=seconds, total_bytes=totals["bytes_up"] + totals["bytes_down"])
    return found


def _work(spec: Spec) -> float:
    """Images that a round passes over, in units of the data set: all clients together hold it once."""
    return float(spec["participation"] * spec["training"]["epochs"])


def _key(spec: Spec, names: tuple[str, ...]) -> str:
    return json.dumps([spec[name] for name in names], sort_keys=True)
