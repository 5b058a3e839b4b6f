"""What a round will cost, known before anything runs: two rounds are rehearsed with a few of the clients.

There is one client of each architecture and, as far as a dozen goes, somebody for every class. Each holds a few samples
of every class that it would hold. Messages then have their real size, and FLOPs grow in proportion to the samples, so
both can be scaled to the whole federation. Where a message depends on what was learned (the rank of a compressed
update, the expert that was drawn) the result is an estimate.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.data.partition import ClientShare
from engine.kit.contract import Setup
from engine.kit.training import Diverged, Interrupted
from engine.kit.work import BYTES_PER_SCALAR, ClientResult
from engine.methods import REGISTRY
from engine.runtime.device import Compute
from engine.runtime.executor import prepare_process
from engine.runtime.federation import Federation
from engine.runtime.setup import set_up
from engine.spec.experiment import ExperimentSpec

PER_CLASS = 2
AT_LEAST = 8
MOST_SAMPLED = 12
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


class CostProbe:
    """A federation of a few clients with few samples, in which two rounds tell what a client spends."""

    def __init__(self, spec: ExperimentSpec, data_root: Path | None, patience: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + patience
        prepare_process()
        dataset, partition, self.whole = set_up(spec, data_root)
        self.participation = spec.cohort_size / spec.clients
        self.sampled = _sampled_clients(self.whole, partition.train_counts(dataset.labels))
        shares = tuple(_few(partition.shares[k], dataset.labels) for k in self.sampled)
        self.setup = replace(
            self.whole,
            clients=len(shares),
            cohort=len(shares),
            architectures=tuple(self.whole.architectures[k] for k in self.sampled),
            num_samples=tuple(len(share.train) for share in shares),
            interrupted=lambda: time.monotonic() > deadline,
        )
        self.algorithm = REGISTRY[spec.algorithm.name](spec.algorithm, self.setup)
        transform = spec.dataset.transform
        self.federation = Federation(self.algorithm, dataset, shares, Compute(), transform=transform)

    def estimate(self) -> Estimate:
        """The opening, the first round and one from the middle.

        The first is not booked: its messages may be smaller, or larger, than all others. The middle has what a method
        does only after a warm-up.
        """
        rounds = self.setup.rounds
        middle = min(rounds, max(2, rounds // 2 + 1))
        self.federation.build()
        opening = self._opening() if self.algorithm.opens() else []
        results: list[ClientResult] = []
        for number in dict.fromkeys((1, middle)):
            results = self._round(number)
        return Estimate(self._total(results, self.participation), self._total(opening, 1.0))

    def _opening(self) -> list[ClientResult]:
        results = _complete(self.federation.opening_work(k) for k in range(self.setup.clients))
        self.federation.close_opening(results)
        return [self.federation.announce(result) for result in results]

    def _round(self, number: int) -> list[ClientResult]:
        """As if the rounds before had been computed."""
        federation = self.federation
        federation.server = replace(federation.server, round=number - 1)
        results = _complete(self._local_work(k, number) for k in range(self.setup.clients))
        server, _ = federation.aggregate(results, number)
        federation.adopt(server, results, number)
        return results

    def _local_work(self, client_id: int, number: int) -> ClientResult:
        client = self.federation.load(client_id, number)
        return self.federation.local_work(client, self.federation.download(client))

    def _total(self, results: Sequence[ClientResult], participation: float) -> RoundCost:
        """Every client costs what those of its architecture cost that were sampled, FLOPs by the sample."""
        up = down = flops = 0.0
        for architecture in dict.fromkeys(self.whole.architectures):
            members = [k for k, own in enumerate(self.whole.architectures) if own == architecture]
            alike = [result for result in results if self.setup.architectures[result.id] == architecture]
            if not alike:
                continue
            up += len(members) * sum(result.scalars_up for result in alike) / len(alike)
            down += len(members) * sum(result.scalars_down for result in alike) / len(alike)
            probed = sum(self.setup.num_samples[result.id] for result in alike)
            flops += sum(self.whole.num_samples[k] for k in members) * sum(result.flops for result in alike) / probed
        return RoundCost(
            bytes_up=round(BYTES_PER_SCALAR * participation * up),
            bytes_down=round(BYTES_PER_SCALAR * participation * down),
            client_flops=round(participation * flops),
        )


def _complete(results: Iterable[ClientResult]) -> list[ClientResult]:
    """Who sits out sends nothing, and then the price of a round cannot be told."""
    complete = list(results)
    for result in complete:
        if result.diverged is not None:
            raise result.diverged
    return complete


class Untold(Exception):
    """The cost cannot be told in advance; the message says why, after a colon or in brackets."""

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        """`lasting`: it follows from the spec, so another try would end in the same way."""
        super().__init__(reason)
        self.lasting = lasting


def rehearse(spec: ExperimentSpec, data_root: Path | None, patience: float = PATIENCE_SECONDS) -> Estimate:
    """Raises Untold: clients talk to each other, or even two rounds take too long."""
    probe = CostProbe(spec, data_root, patience)
    if probe.algorithm.peers() is not None:
        reason = "clients talk to each other, so what a round costs is known only when it has run"
        raise Untold(reason, lasting=True)
    try:
        return probe.estimate()
    except Interrupted:
        raise Untold(f"a rehearsal of two rounds takes longer than {patience:g} s") from None
    except Diverged as error:
        raise Untold(f"the rehearsal diverged ({error})") from None


def _sampled_clients(setup: Setup, counts: Tensor) -> list[int]:
    """The typical client of each architecture, and then whoever brings most classes that nobody has yet."""
    chosen = []
    for architecture in dict.fromkeys(setup.architectures):
        members = [k for k, own in enumerate(setup.architectures) if own == architecture]
        chosen.append(sorted(members, key=lambda k: (setup.num_samples[k], k))[len(members) // 2])
    held = counts > 0  # (N, L)
    while len(chosen) < MOST_SAMPLED:
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
