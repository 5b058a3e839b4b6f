"""Is a difference more than chance? Paired tests over clients and seeds, effect sizes and Holm's correction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev

from pydantic import BaseModel, Field

from app.comparison.groups import Group
from app.store.sound import sound_spec

DIGITS = 12
"""Differences closer than this are ties: 0.3 - 0.2 and 0.2 - 0.1 are the same tenth."""
LARGEST_EXACT = 50
"""Up to so many pairs the distribution is counted, above it is approximated."""
FEWEST_CLIENTS = 6
"""With fewer pairs no outcome of the signed-rank test falls below 0.05."""

Clients = Mapping[str, float | None]
"""Client id to accuracy, of one run."""


class ClientTest(BaseModel):
    """Wilcoxon's signed-rank test over clients; without a p value, `note` says why."""

    n: int = Field(description="Clients that both were tested on")
    wins: int = Field(description="Clients on which the first is better")
    losses: int
    ties: int = Field(description="Clients with equal accuracy; they are left out of the test")
    mean_difference: float | None = Field(description="First minus second, a fraction")
    median_difference: float | None
    p: float | None = Field(description="Two-sided")
    p_holm: float | None = Field(None, description="Corrected for all pairs of this answer")
    exact: bool | None = Field(description="Counted over all signs; false: normal approximation for very many clients")
    rank_biserial: float | None = Field(description="Effect size from -1 (second always better) to 1 (first)")
    note: str


class SeedTest(BaseModel):
    """Paired t test over seeds; without a p value, `note` says why."""

    n: int = Field(description="Seeds that both ran with")
    seeds: list[int]
    mean_difference: float | None = Field(description="First minus second, a fraction")
    low: float | None = Field(description="Lower end of the 95 % interval of the mean difference")
    high: float | None
    p: float | None = Field(description="Two-sided")
    p_holm: float | None = Field(None, description="Corrected for all pairs of this answer")
    d_z: float | None = Field(description="Effect size: mean difference in standard deviations of the differences")
    note: str


class Pair(BaseModel):
    """Two groups against each other."""

    first: str
    second: str
    clients: ClientTest
    seeds: SeedTest


@dataclass(frozen=True)
class Sample:
    """What the tests need of one group."""

    label: str
    clients: dict[tuple[str, str], float]
    """(partition, client) to accuracy, the mean over runs on that partition."""
    seeds: dict[int, float]


def sample(group: Group, clients: Mapping[str, Clients], accuracy: Mapping[str, float | None]) -> Sample:
    """`clients` and `accuracy` are by experiment id, taken at the moment that is compared."""
    units: dict[tuple[str, str], list[float]] = {}
    seeds: dict[int, list[float]] = {}
    for row in group.settled:
        for client, value in clients.get(row.id, {}).items():
            if value is not None and row.partition_fingerprint is not None:
                units.setdefault((row.partition_fingerprint, client), []).append(value)
        level = accuracy.get(row.id)
        if level is not None:
            seeds.setdefault(sound_spec(row.spec)["seed"], []).append(level)
    return Sample(
        group.label, {key: fmean(found) for key, found in units.items()}, {key: fmean(v) for key, v in seeds.items()}
    )


def compare(samples: Sequence[Sample], reference: str | None = None) -> list[Pair]:
    """All pairs, or those with the reference as first; p values are corrected for their number."""
    chosen = [
        (one, other) if other.label != reference else (other, one)
        for one, other in combinations(samples, 2)
        if reference is None or reference in {one.label, other.label}
    ]
    pairs = [Pair(first=a.label, second=b.label, clients=over_clients(a, b), seeds=over_seeds(a, b)) for a, b in chosen]
    over = holm([pair.clients.p for pair in pairs]), holm([pair.seeds.p for pair in pairs])
    for pair, clients, seeds in zip(pairs, *over, strict=True):
        pair.clients.p_holm, pair.seeds.p_holm = clients, seeds
    return pairs


def over_clients(a: Sample, b: Sample) -> ClientTest:
    """Clients are paired by partition and id: client 3 of another partition holds other data."""
    common = sorted(a.clients.keys() & b.clients.keys())
    differences = [round(a.clients[key] - b.clients[key], DIGITS) for key in common]
    told = [value for value in differences if value]
    wins = sum(value > 0 for value in told)
    test = ClientTest(
        n=len(common),
        wins=wins,
        losses=len(told) - wins,
        ties=len(differences) - len(told),
        mean_difference=fmean(differences) if differences else None,
        median_difference=median(differences) if differences else None,
        p=None,
        exact=None,
        rank_biserial=None,
        note="",
    )
    if not common:
        test.note = _why_no_client(a, b)
        return test
    if not told:
        test.note = f"All {len(common)} clients have equal accuracy, so there is nothing to test."
        return test
    from scipy.stats import rankdata, wilcoxon

    # doubled, so that the ranks of ties are whole numbers
    ranks = [round(2 * rank) for rank in rankdata([abs(value) for value in told])]
    signed = sum(rank if value > 0 else -rank for rank, value in zip(ranks, told, strict=True))
    test.rank_biserial = signed / sum(ranks)
    test.exact = len(told) <= LARGEST_EXACT
    test.p = _share_as_far(ranks, signed) if test.exact else float(wilcoxon(told, method="asymptotic").pvalue)
    notes = []
    if test.ties:
        notes.append(f"{test.ties} equal {'client is' if test.ties == 1 else 'clients are'} left out.")
    if len(told) < FEWEST_CLIENTS:
        notes.append(f"With {len(told)} differing clients no outcome is below 0.05.")
    if not test.exact:
        notes.append("Normal approximation.")
    test.note = " ".join(notes)
    return test


def _share_as_far(ranks: Sequence[int], signed: int) -> float:
    """Of all ways to give the ranks a sign, the share whose sum lies at least as far from zero."""
    ways = Counter({0: 1})
    for rank in ranks:
        ways = Counter({total + rank: count for total, count in ways.items()}) + Counter(
            {total - rank: count for total, count in ways.items()}
        )
    far = sum(count for total, count in ways.items() if abs(total) >= abs(signed))
    return far / sum(ways.values())


def _why_no_client(a: Sample, b: Sample) -> str:
    for one in (a, b):
        if not one.clients:
            return f"{one.label} has no tested client yet."
    if {key for key, _ in a.clients} & {key for key, _ in b.clients}:
        return "No client was tested by both at this moment; take each client's last test."
    return "They ran on different partitions, so their clients hold different data and cannot be paired."


def over_seeds(a: Sample, b: Sample) -> SeedTest:
    common = sorted(a.seeds.keys() & b.seeds.keys())
    differences = [round(a.seeds[seed] - b.seeds[seed], DIGITS) for seed in common]
    test = SeedTest(
        n=len(common),
        seeds=common,
        mean_difference=fmean(differences) if differences else None,
        low=None,
        high=None,
        p=None,
        d_z=None,
        note="",
    )
    if len(common) < 2:
        test.note = f"Needs two common seeds, but there {'is one' if common else 'is none'}."
        return test
    spread = stdev(differences)
    if spread == 0:
        test.note = f"The difference is the same with all {len(common)} seeds, so its spread cannot be estimated."
        return test
    from scipy.stats import t

    centre, error = fmean(differences), spread / len(common) ** 0.5
    half = float(t.ppf(0.975, len(common) - 1)) * error
    test.low, test.high = centre - half, centre + half
    test.p = float(2 * t.sf(abs(centre) / error, len(common) - 1))
    test.d_z = centre / spread
    if len(common) < 5:
        test.note = f"{len(common)} seeds are few: the interval is wide."
    return test


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; what has no p value takes no part."""
    order = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * value))
        corrected[place] = largest
    return corrected
