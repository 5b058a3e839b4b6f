"""ExperimentSpec: everything that decides a result, complete, checked, and nothing that says where it runs."""

import difflib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from engine import documents
from engine.algorithm import AlgorithmParams
from engine.algorithms import REGISTRY
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.frozen import LATER, Frozen, essence
from engine.models import FAMILIES, Assignment

if TYPE_CHECKING:
    AlgorithmSpec = AlgorithmParams
else:
    AlgorithmSpec = Annotated[
        Union[tuple(algorithm.Params for algorithm in REGISTRY.values())],  # noqa: UP007 the members are known at run time
        Field(discriminator="name", description="The method and its own parameters"),
    ]

PRESETS: dict[str, dict[str, Any]] = {
    "A": {
        "dataset": {"transform": "a"},
        "partition": {"split": "stratified-80-20"},
        "rounds": 500,
        "training": {
            "epochs": 10,
            "batch_size": 512,
            "lr": 0.01,
            "momentum": 0.9,
            "weight_decay": 0.001,
            "clip": 50.0,
            "augment": True,
        },
        "evaluation": {"protocol": "A"},
    },
    "B": {
        "dataset": {"transform": "b"},
        "partition": {"split": "random-75-25"},
        "rounds": 1000,
        "training": {
            "epochs": 1,
            "batch_size": 10,
            "lr": 0.01,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "clip": None,
            "augment": False,
            "recalibrate_below": 1000,
        },
        "evaluation": {"protocol": "B"},
    },
    "C": {
        "dataset": {"transform": "c"},
        "partition": {"split": "official"},
        "clients": 20,
        "participation": 1.0,
        "rounds": 200,
        "training": {
            "epochs": 5,
            "batch_size": 50,
            "lr": 0.02,
            "momentum": 0.5,
            "weight_decay": 0.0005,
            "clip": None,
            "augment": True,
        },
        "evaluation": {"protocol": "C"},
        "models": {"assign": "blocks"},
    },
}
"""The papers' families: pFedAFM and pFedES (A), FedARC (B), CompFL (C)."""

MOST_PROBLEMS = 20
"""So many are told at once; nobody reads more, and a hostile document has thousands."""


class PretrainedSpec(Frozen):
    """Networks that another experiment trained, named by what is in them."""

    weights: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] = Field(
        min_length=1, max_length=16, description="sha256 of weights files; together they hold every architecture once"
    )
    part: Literal["body", "model"] = Field("body", description="Start from their bodies under new heads, or from both")

    @field_validator("weights")
    @classmethod
    def _in_order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """The order says nothing, so it must not change the fingerprint."""
        return tuple(sorted(set(value)))


class ModelsSpec(Frozen):
    """Which network each client owns."""

    family: str = Field(
        description="A family of architectures; one architecture is a family of one",
        json_schema_extra={"enum": [*sorted(FAMILIES)]},
    )
    feature_dim: int | None = Field(
        None, ge=1, le=8192, description="Common feature width; null takes the family's own"
    )
    assign: Assignment = Field(
        "modulo",
        description="Client id modulo the family's size, equal blocks of ids, or drawn with uniform probability",
    )
    pretrained: PretrainedSpec | None = Field(None, description="Trained networks to start from; null: random weights")

    @field_validator("family")
    @classmethod
    def _family_exists(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"unknown model family {value!r}; known: {', '.join(sorted(FAMILIES))}")
        return value


MOST_CLIENTS = 10_000


def cohort_size(clients: int, participation: float) -> int:
    """K = max(1, ⌊C·N + 1e-6⌋): the clients that take part in a round."""
    return max(1, int(participation * clients + 1e-6))


class TrainingSpec(Frozen):
    """Local SGD, the same for every method."""

    epochs: int = Field(10, ge=1, le=1000, description="Local epochs E")
    batch_size: int = Field(512, ge=1, le=65_536, description="Batch size B")
    lr: float = Field(0.01, ge=0, le=10, description="Learning rate η")
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD momentum")
    weight_decay: float = Field(0.001, ge=0, le=1, description="SGD weight decay")
    clip: float | None = Field(50.0, gt=0, le=1e6, description="Largest gradient norm of a module; null: no clipping")
    augment: bool = Field(True, description="Apply the augmentation of dataset.transform (none has none)")
    schedule: Annotated[Literal["constant", "cosine", "exponential"], LATER] = Field(
        "constant",
        description="How every local learning rate, the method's own included, changes from round to round: "
        "not at all, by ½(1 + cos π(t-1)/T), or by decay^(t-1)",
    )
    decay: Annotated[float, LATER] = Field(
        0.99, gt=0, le=1, description="Factor of the exponential schedule from one round to the next"
    )
    divergence_tolerance: Annotated[float, LATER] = Field(
        0.5,
        ge=0,
        le=1,
        description="Largest share of a round's cohort whose training may diverge: these clients sit out the round; "
        "beyond it the run ends. 0: it ends with the first; 1: never",
    )
    recalibrate_below: Annotated[int, LATER] = Field(
        0,
        ge=0,
        le=100_000,
        description="Batch norm's running statistics are taken from all own samples after training, as long as the "
        "network has seen fewer batches than this; 0: never",
    )

    @model_validator(mode="after")
    def _decay_is_used(self) -> Self:
        if self.schedule != "exponential" and self.decay != type(self).model_fields["decay"].default:
            raise ValueError(f"decay belongs to the exponential schedule, but schedule is {self.schedule}")
        return self

    def lr_factor(self, round: int, rounds: int) -> float:
        """What a local learning rate is multiplied by in this round; 1 in the opening and in round 1."""
        past = max(0, round - 1)
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * past / rounds)) / 2
        return self.decay**past if self.schedule == "exponential" else 1.0


class EvaluationSpec(Frozen):
    """When and on whom accuracy is measured."""

    protocol: Literal["A", "B", "C"] = Field(
        "A", description="A, C: the cohort around its local work; B: all clients after aggregation"
    )
    every: int = Field(1, ge=1, le=100_000, description="Test every so many rounds; the last round is always tested")


class ExperimentSpec(Frozen):
    """One experiment: one method, one data set, one seed."""

    name: str | None = Field(None, max_length=200, description="A name for people; not part of the fingerprint")
    tags: tuple[Annotated[str, Field(min_length=1, max_length=50)], ...] = Field(
        (), max_length=20, description="Labels for people; not part of the fingerprint"
    )
    notes: str = Field("", max_length=10_000, description="Free text; not part of the fingerprint")
    algorithm: AlgorithmSpec
    dataset: DatasetSpec
    partition: PartitionSpec
    models: ModelsSpec = Field(description="Which network each client owns")
    topology: Literal["server", "token-walk", "gossip"] = Field("server", description="Who talks to whom")
    clients: int = Field(10, ge=1, le=MOST_CLIENTS, description="Number of clients N")
    participation: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share C of the clients in each round; the spec takes their number too, as participants",
    )
    rounds: int = Field(100, ge=1, le=100_000, description="Communication rounds T")
    training: TrainingSpec = Field(TrainingSpec(), description="Local SGD, the same for every method")
    evaluation: EvaluationSpec = Field(EvaluationSpec(), description="When and on whom accuracy is measured")
    seed: int = Field(42, ge=0, le=2**32 - 1, description="Seed of everything random in the run")

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        """Write the preset's values into every field that was not given; the preset itself is not kept."""
        if not isinstance(data, Mapping):
            return data
        given = {key: value for key, value in data.items() if key != "preset"}
        preset = data.get("preset")
        if preset is None:
            return given
        if not isinstance(preset, str) or preset not in PRESETS:
            raise _refused("preset", f"must be one of {', '.join(PRESETS)}, but got {_given(preset)}", preset)
        values = dict(PRESETS[preset])
        method = given.get("algorithm")
        name = method.get("name") if isinstance(method, Mapping) else None
        if isinstance(name, str) and name in REGISTRY:
            values["algorithm"] = REGISTRY[name].Params.preset_values.get(preset, {})
        for key, value in values.items():
            if isinstance(value, Mapping):
                inner = given.get(key, {})
                if isinstance(inner, Mapping):
                    given[key] = {**value, **inner}
            else:
                given.setdefault(key, value)
        return given

    @model_validator(mode="before")
    @classmethod
    def _count_participants(cls, data: Any) -> Any:
        """`participants: 20` is another way to write the participation 20/N, which is what is kept."""
        if not isinstance(data, Mapping) or "participants" not in data:
            return data
        given = {key: value for key, value in data.items() if key != "participants"}
        number, preset = data["participants"], PRESETS.get(str(data.get("preset")), {})
        if number is None:
            return given
        clients = given.get("clients", preset.get("clients", cls.model_fields["clients"].default))
        if "participation" in given:
            raise _refused("participants", "give participants or participation, not both", number)
        if type(number) is not int or number < 1:
            raise _refused("participants", f"must be a whole number of at least 1, but got {_given(number)}", number)
        if type(clients) is int and clients >= 1:
            if number > clients:
                raise _refused("participants", f"must be at most the {clients} clients, but got {number}", number)
            given["participation"] = number / clients
        return given

    @field_validator("name", "notes")
    @classmethod
    def _no_control_characters(cls, value: str | None) -> str | None:
        return without_controls(value)

    @field_validator("name")
    @classmethod
    def _no_turned_text(cls, value: str | None) -> str | None:
        return undirected(value)

    @field_validator("tags")
    @classmethod
    def _tags_are_plain(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for tag in value:
            if not tag.isprintable():
                raise ValueError(f"a tag must be printable text, but got {tag!r}")
        return value

    @property
    def cohort_size(self) -> int:
        return cohort_size(self.clients, self.participation)

    @property
    def partition_seed(self) -> int:
        return self.seed if self.partition.seed is None else self.partition.seed

    def depends_on_rounds(self) -> str | None:
        """Why a round's work depends on how many rounds there will be; None: a shorter run begins a longer one."""
        if self.training.schedule == "cosine":
            return "the cosine schedule of the learning rate ends with the last round"
        return self.algorithm.depends_on_rounds(self.topology)

    def canonical(self) -> dict[str, Any]:
        """The complete spec as plain JSON values."""
        return self.model_dump(mode="json")

    def fingerprint(self) -> str:
        """Two specs with one fingerprint give the same result: name, tags and notes do not count.

        Nor does a field that the spec did not have yet when the fingerprint was first taken, while it changes nothing.
        """
        counts = {field: value for field, value in essence(self).items() if field not in {"name", "tags", "notes"}}
        text = json.dumps(counts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def parse(cls, data: Any, *, strict: bool = False) -> Self:
        """Like model_validate, but every problem comes with the field's path and a sentence for people.

        `strict` refuses "3" and true for a number, as JSON tells them apart; YAML's 010 is a text.
        """
        try:
            found = cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(explained(error.errors(include_url=False))) from None
        if strict:
            refuse_mistaken(data, found.canonical())
        return found

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """YAML or JSON, which is a part of it."""
        return cls.parse(read_document(text))


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a spec."""

    field: str
    message: str
    value: Any
    kind: Literal["invalid", "not_applicable"] = "invalid"
    """Not applicable: each part is right, but the method cannot work with this choice of models or topology."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class SpecError(ValueError):
    """The spec cannot run, with all the reasons."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems

    @property
    def not_applicable(self) -> bool:
        """Nothing is wrong but the combination."""
        return all(problem.kind == "not_applicable" for problem in self.problems)


def _refused(field: str, message: str, value: Any) -> PydanticCustomError:
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


def _given(value: Any) -> str:
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
        return Problem(f"{field}.name", f"unknown {field} {_given(tag)}; {_meant(str(tag), _tags(context))}", tag)
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
        return Problem(field, f"{owner} has no field {_given(parts[-1])}{_fields(parts, member)}", value)
    if kind == "field":
        return Problem(context["field"], context["message"], context["value"])
    if kind in {"model_type", "model_attributes_type"}:
        return Problem(field, f"must be an object with fields, but got {_given(value)}", value)
    if kind == "value_error":
        return Problem(field, str(context["error"]), value)
    message = error["msg"][0].lower() + error["msg"][1:]
    message = message.removeprefix("input ").replace("should", "must")
    return Problem(field, f"{message}, but got {_given(value)}", value)


_UNION_ERRORS = {"union_tag_invalid", "union_tag_not_found"}


def _tags(context: Mapping[str, Any]) -> str:
    return str(context["expected_tags"]).replace("'", "")


def _known(field: str) -> str:
    if field == "algorithm":
        return ", ".join(REGISTRY)
    return "see `fedarena catalog`"


def _meant(tag: str, known: str) -> str:
    """What a misspelt name stands for; else all there are."""
    close = difflib.get_close_matches(tag.lower(), known.split(", "), cutoff=0.75)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {known}"


def _fields(parts: list[str], member: str | None) -> str:
    """Which methods do have that parameter, and which fields the chosen method, data set or partition has."""
    if member is None:
        return ""
    owners = [name for name, algorithm in REGISTRY.items() if parts[-1] in algorithm.Params.model_fields]
    hint = f"; it belongs to {', '.join(owners)}" if owners and parts[0] == "algorithm" else ""
    models = get_args(ExperimentSpec.model_fields[parts[0]].annotation)
    [chosen] = [model for model in models if member in get_args(model.model_fields["name"].annotation)]
    own = ", ".join(name for name in chosen.model_fields if name != "name")
    return f"{hint}; {member} has {own or 'no parameters'}"
