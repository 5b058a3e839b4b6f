"""What can be wrong with a spec, as sentences for people: field, rule and value."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticCustomError

from engine.data.errors import Remedy
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.methods import REGISTRY
from engine.spec import documents

MOST_PROBLEMS = 20
"""So many are told at once; nobody reads more, and a hostile document has thousands."""


MOST_CLIENTS = 10_000


def cohort_size(clients: int, participation: float) -> int:
    """K = max(1, ⌊C·N + 1e-6⌋): the clients that take part in a round."""
    return max(1, int(participation * clients + 1e-6))


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a spec."""

    field: str
    message: str
    value: Any
    kind: Literal["invalid", "not_applicable"] = "invalid"
    """Not applicable: each part is right, but the method cannot work with this choice of models or topology."""
    remedy: Remedy | None = None
    """How to get the data set, where that is what is missing."""

    def __str__(self) -> str:
        message = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return f"{self.field}: {message}" if self.field else message


class SpecError(ValueError):
    """The spec cannot run, with all the reasons."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems

    @property
    def not_applicable(self) -> bool:
        """Nothing is wrong but the combination."""
        return all(problem.kind == "not_applicable" for problem in self.problems)


def refused(field: str, message: str, value: Any) -> PydanticCustomError:
    """For what the spec itself does not keep, which has no field of its own in an error."""
    return PydanticCustomError("field", "{message}", {"field": field, "message": message, "value": value})


def read_document(text: str) -> Any:
    """Plain values from YAML or JSON; SpecError where the text is neither."""
    try:
        return documents.read(text)
    except yaml.YAMLError as error:
        line, reason = documents.what_is_wrong(error)
        field = "" if line is None else f"line {line}"
        raise SpecError((Problem(field, f"not readable as YAML or JSON: {reason}", None),)) from None


BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn the direction of what follows: a name could make the text around it read as something else."""


def without_controls(text: str | None) -> str | None:
    """A name or note that shows all it holds; ValueError for any other."""
    if text is not None and any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in text):
        raise ValueError("must not contain control characters")
    return text


def undirected(name: str | None) -> str | None:
    """A name that leaves the text around it as it is; ValueError for any other."""
    if name is not None and not BIDIRECTIONAL.isdisjoint(name):
        raise ValueError("must not contain characters that turn the direction of the text")
    return name


def explained(errors: Sequence[Any], whole: str = "the spec") -> tuple[Problem, ...]:
    """The errors of pydantic as sentences; of very many the first ones, and how many more there are."""
    more = len(errors) - MOST_PROBLEMS
    rest = [Problem("", f"and {more} more problems", None)] if more > 0 else []
    return (*(explain(item, whole) for item in errors[:MOST_PROBLEMS]), *rest)


def refuse_mistaken(given: Any, understood: Any) -> None:
    """SpecError where a text or a truth value was taken for a number, or the other way round."""
    if problems := tuple(_mistaken(given, understood, "")):
        raise SpecError(problems)


def _mistaken(given: Any, understood: Any, path: str) -> Iterator[Problem]:
    if isinstance(given, Mapping) and isinstance(understood, Mapping):
        for key in given.keys() & understood.keys():
            yield from _mistaken(given[key], understood[key], f"{path}.{key}" if path else key)
    elif isinstance(given, list) and isinstance(understood, list):
        for number, (one, other) in enumerate(zip(given, understood, strict=False)):
            yield from _mistaken(one, other, f"{path}.{number}")
    elif (wanted := _kind(understood)) and _kind(given) and _kind(given) != wanted:
        yield Problem(path, f"must be {wanted}, but got {given!r}", given)


def _kind(value: Any) -> str | None:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value))


def brief(value: Any) -> str:
    """What somebody sent, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def explain(error: Any, whole: str = "the spec") -> Problem:
    """A pydantic error as a sentence: field, rule, value. `whole` names what was parsed."""
    location = tuple(str(part) for part in error["loc"])
    parts = list(location)
    # a discriminated union puts the chosen member into the path: algorithm.fedavg.mu is the field algorithm.mu
    if len(parts) > 1 and parts[0] in {"algorithm", "dataset", "partition"} and error["type"] != "union_tag_invalid":
        member = parts.pop(1) if len(parts) > 2 or error["type"] not in _UNION_ERRORS else None
    else:
        member = None
    field, value, kind, context = ".".join(parts), error.get("input"), error["type"], error.get("ctx", {})
    if kind == "union_tag_invalid":
        tag = context["tag"]
        return Problem(f"{field}.name", f"unknown {field} {brief(tag)}; {_meant(str(tag), _tags(context))}", tag)
    if kind == "union_tag_not_found":
        return Problem(
            f"{field}.name",
            f"{'an' if field == 'algorithm' else 'a'} {field} needs a name; known: {_known(field)}",
            value,
        )
    if kind == "missing":
        return Problem(field, "is required but was not given", None)
    if kind == "extra_forbidden":
        owner = f"{parts[0]} {member!r}" if member else whole if len(parts) == 1 else parts[0]
        return Problem(field, f"{owner} has no field {brief(parts[-1])}{_fields(parts, member)}", value)
    if kind == "field":
        return Problem(context["field"], context["message"], context["value"])
    if kind in {"model_type", "model_attributes_type"}:
        return Problem(field, f"must be an object with fields, but got {brief(value)}", value)
    if kind == "value_error":
        return Problem(field, str(context["error"]), value)
    message = error["msg"][0].lower() + error["msg"][1:]
    message = message.removeprefix("input ").replace("should", "must")
    return Problem(field, f"{message}, but got {brief(value)}", value)


_UNION_ERRORS = {"union_tag_invalid", "union_tag_not_found"}


def _tags(context: Mapping[str, Any]) -> str:
    return str(context["expected_tags"]).replace("'", "")


def _known(field: str) -> str:
    if field == "algorithm":
        return ", ".join(REGISTRY)
    return ", ".join(_names(_MEMBERS[field]))


def _meant(tag: str, known: str) -> str:
    """What a misspelt name stands for; else all there are."""
    close = difflib.get_close_matches(tag.lower(), known.split(", "), cutoff=0.75)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {known}"


_MEMBERS: Mapping[str, Sequence[type[BaseModel]]] = {
    "algorithm": [algorithm.Params for algorithm in REGISTRY.values()],
    "dataset": get_args(get_args(DatasetSpec)[0]),
    "partition": get_args(get_args(PartitionSpec)[0]),
}


def _names(members: Sequence[type[BaseModel]]) -> Iterator[str]:
    for member in members:
        yield from get_args(member.model_fields["name"].annotation)


def _fields(parts: list[str], member: str | None) -> str:
    """Which methods do have that parameter, and which fields the chosen method, data set or partition has."""
    if member is None:
        return ""
    owners = [name for name, algorithm in REGISTRY.items() if parts[-1] in algorithm.Params.model_fields]
    hint = f"; it belongs to {', '.join(owners)}" if owners and parts[0] == "algorithm" else ""
    [chosen] = [model for model in _MEMBERS[parts[0]] if member in get_args(model.model_fields["name"].annotation)]
    own = ", ".join(name for name in chosen.model_fields if name != "name")
    return f"{hint}; {member} has {own or 'no parameters'}"
