"""Curves with costs summed up, thinned for the screen without losing a peak, and their mean over the seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, stdev
from typing import Any

from sqlmodel import Session

from app.comparison.groups import Group, group
from app.store import rounds
from app.store.tables import Experiment

NAMES = ("round", "accuracy", "loss", "bytes", "flops", "seconds", "flops_each")
"""Costs are sums from round 0 on; flops_each is the FLOPs of one participant."""
AXES = ("round", "bytes", "flops", "seconds")

Curve = dict[str, list[Any]]


def read(session: Session, rows: Sequence[Experiment], points: int | None = None) -> dict[str, dict[str, Any]]:
    """The curves of experiments by id; with `points`, about so many rounds of each.

    All keep the same rounds, because means are taken round by round, over whichever of them a reader groups.
    """
    found: dict[str, dict[str, Any]] = {
        key: {**_summed(columns), "thinned": False}
        for key, columns in rounds.costs(session, [row.id for row in rows]).items()
    }
    if points is not None and any(len(curve["round"]) > points for curve in found.values()):
        kept = _telling_rounds([[found[row.id] for row in item.members] for item in group(rows)], points)
        for curve in found.values():
            _thin(curve, kept)
    return found


def _summed(columns: Mapping[str, Sequence[Any]]) -> Curve:
    each = (
        flops / count if count else 0.0
        for flops, count in zip(columns["client_flops"], columns["participants"], strict=True)
    )
    return {
        "round": list(columns["round"]),
        "accuracy": list(columns["accuracy"]),
        "loss": list(columns["loss"]),
        "bytes": list(accumulate(map(int.__add__, columns["bytes_up"], columns["bytes_down"]))),
        "flops": list(accumulate(columns["client_flops"])),
        "seconds": list(accumulate(columns["seconds"])),
        "flops_each": list(accumulate(each)),
    }


def _telling_rounds(groups: Sequence[Sequence[Curve]], points: int) -> set[int]:
    """The ends of all curves, and the highest and the lowest round in each stretch of every group's means."""
    ends = {numbers[place] for curves in groups for curve in curves if (numbers := curve["round"]) for place in (0, -1)}
    levels = [level for curves in groups for name in ("accuracy", "loss") if (level := _level(curves, name))]
    extremes = [_extremes(level, points // 4) for level in levels]
    while True:
        kept = ends.union(*(pair for pairs in extremes for pair in pairs))
        if len(kept) <= points or all(len(pairs) == 1 for pairs in extremes):
            return kept
        # groups peak at different rounds: longer stretches for all of them, until they fit together
        extremes = [_halved(level, pairs) for level, pairs in zip(levels, extremes, strict=True)]


def _level(curves: Sequence[Curve], name: str) -> dict[int, float]:
    """The mean of every round that was tested."""
    found: dict[int, list[float]] = {}
    for curve in curves:
        for number, value in zip(curve["round"], curve[name], strict=True):
            if value is not None:
                found.setdefault(number, []).append(value)
    return {number: sum(values) / len(values) for number, values in sorted(found.items())}


def _extremes(level: Mapping[int, float], stretches: int) -> list[tuple[int, int]]:
    numbers = list(level)
    size = -(-len(numbers) // stretches)
    return [
        (min(part, key=level.__getitem__), max(part, key=level.__getitem__))
        for part in (numbers[place : place + size] for place in range(0, len(numbers), size))
    ]


def _halved(level: Mapping[int, float], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        (min((low for low, _ in two), key=level.__getitem__), max((high for _, high in two), key=level.__getitem__))
        for two in (pairs[place : place + 2] for place in range(0, len(pairs), 2))
    ]


def _thin(curve: dict[str, Any], kept: set[int]) -> None:
    places = [place for place, number in enumerate(curve["round"]) if number in kept]
    curve["thinned"] = len(places) < len(curve["round"])
    for name in NAMES:
        curve[name] = [curve[name][place] for place in places]


def _means(
    curves: Sequence[Mapping[str, Sequence[Any]]], x: str, y: str
) -> tuple[list[float], list[float], list[float | None]]:
    """x, mean of y, and the standard deviation of y, for every round that was tested."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    for curve in curves:
        for number, across, value in zip(curve["round"], curve[x], curve[y], strict=True):
            if value is not None:
                pairs.setdefault(number, []).append((across, value))
    found = [pairs[number] for number in sorted(pairs)]
    return (
        [fmean(across for across, _ in pair) for pair in found],
        [fmean(value for _, value in pair) for pair in found],
        [stdev(value for _, value in pair) if len(pair) > 1 else None for pair in found],
    )


@dataclass(frozen=True)
class MeanCurve:
    """One line of a figure."""

    group: Group
    x: list[float]
    y: list[float]
    std: list[float | None]
    level: bool = False
    """The method spends nothing along x: its final value is shown as a level."""


def mean_curves(
    session: Session, rows: Sequence[Experiment], *, x: str, y: str, smooth: int = 1, by: Sequence[str] = ()
) -> list[MeanCurve]:
    """The mean over the seeds of each group that has rounds."""
    curves = read(session, rows)
    found = []
    for item in group(rows, by):
        across, level, spread = _means([curves[row.id] for row in item.counted], x, y)
        if across:
            centre = [value for value in _trailing(level, smooth) if value is not None]
            found.append(MeanCurve(item, across, centre, _trailing(spread, smooth)))
    right = max((line.x[-1] for line in found), default=0.0)
    return [_levelled(line, right) if x != "round" and line.x[0] == line.x[-1] else line for line in found]


def _levelled(line: MeanCurve, right: float) -> MeanCurve:
    return MeanCurve(line.group, [0.0, right], [line.y[-1]] * 2, [None, None], level=True)


def _trailing(values: Sequence[float | None], width: int) -> list[float | None]:
    """The mean of the last `width` values."""
    if width <= 1:
        return list(values)
    known = [
        [v for v in values[max(0, place - width + 1) : place + 1] if v is not None] for place in range(len(values))
    ]
    return [fmean(part) if part else None for part in known]
