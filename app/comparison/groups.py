"""Experiments that differ in their seed only are one group: its mean and spread are what a table shows."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.comparison.palette import method_title
from app.store.states import State
from app.store.tables import Experiment

NOT_COMPARED = frozenset({"name", "tags", "notes", "seed"})
"""Fields of a spec that two seeds of one group may differ in."""
METHOD = "algorithm.name"
ENDED_EARLY = frozenset({State.FAILED, State.DIVERGED, State.CANCELLED, State.NOT_APPLICABLE})


@dataclass
class Group:
    """Runs that are pooled, with what tells them from the other groups."""

    method: str
    fields: dict[str, Any]
    members: list[Experiment] = field(default_factory=list)
    variant: int = 0
    label: str = ""

    @property
    def counted(self) -> list[Experiment]:
        """Members with rounds; those that ended early are left out as long as others remain."""
        started = [row for row in self.members if row.next_round > 0]
        return [row for row in started if row.state not in ENDED_EARLY] or started

    @property
    def settled(self) -> list[Experiment]:
        """Finished members where there are any: half a run would pull the mean of the others down."""
        return [row for row in self.counted if row.state == State.FINISHED] or self.counted


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested values as dotted paths: {"training.lr": 0.01, …}. Lists stay whole."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def group(rows: Iterable[Experiment], by: Sequence[str] = ()) -> list[Group]:
    """In the order of the rows. Without `by` all fields of the spec count, else the method and the named fields."""
    groups: dict[str, Group] = {}
    for row in rows:
        fields = {path: value for path, value in flatten(row.spec).items() if path not in NOT_COMPARED}
        if by:
            fields = {path: fields[path] for path in dict.fromkeys((METHOD, *by)) if path in fields}
        key = json.dumps(fields, sort_keys=True)
        groups.setdefault(key, Group(row.algorithm, fields)).members.append(row)
    found = list(groups.values())
    for method in {item.method for item in found}:
        _label([item for item in found if item.method == method])
    return found


ABSENT = object()
"""The field does not exist in this spec, which is another thing than null."""


def _label(groups: list[Group]) -> None:
    """The method's name, and where it has several groups also as few fields as tell all of them apart."""
    paths = list(dict.fromkeys(path for item in groups for path in item.fields))
    texts = {path: [shown(item.fields.get(path, ABSENT)) for item in groups] for path in paths}
    chosen: list[str] = []

    def kinds(path: str) -> int:
        return len(set(zip(*(texts[name] for name in (*chosen, path)), strict=True)))

    while paths and (kinds(chosen[-1]) if chosen else 1) < len(groups):
        chosen.append(max(paths, key=kinds))
        paths.remove(chosen[-1])
    told = [path for path in texts if path in chosen]
    names = {path: field_title(path) for path in told}
    twice = {path for path in told if list(names.values()).count(names[path]) > 1}
    names |= {path: path.replace(".", " ").replace("_", " ") for path in twice}
    for place, item in enumerate(groups):
        item.variant = place
        item.label = " · ".join([method_title(item.method), *(f"{names[path]} {texts[path][place]}" for path in told)])


TITLES = {"algorithm": "method", "dataset": "data set"}


def field_title(path: str) -> str:
    """A field of a spec in a label or a table's head, as the pages write it: the name of a part names the part."""
    *parts, last = path.split(".")
    word = parts[-1] if parts and last == "name" else last
    return TITLES.get(word, word.replace("_", " "))


def shown(value: Any) -> str:
    """A value of a spec in a label, letter by letter as the pages write it: a label names its group in requests."""
    if value is ABSENT:
        return "–"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    return str(value) if isinstance(value, int | str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _number(value: float) -> str:
    """As JavaScript writes it: 1 and not 1.0, 0.00001 and not 1e-05."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return f"{Decimal(repr(value)):f}"
    return re.sub(r"e([+-])0*", r"e\1", repr(value))
