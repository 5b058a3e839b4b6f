"""What a round will cost, known before anything runs: two rounds are rehearsed with a few of the clients.

There is one client of each architecture and, as far as a dozen goes, somebody for every class. Each holds a few samples
of every class that it would hold. Messages then have their real size, and FLOPs grow in proportion to the samples, so
both can be scaled to the whole federation. Where a message depends on what was learned (the rank of a compressed
update, the expert that was drawn) the result is an estimate.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.data.partition import ClientShare
from engine.kit.contract import Client, Payload, Setup
from engine.kit.training import Diverged, Interrupted
from engine.kit.work import ClientResult
from engine.methods import REGISTRY
from engine.runtime.executor import Bench, Crew
from engine.runtime.run import BYTES_PER_SCALAR, Run
from engine.spec.experiment import ExperimentSpec

PER_CLASS = 2
AT_LEAST = 8
MOST_ACTORS = 12
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class RoundCost:
    """Sums over the cohort of an average round; of the opening, sums over all clients."""

    bytes_up: int
    bytes_down: int
    client_flops: int


@dataclass(frozen=True)
class Estimate:
    """An average round, and what happens once before the first one."""

    round: RoundCost
    opening: RoundCost


class Rehearsal(Run):
    """A run of a few clients with few samples that remembers what each of them spent."""

    def __init__(self, spec: ExperimentSpec, data_root: Path | None, patience: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + patience
        super().__init__(spec, data_root=data_root, should_stop=lambda: time.monotonic() > deadline)
        self.whole = self.setup
        self.participation = spec.cohort_size / spec.clients
        self.actors = _actors(self.setup, self.partition.train_counts(self.dataset.labels))
        shares = tuple(_few(self.partition.shares[k], self.dataset.labels) for k in self.actors)
        self.partition = replace(self.partition, shares=shares)
        self.setup = replace(
            self.whole,
            clients=len(shares),
            cohort=len(shares),
            architectures=tuple(self.whole.architectures[k] for k in self.actors),
            samples=tuple(len(share.train) for share in shares),
        )
        rarely = spec.evaluation.model_copy(update={"every": 100_000})
        self.spec = spec.model_copy(update={"clients": len(shares), "participation": 1.0, "evaluation": rarely})
        self.algorithm = REGISTRY[spec.algorithm.name](spec.algorithm, self.setup)
        self.spent: dict[tuple[int, int], ClientResult] = {}

    def _result(self, client: Client, payload: Payload, scalars_down: int, seconds: float) -> ClientResult:
        result = super()._result(client, payload, scalars_down, seconds)
        self.spent[client.round, client.id] = result
        return result

    def _check_divergence(self, results: Sequence[ClientResult]) -> None:
        """Who sits out sends nothing, and then the price of a round cannot be told."""
        for result in results:
            if result.diverged is not None:
                raise result.diverged

    def _announce(self, bench: Bench, result: ClientResult) -> ClientResult:
        told = super()._announce(bench, result)
        self.spent[0, told.id] = told
        return told

    def perform(self) -> Estimate:
        """The opening, the first round and one from the middle.

        The first is not booked: its messages may be smaller, or larger, than all others. The middle has what a method
        does only after a warm-up.
        """
        middle = min(self.spec.rounds, max(2, self.spec.rounds // 2 + 1))
        self._build_networks()
        crew: Crew[int] = Crew(self._originals, 1)
        self._opening(crew)
        for number in dict.fromkeys((1, middle)):
            self.server = replace(self.server, round=number - 1)  # as if the rounds between had been computed
            self._round(crew, number)
        return Estimate(self._total(middle, self.participation), self._total(0, 1.0))

    def _total(self, number: int, participation: float) -> RoundCost:
        """Every client costs what the actors of its architecture cost, FLOPs by the sample."""
        up = down = flops = 0.0
        for architecture in dict.fromkeys(self.whole.architectures):
            members = [k for k, own in enumerate(self.whole.architectures) if own == architecture]
            found = [
                result
                for actor, own in enumerate(self.setup.architectures)
                if own == architecture and (result := self.spent.get((number, actor))) is not None
            ]
            if not found:
                continue
            up += len(members) * sum(result.scalars_up for result in found) / len(found)
            down += len(members) * sum(result.scalars_down for result in found) / len(found)
            rehearsed = sum(self.setup.samples[result.id] for result in found)
            flops += sum(self.whole.samples[k] for k in members) * sum(result.flops for result in found) / rehearsed
        return RoundCost(
            bytes_up=round(BYTES_PER_SCALAR * participation * up),
            bytes_down=round(BYTES_PER_SCALAR * participation * down),
            client_flops=round(participation * flops),
        )


class Untold(Exception):
    """The cost cannot be told in advance; the message says why, after a colon or in brackets."""

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        """`lasting`: it follows from the spec, so another try would end in the same way."""
        super().__init__(reason)
        self.lasting = lasting


def rehearse(spec: ExperimentSpec, data_root: Path | None, patience: float = PATIENCE_SECONDS) -> Estimate:
    """Raises Untold: clients talk to each other, or even two rounds take too long."""
    rehearsal = Rehearsal(spec, data_root, patience)
    if rehearsal.algorithm.peers() is not None:
        reason = "clients talk to each other, so what a round costs is known only when it has run"
        raise Untold(reason, lasting=True)
    try:
        return rehearsal.perform()
    except Interrupted:
        raise Untold(f"a rehearsal of two rounds takes longer than {patience:g} s") from None
    except Diverged as error:
        raise Untold(f"the rehearsal diverged ({error})") from None


def _actors(setup: Setup, counts: Tensor) -> list[int]:
    """The typical client of each architecture, and then whoever brings most classes that nobody has yet."""
    chosen = []
    for architecture in dict.fromkeys(setup.architectures):
        members = [k for k, own in enumerate(setup.architectures) if own == architecture]
        chosen.append(sorted(members, key=lambda k: (setup.samples[k], k))[len(members) // 2])
    held = counts > 0  # (N, L)
    while len(chosen) < MOST_ACTORS:
        news = (held & ~held[chosen].any(0)).sum(1)
        if not news.any():
            break
        chosen.append(int(news.argmax()))
    return sorted(chosen)


def _few(share: ClientShare, labels: Tensor) -> ClientShare:
    held = labels[share.train]
    chosen = torch.cat([share.train[held == label][:PER_CLASS] for label in sorted(set(held.tolist()))])
    rest = share.train[~torch.isin(share.train, chosen)]
    train = torch.cat([chosen, rest[: max(0, AT_LEAST - len(chosen))]]).sort().values
    return replace(share, train=train, test=share.test[:PER_CLASS], validation=share.validation[:0])
