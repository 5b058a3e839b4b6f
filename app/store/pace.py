"""How long experiments take here, judged from those that were computed before: one answer for everybody who asks."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, true
from sqlmodel import Session, col

from app.store import experiments
from app.store.ids import in_chunks
from app.store.sound import is_sound, sound_spec
from app.store.states import State
from app.store.tables import Experiment, Round

NEWEST = 300
"""Experiments that are looked at, whatever they are."""
NEWEST_ALIKE = 2000
"""Further ones of the methods and data sets that are asked about."""
LATEST = 15
"""Of each group only the newest count: the machine may have changed."""
OWN_ROUNDS = 3
"""After so many rounds an experiment's own pace counts; its first rounds still warm up."""

EQUAL = (
    "algorithm",
    "dataset",
    "partition",
    "models",
    "topology",
    "clients",
    "participation",
    "training",
    "evaluation",
)
"""Experiments alike in these take equally long."""
KIND = ("algorithm", "dataset", "models", "topology")
"""Experiments alike in these differ in time by the work of a round alone."""
TRAFFIC = ("algorithm", "dataset", "models", "topology", "clients", "participation")
"""Experiments alike in these send equally much."""

GUESSED_RATE = 20e9
"""FLOPs a second of one slow core, for a store without a single round."""
GUESSED_STARTUP = 0.5
"""Seconds to load the data and build the networks, for a store without a single experiment."""
HANDOVER = 0.3
"""Seconds beside that between two experiments of a slot: to end the one and find the other. No row tells them."""

Spec = Mapping[str, Any]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Basis = Literal["measured", "scaled", "rate", "guess"]


@dataclass(frozen=True)
class Timing:
    """Seconds of an experiment, what happens once apart from its rounds, and where the numbers come from.

    measured: experiments with an equal spec, or its own rounds; scaled: the same method, data set and models, by the
    images that a round passes over; rate: FLOPs a second of any; guess: none of these is known.
    """

    a_round: float
    opening: float
    startup: float
    """From the last round of the experiment before it to its own opening."""
    basis: Basis
    experiments: int

    def whole(self, rounds: int) -> float:
        """For an experiment that has not begun."""
        return self.startup + self.opening + rounds * self.a_round


@dataclass(frozen=True)
class Amount:
    """Of a round and of the opening: bytes up and down, or FLOPs of the clients."""

    a_round: float
    opening: float

    def whole(self, rounds: int) -> float:
        return self.opening + rounds * self.a_round


@dataclass(frozen=True)
class Measured:
    """One experiment: its sums, and what of them belongs to the opening."""

    id: str
    spec: Spec
    rounds: int
    """Without the opening; one at least."""
    seconds: float
    flops: int
    bytes: int
    opening_seconds: float
    opening_flops: int
    opening_bytes: int
    startup: float | None
    """From its claim to the begin of round 0; None: that was not computed after the first claim."""

    @property
    def a_round(self) -> float:
        return (self.seconds - self.opening_seconds) / self.rounds

    @property
    def work(self) -> float:
        return _work(self.spec)


class Pace:
    """Seconds and bytes as far as they are known. The typical one is the median: one busy hour does not rule it.

    Of two values it is the smaller one, since a busy machine only makes a measurement larger.
    """

    def __init__(self, newest_first: Iterable[Measured]) -> None:
        self._own: dict[str, Measured] = {}
        self._equal: dict[str, list[Measured]] = {}
        self._of_kind: dict[str, list[Measured]] = {}
        self._alike: dict[tuple[str, str], list[Measured]] = {}
        self._traffic: dict[str, list[Measured]] = {}
        self._startups: dict[str, list[float]] = {}
        self._seconds_per_flop: list[float] = []
        for item in newest_first:
            self._add(item)

    def known(self, spec: Spec) -> Timing | None:
        """As measured with equal specs, else scaled from another setting of the same method, data set and models."""
        if equal := self._equal.get(_key(spec, EQUAL)):
            return self._timing(equal, "measured")
        if alike := self._of_kind.get(_key(spec, KIND)):
            return self._timing(alike, "scaled", _work(spec))
        return None

    def alike(self, algorithm: str, dataset: str) -> Timing | None:
        """As the method takes on the data set in whatever setting, else any method there."""
        found = self._alike.get((algorithm, dataset)) or self._alike.get(("", dataset))
        return self._timing(found, "guess") if found else None

    def rated(self, spec: Spec, flops: int, opening_flops: int) -> Timing:
        """By the FLOPs of the clients in a round and in the opening."""
        rates = self._seconds_per_flop
        per_flop = median_low(rates) if rates else 1 / GUESSED_RATE
        startup = self._startup(spec["dataset"]["name"])
        basis: Basis = "rate" if rates else "guess"
        return Timing(flops * per_flop, opening_flops * per_flop, startup, basis, len(rates))

    def of(self, row: Experiment) -> Timing | None:
        """By its own rounds, else as `known`."""
        own = self._own.get(row.id)
        return self.known(sound_spec(row.spec)) if own is None else self._timing([own], "measured")

    def traffic(self, spec: Spec) -> Amount | None:
        """Bytes, as measured in the same setting."""
        found = self._traffic.get(_key(spec, TRAFFIC))
        if not found:
            return None
        return Amount(
            median_low((item.bytes - item.opening_bytes) / item.rounds for item in found),
            median_low(item.opening_bytes for item in found),
        )

    def flops(self, spec: Spec) -> Amount | None:
        """FLOPs of the clients, as measured with equal specs."""
        found = self._equal.get(_key(spec, EQUAL))
        if not found:
            return None
        return Amount(
            median_low((item.flops - item.opening_flops) / item.rounds for item in found),
            median_low(item.opening_flops for item in found),
        )

    def _add(self, item: Measured) -> None:
        algorithm, dataset = item.spec["algorithm"]["name"], item.spec["dataset"]["name"]
        if item.rounds >= OWN_ROUNDS:
            self._own[item.id] = item
        _note(self._equal, _key(item.spec, EQUAL), item)
        _note(self._of_kind, _key(item.spec, KIND), item)
        _note(self._alike, (algorithm, dataset), item)
        _note(self._alike, ("", dataset), item)
        _note(self._traffic, _key(item.spec, TRAFFIC), item)
        if item.startup is not None:
            _note(self._startups, dataset, item.startup)
            _note(self._startups, "", item.startup)
        flops, seconds = item.flops - item.opening_flops, item.seconds - item.opening_seconds
        if flops > 0 and seconds > 0 and len(self._seconds_per_flop) < LATEST:
            self._seconds_per_flop.append(seconds / flops)

    def _timing(self, items: Sequence[Measured], basis: Basis, work: float | None = None) -> Timing:
        """`work` of a round scales the rounds; an opening does not depend on it."""
        a_round = median_low(item.a_round * (1.0 if work is None else work / item.work) for item in items)
        opening = median_low(item.opening_seconds for item in items)
        startup = self._startup(items[0].spec["dataset"]["name"])
        return Timing(a_round, opening, startup, basis, len(items))

    def _startup(self, dataset: str) -> float:
        found = self._startups.get(dataset) or self._startups.get("")
        return HANDOVER + (median_low(found) if found else GUESSED_STARTUP)


def once(row: Experiment, timing: Timing) -> float:
    """Seconds that it needs beside its rounds: to start, and for an opening that is still to come."""
    startup = 0.0 if row.state is State.RUNNING and row.next_round > 0 else timing.startup
    return startup + (0.0 if row.next_round > 0 else timing.opening)


def left(row: Experiment, timing: Timing) -> float:
    """Seconds until its last round is complete."""
    return once(row, timing) + timing.a_round * (row.rounds - max(0, row.next_round - 1))


def read(session: Session, kinds: Iterable[tuple[str, str]] = (), rows: Sequence[Experiment] = ()) -> Pace:
    """From the newest experiments, from older ones of the methods and data sets in question, and from `rows`."""
    kinds = {*kinds, *((row.algorithm, row.dataset) for row in rows)}
    found = _measured(session, true(), NEWEST)
    if kinds:
        methods = col(Experiment.algorithm).in_({algorithm for algorithm, _ in kinds})
        datasets = col(Experiment.dataset).in_({dataset for _, dataset in kinds})
        found |= _measured(session, methods & datasets, NEWEST_ALIKE)
    begun = [row.id for row in rows if row.next_round > OWN_ROUNDS and row.id not in found]
    for chunk in in_chunks(begun):
        found |= _measured(session, col(Experiment.id).in_(chunk), len(chunk))
    return Pace(found[key] for key in sorted(found, reverse=True))


def _measured(session: Session, which: ColumnElement[bool], most: int) -> dict[str, Measured]:
    """The newest with a complete round, by id: ids grow with time."""
    query = (
        experiments.with_deleted(
            col(Experiment.id),
            col(Experiment.spec),
            col(Experiment.next_round),
            col(Experiment.seconds),
            col(Experiment.totals),
            col(Experiment.started_at),
            col(Round.seconds),
            col(Round.client_flops),
            col(Round.bytes_up) + col(Round.bytes_down),
            col(Round.stored_at),
            col(Round.fence),
        )
        .join(Round, (col(Round.experiment) == col(Experiment.id)) & (col(Round.round) == 0))
        .where(which, col(Experiment.next_round) > 1, col(Experiment.seconds) > 0)
        .order_by(col(Experiment.id).desc())
        .limit(most)
    )
    found = {}
    for key, spec, following, seconds, totals, started, opening, flops, sent, stored, fence in session.execute(query):
        if not is_sound(spec) or not _work(spec):
            continue
        first = fence == 1 and started is not None
        found[key] = Measured(
            id=key,
            spec=spec,
            rounds=following - 1,
            seconds=seconds,
            flops=totals["client_flops"],
            bytes=totals["bytes_up"] + totals["bytes_down"],
            opening_seconds=opening,
            opening_flops=flops,
            opening_bytes=sent,
            startup=max(0.0, stored - started - opening) if first else None,
        )
    return found


def _work(spec: Spec) -> float:
    """Images that a round passes over, in units of the data set: all clients together hold it once."""
    return float(spec["participation"] * spec["training"]["epochs"])


def _key(spec: Spec, names: Sequence[str]) -> str:
    return json.dumps([spec.get(name) for name in names], sort_keys=True)


def _note(groups: dict[K, list[V]], group: K, value: V) -> None:
    """The newest come first, and only they count."""
    values = groups.setdefault(group, [])
    if len(values) < LATEST:
        values.append(value)
