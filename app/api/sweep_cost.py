"""What the experiments of a sweep would take: as measured in the store, else found by a rehearsal, else unknown."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from app.api.services import Services
from app.store import timings
from app.store.estimates import Measurements
from app.store.plan import Window
from engine import catalogue
from engine.spec import ExperimentSpec

REHEARSAL_SECONDS = 5.0
"""A dry run stops rehearsing after so long; what it found is remembered, so the next one gets further."""


class CostView(BaseModel):
    """What it would take, as far as similar experiments in the store or a rehearsal tell."""

    seconds: float | None = Field(description="Of work, with the workers there are now; null: nothing is known")
    days: int | None = Field(description="On so many days its window must open; null: no window, or nothing is known")
    bytes: float | None
    unknown_seconds: int = Field(description="Experiments without a measurement of their time")
    unknown_bytes: int = Field(description="Experiments without a measurement of their traffic")
    scaled: int = Field(description="Experiments whose time was scaled from another setting of the same method")
    rehearsed: int = Field(description="Experiments whose time is a rough one, from FLOPs found by a rehearsal")
    slots: int = Field(description="Experiments that run at once; without a worker the time is that of one")
    text: str = Field(description="The same in words")


@dataclass(frozen=True)
class RoundPrice:
    """What a round was found to cost in a rehearsal."""

    seconds: float
    bytes: int


def rehearsed_prices(
    use: Services, specs: Sequence[ExperimentSpec], measured: Measurements
) -> Mapping[str, RoundPrice]:
    """A round of each kind of experiment that the store knows nothing about, as far as the time reaches."""
    kinds: dict[str, ExperimentSpec] = {}
    for spec in specs:
        if measured.seconds(spec.canonical()) is None:
            kinds.setdefault(_kind(spec), spec)
    deadline = time.monotonic() + REHEARSAL_SECONDS
    found = {}
    for kind, spec in kinds.items():
        if time.monotonic() > deadline:
            break
        estimate = catalogue.estimate(spec, use.settings.data_root)
        if estimate is None:
            continue
        with use.database.read() as session:
            timing = timings.seconds_per_round(session, spec.canonical(), estimate.round.client_flops)
        found[kind] = RoundPrice(timing.seconds, estimate.round.bytes_up + estimate.round.bytes_down)
    return found


def _kind(spec: ExperimentSpec) -> str:
    """What the cost of a round depends on: the seeds of a cell are alike."""
    return json.dumps({**spec.canonical(), "name": None, "tags": [], "notes": "", "seed": 0, "rounds": 0})


def cost_of(
    specs: Sequence[ExperimentSpec],
    measured: Measurements,
    prices: Mapping[str, RoundPrice],
    slots: int,
    window: Window | None,
) -> CostView:
    """The sum over all experiments, shared by the slots and spread over the days of the window."""
    times, payloads, scaled, rehearsed = list[float](), list[float](), 0, 0
    for spec in specs:
        plain = spec.canonical()
        price = prices.get(_kind(spec)) if prices else None
        if (found := measured.seconds(plain)) is not None:
            times.append(found[0] * spec.rounds)
            scaled += not found[1]
        elif price is not None:
            times.append(price.seconds * spec.rounds)
            rehearsed += 1
        payload = measured.bytes(plain)
        if payload is None and price is not None:
            payload = price.bytes
        if payload is not None:
            payloads.append(payload * spec.rounds)
    seconds = max(sum(times) / max(1, slots), max(times)) if times else None
    days = None if seconds is None or window is None else max(1, math.ceil(seconds / (60 * window.length)))
    unknown = len(specs) - len(times)
    return CostView(
        seconds=seconds,
        days=days,
        bytes=sum(payloads) if payloads else None,
        unknown_seconds=unknown,
        unknown_bytes=len(specs) - len(payloads),
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
