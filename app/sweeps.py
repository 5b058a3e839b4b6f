"""A sweep: one document that says which fields take which values, and the experiments that it asks for."""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, ValidationError, field_validator

from app.store.plan import MOST_PRIORITY, Moment, Plan, StopRule, Window
from engine.catalogue import Seen, Weights, check
from engine.spec.experiment import ExperimentSpec
from engine.spec.frozen import Frozen
from engine.spec.problems import (
    MOST_PROBLEMS,
    Problem,
    SpecError,
    explained,
    read_document,
    refuse_mistaken,
    undirected,
    without_controls,
)

MOST_EXPERIMENTS = 2000
"""Grid × zip × list × seeds, before `exclude`."""
MOST_PATHS = 100
"""Fields that one sweep may vary."""
OWN_FIELDS = ("name", "tags", "notes")

FieldPath = Annotated[
    str, Field(max_length=100, pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$", description="As in training.lr")
]
Values = Annotated[tuple[JsonValue, ...], Field(min_length=1)]
Cell = dict[str, JsonValue]
"""Swept fields and their values, the seed apart."""
EventName = Literal["sweep.finished", "sweep.failed", "sweep.cancelled", "experiment.failed"]


class Webhook(Frozen):
    """Whom to tell."""

    url: str = Field(max_length=2000, description="Address that gets a signed POST")
    events: tuple[EventName, ...] = Field(
        ("sweep.finished", "sweep.failed", "sweep.cancelled"), min_length=1, max_length=4, description="What to tell"
    )


class Choose(Frozen):
    """Take the best setting of each group of cells that differ in nothing else."""

    over: tuple[FieldPath, ...] = Field(min_length=1, description="The swept fields whose values are chosen")


class Report(Frozen):
    """What the sweep's table shows beside accuracies; one of the two at least."""

    target: float | None = Field(None, gt=0, le=1, description="Accuracy for the costs to a target")
    choose: Choose | None = Field(None, description="Hyperparameters to choose, on validation and on test")


class SweepSpec(Frozen):
    """A base spec and what varies: grid × zip × list, each with every seed."""

    name: str | None = Field(None, max_length=200, description="A name for people; experiments are named after it")
    notes: str = Field("", max_length=10_000, description="Free text")
    tags: tuple[Annotated[str, Field(min_length=1, max_length=50)], ...] = Field(
        (), max_length=20, description="Labels of all its experiments"
    )
    base: dict[str, JsonValue] = Field(description="What all experiments share: a spec without seed and name")
    grid: dict[FieldPath, Values] = Field({}, description="Fields and their values: every combination")
    zipped: dict[FieldPath, Values] = Field(
        {}, alias="zip", description="Fields and lists of equal length: first with first, second with second"
    )
    listed: tuple[Annotated[dict[FieldPath, JsonValue], Field(min_length=1)], ...] = Field(
        (), alias="list", max_length=MOST_EXPERIMENTS, description="Combinations written out one by one"
    )
    seeds: tuple[Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)], ...] = Field(
        (42,), min_length=1, max_length=MOST_EXPERIMENTS, description="A list, or {from, count}"
    )
    exclude: tuple[Annotated[dict[FieldPath, JsonValue], Field(min_length=1)], ...] = Field(
        (), max_length=200, description="Combinations to leave out: an experiment that matches all fields of an entry"
    )
    stop: StopRule | None = Field(None, description="What may end an experiment before its last round")
    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher runs first")
    start_after: Moment | None = Field(None, description="Not before this moment; ISO 8601 with a zone")
    window: Window | None = Field(
        None, description="Hours of the day in which it may run: 22:00-06:00, or {from, to, zone}"
    )
    webhook: Webhook | None = Field(None, description="An address, or {url, events}")
    reuse: bool = Field(True, description="Experiments that are there already count and are not run again")
    report: Report | None = Field(None, description="What the sweep's table shows beside accuracies")

    @field_validator("name", "notes")
    @classmethod
    def _no_control_characters(cls, value: str | None) -> str | None:
        return without_controls(value)

    @field_validator("name")
    @classmethod
    def _no_turned_text(cls, value: str | None) -> str | None:
        return undirected(value)

    @field_validator("seeds", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if set(value) != {"from", "count"} or not all(type(part) is int for part in value.values()):
            raise ValueError(f"a range of seeds is written {{from: 42, count: 3}}, but got {value!r}")
        first, count = value["from"], value["count"]
        if not 1 <= count <= MOST_EXPERIMENTS:
            raise ValueError(f"count must be 1 to {MOST_EXPERIMENTS}, but got {count}")
        return tuple(range(first, first + count))

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        twice = sorted({seed for seed in value if value.count(seed) > 1})
        if twice:
            raise ValueError(f"each seed may stand once, but {twice[0]} stands there {value.count(twice[0])} times")
        return value

    @field_validator("webhook", mode="before")
    @classmethod
    def _address_alone(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("window", mode="before")
    @classmethod
    def _short_window(cls, value: Any) -> Any:
        return Window.parse(value) if isinstance(value, str) else value

    @property
    def queue_plan(self) -> Plan:
        """The same plan for all its experiments."""
        return Plan(priority=self.priority, start_after=self.start_after, window=self.window, stop=self.stop)

    @property
    def paths(self) -> tuple[str, ...]:
        """The swept fields, in the order of the document."""
        return tuple(dict.fromkeys([*self.grid, *self.zipped, *(path for entry in self.listed for path in entry)]))

    @property
    def count(self) -> int:
        """Experiments before `exclude`."""
        zipped = len(next(iter(self.zipped.values()))) if self.zipped else 1
        return math.prod(map(len, self.grid.values())) * zipped * max(1, len(self.listed)) * len(self.seeds)

    def document(self) -> dict[str, Any]:
        """What was submitted, as plain JSON values."""
        return {**self.model_dump(mode="json", by_alias=True, exclude_unset=True), "seeds": list(self.seeds)}

    @classmethod
    def parse(cls, data: Any, *, strict: bool = False) -> Self:
        """From plain values; raises SpecError with the path of each wrong field. `strict` as for a spec."""
        try:
            found = cls.model_validate(_plain(data))
        except ValidationError as error:
            raise SpecError(explained(error.errors(include_url=False), "a sweep")) from None
        if strict:
            refuse_mistaken(data, found.document())
        problems = tuple(_contradictions(found))
        if problems:
            raise SpecError(problems)
        return found

    @classmethod
    def from_text(cls, text: str) -> Self:
        """YAML or JSON, which is a part of it."""
        return cls.parse(read_document(text))


NOT_CHOSEN = {
    **dict.fromkeys(("dataset", "partition", "clients", "evaluation"), "what settings are tested on must be equal"),
    "algorithm.name": "methods are compared, not chosen; their parameters can be, and algorithm as whole objects",
}
"""Why a setting is not chosen over these fields and their parts."""


def _report_problems(sweep: SweepSpec, report: Report) -> Iterator[Problem]:
    if report.target is None and report.choose is None:
        yield Problem("report", "must say target, choose or both, but says neither", None)
    over = () if report.choose is None else report.choose.over
    for number, path in enumerate(over):
        field = f"report.choose.over.{number}"
        reason = NOT_CHOSEN.get(path) or NOT_CHOSEN.get(path.split(".")[0])
        if path not in sweep.paths:
            known = ", ".join(sweep.paths) or "none"
            yield Problem(field, f"must be a swept field (of this sweep: {known}), but got {path}", path)
        elif reason is not None:
            yield Problem(field, f"cannot be {path}: {reason}", path)
        elif path in over[:number]:
            yield Problem(field, f"each field may stand once, but {path} stands there again", path)


def _contradictions(sweep: SweepSpec) -> Iterator[Problem]:
    """What each field allows, but not all of them together; cheap, however large the grid."""
    if len(sweep.paths) > MOST_PATHS:
        message = f"a sweep may vary {MOST_PATHS} fields, but this one varies {len(sweep.paths)}"
        yield Problem("", message, len(sweep.paths))
        return  # what follows compares every field with every other
    for key in OWN_FIELDS:
        if key in sweep.base:
            yield Problem(f"base.{key}", f"{key} belongs to the sweep itself, not to its base", sweep.base[key])
    if "seed" in sweep.base:
        yield Problem("base.seed", "a sweep lists its seeds under seeds, not in its base", sweep.base["seed"])
    if sweep.report is not None:
        yield from _report_problems(sweep, sweep.report)
    lengths = {path: len(values) for path, values in sweep.zipped.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        yield Problem("zip", f"its lists must be equally long, but {told}", lengths)
    sources = {"grid": set(sweep.grid), "zip": set(sweep.zipped), "list": {p for entry in sweep.listed for p in entry}}
    for name, paths in sources.items():
        for path in sorted(paths):
            if path.split(".")[0] in {*OWN_FIELDS, "seed"}:
                yield Problem(f"{name}.{path}", f"{path} cannot be swept; seeds have a list of their own", path)
    for (first, some), (second, others) in itertools.combinations(sources.items(), 2):
        for path in sorted(some & others):
            yield Problem(f"{second}.{path}", f"{path} is swept twice, by {first} and by {second}", path)
    whole = sorted(sweep.paths)
    for path, inner in ((a, b) for a in whole for b in whole if b.startswith(f"{a}.")):
        yield Problem(inner, f"sweep {path} as whole objects or {inner} alone, not both", inner)
    for name, lists in (("grid", sweep.grid), ("zip", sweep.zipped)):
        for path, values in lists.items():
            texts = [_text(value) for value in values] if name == "grid" else []
            if len(set(texts)) < len(texts):
                yield Problem(f"grid.{path}", "each value may stand once in the list of a grid", list(values)[:20])
    if sweep.count > MOST_EXPERIMENTS:
        sizes = [len(values) for values in sweep.grid.values()]
        sizes += [len(next(iter(sweep.zipped.values())))] if sweep.zipped else []
        sizes += [len(sweep.listed)] if sweep.listed else []
        told = " × ".join(map(str, [*sizes, len(sweep.seeds)]))
        told += f" = {sweep.count}" if sweep.count < 10**15 else ""
        message = f"a sweep may hold {MOST_EXPERIMENTS} experiments, but this one asks for {told}"
        yield Problem("grid", f"{message}; split it or sweep fewer values", told)


@dataclass(frozen=True)
class Point:
    """One experiment of a sweep."""

    cell: int
    seed: int
    spec: ExperimentSpec
    fingerprint: str
    reason: str | None = None
    """Why its method cannot be applied to its models; None: it can run."""


@dataclass(frozen=True)
class Refused:
    """Something wrong with the sweep, and in how many of its experiments."""

    problem: Problem
    experiments: int
    example: str


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep would run, in the order in which it would run."""

    sweep: SweepSpec
    cells: tuple[Cell, ...]
    points: tuple[Point, ...]
    """Without those that are refused."""
    excluded: int
    refused: tuple[Refused, ...]

    @property
    def experiments(self) -> int:
        """How many the document asks for, refused ones too."""
        return self.sweep.count - self.excluded

    def or_raise(self) -> Self:
        """The plan, if nothing is wrong with it."""
        if self.refused:
            raise SpecError(tuple(_located(item) for item in self.refused))
        return self


def _located(item: Refused) -> Problem:
    if not item.example:
        return item.problem
    more = f" and {item.experiments - 1} more" if item.experiments > 1 else ""
    return replace(item.problem, message=f"{item.problem.message} (in {item.example}{more})")


def make_plan(sweep: SweepSpec, data_root: Path | None, weights: Weights | None = None) -> SweepPlan:
    """Expand and check everything. The first seed of every cell comes before the second, so that tables fill evenly."""
    faults = _Faults()
    assembled: list[tuple[Cell, list[tuple[int, dict[str, Any]]]]] = []
    excluded, used = 0, set[int]()
    for cell in _cells(sweep):
        try:
            raw = _assemble(sweep.base, cell)
        except SpecError as error:
            faults.note(error.problems, label(cell), len(sweep.seeds))
            assembled.append((cell, []))
            continue
        kept = []
        for seed in sweep.seeds:
            given = {**raw, "seed": seed}
            matching = {number for number, entry in enumerate(sweep.exclude) if _matches(given, entry)}
            used |= matching
            excluded += bool(matching)
            if not matching:
                kept.append((seed, given))
        if kept:
            assembled.append((cell, kept))
    for number, entry in enumerate(sweep.exclude):
        if number not in used:
            problem = Problem(f"exclude.{number}", "matches none of the sweep's experiments", entry)
            faults.note((problem,), "exclude", 1)
    if not assembled and not faults.found:
        problem = Problem("exclude", "leaves no experiment", None)
        faults.note((problem,), "exclude", 1)
    seen: Seen = {}
    points, cells = list[Point](), list[Cell]()
    for index, (cell, kept) in enumerate(assembled):
        specs = _parse(sweep, cell, kept, faults) if kept else []
        cells.append(_normalised(cell, specs[0]) if specs else cell)
        for spec in specs:
            point = Point(index, spec.seed, spec, spec.fingerprint())
            try:
                check(spec, data_root, weights, seen)
            except SpecError as error:
                if error.not_applicable:
                    point = replace(point, reason="; ".join(problem.message for problem in error.problems))
                else:
                    faults.note(error.problems, f"{label(cell)}, seed {spec.seed}", 1)
                    continue
            points.append(point)
    points = _without_doubles(points, cells, faults)
    order = {seed: number for number, seed in enumerate(sweep.seeds)}
    points.sort(key=lambda point: (order[point.seed], point.cell))
    return SweepPlan(sweep, tuple(cells), tuple(points), excluded, faults.all())


class _Faults:
    """Collects problems; the same one in many cells is told once."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Refused] = {}

    def note(self, problems: Sequence[Problem], example: str, experiments: int) -> None:
        for problem in problems:
            key = (problem.field, problem.message)
            known = self.found.get(key)
            if known is None:
                self.found[key] = Refused(problem, experiments, example)
            else:
                self.found[key] = replace(known, experiments=known.experiments + experiments)

    def all(self) -> tuple[Refused, ...]:
        told = tuple(itertools.islice(self.found.values(), MOST_PROBLEMS))
        more = len(self.found) - len(told)
        return (*told, Refused(Problem("", f"and {more} more problems", None), 0, "")) if more else told


def _cells(sweep: SweepSpec) -> Iterator[Cell]:
    grid = [[(path, value) for value in values] for path, values in sweep.grid.items()]
    zipped: list[Cell] = (
        [dict(zip(sweep.zipped, row, strict=True)) for row in zip(*sweep.zipped.values(), strict=True)]
        if sweep.zipped
        else [{}]
    )
    for chosen, together, entry in itertools.product(itertools.product(*grid), zipped, sweep.listed or ({},)):
        yield {**dict(chosen), **together, **entry}


def _assemble(base: Mapping[str, JsonValue], cell: Cell) -> dict[str, Any]:
    """The base with the cell's values put in; what is not touched is shared, not copied."""
    raw: dict[str, Any] = dict(base)
    for path, value in cell.items():
        *parents, last = path.split(".")
        target = raw
        for depth, part in enumerate(parents):
            inner = target.get(part, {})
            if not isinstance(inner, Mapping):
                where = ".".join(parents[: depth + 1])
                message = f"must be an object with fields for {path} to be set in it, but got {inner!r}"
                raise SpecError((Problem(f"base.{where}", message, inner),))
            target[part] = dict(inner)
            target = target[part]
        target[last] = value
    return raw


def _matches(given: Mapping[str, Any], entry: Mapping[str, JsonValue]) -> bool:
    return all(_covers(_find(given, path), value) for path, value in entry.items())


def _find(given: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(given, Mapping) or part not in given:
            return None
        given = given[part]
    return given


def _covers(found: Any, wanted: Any) -> bool:
    """Equal; of an object only the named fields."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_covers(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def _parse(
    sweep: SweepSpec, cell: Cell, kept: Sequence[tuple[int, dict[str, Any]]], faults: _Faults
) -> list[ExperimentSpec]:
    """Only the first seed's spec is validated in full: the others differ in the seed and the name alone."""
    (seed, raw), name = kept[0], sweep.name
    about = {"tags": sweep.tags, "name": _experiment_name(name, cell, seed)}
    try:
        first = ExperimentSpec.parse({**raw, **about})
    except SpecError as error:
        faults.note(error.problems, label(cell), len(kept))
        return []
    rest = [
        first.model_copy(update={"seed": other, "name": _experiment_name(name, cell, other)}) for other, _ in kept[1:]
    ]
    return [first, *rest]


def _experiment_name(sweep: str | None, cell: Cell, seed: int) -> str:
    tail = f"seed {seed}"
    head = ": ".join(part for part in (sweep, label(cell)) if part)
    return f"{head[: 197 - len(tail)]}, {tail}" if head else tail


def _without_doubles(points: Sequence[Point], cells: Sequence[Cell], faults: _Faults) -> list[Point]:
    first: dict[str, Point] = {}
    for point in points:
        other = first.setdefault(point.fingerprint, point)
        if other is not point:
            message = f"gives the same experiments as {label(cells[other.cell])}; leave one of them out"
            faults.note((Problem("", message, cells[point.cell]),), label(cells[point.cell]), 1)
    return list(first.values())


def _normalised(cell: Cell, spec: ExperimentSpec) -> Cell:
    """Plain values as the spec understood them, so that 1e-3 and 0.001 read alike; objects as they were written."""
    whole = spec.canonical()

    def understood(path: str, value: JsonValue) -> JsonValue:
        found = _find(whole, path)
        return value if found is None or isinstance(value, (dict, list)) or isinstance(found, (dict, list)) else found

    return {path: understood(path, value) for path, value in cell.items()}


def label(cell: Mapping[str, JsonValue]) -> str:
    """A cell in words: `pfedes, proxy_epochs 1, lr 0.01`."""
    return ", ".join(_words(path, value) for path, value in cell.items())


def _words(path: str, value: JsonValue) -> str:
    last = path.rsplit(".", 1)[-1]
    if isinstance(value, dict):
        parts = [str(value["name"])] if "name" in value else [last]
        return ", ".join([*parts, *(_words(key, inner) for key, inner in value.items() if key != "name")])
    shown = value if isinstance(value, str) else _text(value)
    return shown if last == "name" else f"{last} {shown}"


def _text(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _plain(data: Any, path: str = "") -> Any:
    """The same values, if JSON can carry them."""
    if isinstance(data, Mapping):
        for key in data:
            if not isinstance(key, str):
                raise SpecError((Problem(path, f"the names of fields must be texts, but got {key!r}", str(key)),))
            _plain(key, path)
        return {key: _plain(value, f"{path}.{key}" if path else key) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value, f"{path}.{number}") for number, value in enumerate(data)]
    if isinstance(data, str) and _SURROGATE.search(data):
        raise SpecError((Problem(path, f"must be text that UTF-8 can carry, but got {data!r}", data),))
    if data is None or isinstance(data, (bool, str)) or (isinstance(data, (int, float)) and math.isfinite(data)):
        return data
    raise SpecError(
        (Problem(path, f"must be text, a finite number, true, false or null, but got {data!r}", str(data)),)
    )
