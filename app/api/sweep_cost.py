"""What the experiments of a sweep would take: as measured in the store, else found by a rehearsal, else unknown."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from app.errors import Refusal
from app.rehearsals import Rehearsals
from app.store.pace import Amount, Pace, Timing
from app.store.plan import Window
from engine.spec.experiment import ExperimentSpec

REHEARSAL_SECONDS = 5.0
"""So long after its first rehearsal a dry run begins no other; all are remembered, so the next one gets further."""


class CostView(BaseModel):
    """What it would take, as far as similar experiments in the store or a rehearsal tell."""

    seconds: float | None = Field(description="Of work, with the workers there are now; null: nothing is known")
    days: int | None = Field(
        description="Number of days on which its window must open; null: no window, or nothing is known"
    )
    bytes: float | None = Field(description="Up and down; null: nothing is known")
    flops: float | None = Field(description="Of the clients' training; null: nothing is known")
    unknown_seconds: int = Field(description="Experiments without a measurement of their time")
    unknown_bytes: int = Field(description="Experiments without a measurement of their traffic")
    unknown_flops: int = Field(description="Experiments without a measurement of their FLOPs")
    scaled: int = Field(description="Experiments whose time was scaled from another setting of the same method")
    rehearsed: int = Field(description="Experiments whose time is a rough one, from FLOPs found by a rehearsal")
    slots: int = Field(description="Experiments that run at once; without a worker the time is that of one")
    text: str = Field(description="The same in words")


@dataclass(frozen=True)
class Price:
    """What a rehearsal found."""

    timing: Timing
    traffic: Amount
    flops: Amount


def unknown_kinds(specs: Sequence[ExperimentSpec], known: Pace) -> dict[str, ExperimentSpec]:
    """One of each kind of experiment whose time the store does not know."""
    kinds: dict[str, ExperimentSpec] = {}
    for spec in specs:
        if known.known(spec.canonical()) is None:
            kinds.setdefault(_kind(spec), spec)
    return kinds


async def rehearsed_prices(
    rehearsals: Rehearsals, client: str, kinds: Mapping[str, ExperimentSpec], known: Pace
) -> dict[str, Price]:
    """As far as the time and the line of those who wait allow; the rest stays unknown."""
    deadline = math.inf
    found: dict[str, Price] = {}
    for kind, spec in kinds.items():
        if time.monotonic() > deadline:
            break
        try:
            answer = await rehearsals.estimate(spec, client)
        except Refusal:
            break
        deadline = min(deadline, time.monotonic() + REHEARSAL_SECONDS)  # the first may have waited for the process
        if answer.estimate is None:
            continue
        one, opening = answer.estimate.round, answer.estimate.opening
        found[kind] = Price(
            known.rated(spec.canonical(), one.client_flops, opening.client_flops),
            Amount(one.bytes_up + one.bytes_down, opening.bytes_up + opening.bytes_down),
            Amount(one.client_flops, opening.client_flops),
        )
    return found


def _kind(spec: ExperimentSpec) -> str:
    """What the cost of a round depends on: the seeds of a cell are alike."""
    return json.dumps({**spec.canonical(), "name": None, "tags": [], "notes": "", "seed": 0, "rounds": 0})


def cost_of(
    specs: Sequence[ExperimentSpec],
    known: Pace,
    prices: Mapping[str, Price],
    slots: int,
    window: Window | None,
) -> CostView:
    """The sum over all experiments, shared by the slots and spread over the days of the window."""
    times, payloads, flops, scaled, rehearsed = list[float](), list[float](), list[float](), 0, 0
    for spec in specs:
        plain = spec.canonical()
        price = prices.get(_kind(spec)) if prices else None
        timing, traffic, work = known.known(plain), known.traffic(plain), known.flops(plain)
        if timing is not None:
            scaled += timing.basis == "scaled"
        elif price is not None:
            timing = price.timing
            rehearsed += 1
        if timing is not None:
            times.append(timing.whole(spec.rounds))
        if price is not None:
            traffic, work = traffic or price.traffic, work or price.flops
        if traffic is not None:
            payloads.append(traffic.whole(spec.rounds))
        if work is not None:
            flops.append(work.whole(spec.rounds))
    seconds = max(sum(times) / max(1, slots), max(times)) if times else None
    days = None if seconds is None or window is None else max(1, math.ceil(seconds / (60 * window.length)))
    unknown = len(specs) - len(times)
    return CostView(
        seconds=seconds,
        days=days,
        bytes=sum(payloads) if payloads else None,
        flops=sum(flops) if flops else None,
        unknown_seconds=unknown,
        unknown_bytes=len(specs) - len(payloads),
        unknown_flops=len(specs) - len(flops),
        scaled=scaled,
        rehearsed=rehearsed,
        slots=slots,
        text=_in_words(seconds, days, unknown, len(specs), "roughly" if rehearsed else "about"),
    )


def _in_words(seconds: float | None, days: int | None, unknown: int, count: int, word: str) -> str:
    if not count:
        return "nothing to run"
    if seconds is None:
        return "no measurement yet"
    hours, minutes = divmod(round(seconds / 60), 60)
    span = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"
    if days is not None:
        span += f" within its window on {days} {'day' if days == 1 else 'days'}"
    return f"{word} {span}" + (f"; no measurement yet for {unknown} of {count} experiments" if unknown else "")
