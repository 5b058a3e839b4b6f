"""ExperimentSpec: everything that decides a result, complete, checked, and nothing that says where it runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from engine import documents
from engine.algorithm import AlgorithmParams
from engine.algorithms import REGISTRY
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.frozen import Frozen
from engine.models import FAMILIES

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

    family: str = Field(description="A family of architectures; one architecture is a family of one")
    feature_dim: int | None = Field(
        None, ge=1, le=8192, description="Common feature width; null takes the family's own"
    )
    assign: Literal["modulo", "blocks"] = Field(
        "modulo", description="Client id modulo the family's size, or equal blocks of ids"
    )
    pretrained: PretrainedSpec | None = Field(None, description="Trained networks to start from; null: random weights")

    @field_validator("family")
    @classmethod
    def _family_exists(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"unknown model family {value!r}; known: {', '.join(sorted(FAMILIES))}")
        return value


class TrainingSpec(Frozen):
    """Local SGD, the same for every method."""

    epochs: int = Field(10, ge=1, le=1000, description="Local epochs E")
    batch_size: int = Field(512, ge=1, le=65_536, description="Batch size B")
    lr: float = Field(0.01, ge=0, le=10, description="Learning rate η")
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD momentum")
    weight_decay: float = Field(0.001, ge=0, le=1, description="SGD weight decay")
    clip: float | None = Field(50.0, gt=0, le=1e6, description="Largest gradient norm of a module; null: no clipping")
    augment: bool = Field(True, description="Apply the augmentation of dataset.transform (none has none)")


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
    clients: int = Field(10, ge=1, le=10_000, description="Number of clients N")
    participation: float = Field(1.0, gt=0, le=1, description="Share of clients in each round C")
    rounds: int = Field(100, ge=1, le=100_000, description="Communication rounds T")
    training: TrainingSpec = Field(TrainingSpec(), description="Local SGD, the same for every method")
    evaluation: EvaluationSpec = Field(EvaluationSpec(), description="When and on whom accuracy is measured")
    seed: int = Field(42, ge=0, le=2**32 - 1, description="Seed of everything random in the run")

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        """Write the preset's values into every field that was not given; the preset itself is not kept."""
        if not isinstance(data, Mapping) or "preset" not in data:
            return data
        given = {key: value for key, value in data.items() if key != "preset"}
        preset = data["preset"]
        if preset is None:
            return given
        if not isinstance(preset, str) or preset not in PRESETS:
            raise PydanticCustomError("preset", "{message}", {"message": f"must be one of {', '.join(PRESETS)}"})
        values = dict(PRESETS[preset])
        method = given.get("algorithm")
        if isinstance(method, Mapping) and method.get("name") in REGISTRY:
            values["algorithm"] = REGISTRY[method["name"]].Params.preset_values.get(preset, {})
        for key, value in values.items():
            if isinstance(value, Mapping):
                inner = given.get(key, {})
                if isinstance(inner, Mapping):
                    given[key] = {**value, **inner}
            else:
                given.setdefault(key, value)
        return given

    @field_validator("name", "notes")
    @classmethod
    def _no_control_characters(cls, value: str | None) -> str | None:
        if value is not None and any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in value):
            raise ValueError("must not contain control characters")
        return value

    @field_validator("tags")
    @classmethod
    def _tags_are_plain(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for tag in value:
            if not tag.isprintable():
                raise ValueError(f"a tag must be printable text, but got {tag!r}")
        return value

    @property
    def cohort_size(self) -> int:
        """K = max(1, ⌊C·N + 1e-6⌋)."""
        return max(1, int(self.participation * self.clients + 1e-6))

    @property
    def partition_seed(self) -> int:
        return self.seed if self.partition.seed is None else self.partition.seed

    def canonical(self) -> dict[str, Any]:
        """The complete spec as plain JSON values."""
        return self.model_dump(mode="json")

    def fingerprint(self) -> str:
        """Two specs with one fingerprint give the same result: name, tags and notes do not count."""
        essence = self.model_dump(mode="json", exclude={"name", "tags", "notes"})
        text = json.dumps(essence, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Like model_validate, but every problem comes with the field's path and a sentence for people."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(tuple(explain(item) for item in error.errors(include_url=False))) from None

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """YAML or JSON, which is a part of it."""
        try:
            data = documents.read(text)
        except yaml.YAMLError as error:
            raise SpecError((Problem("", f"not readable as YAML or JSON: {error}", None),)) from None
        return cls.parse(data)


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
        return Problem(f"{field}.name", f"unknown {field} {context['tag']!r}; known: {_tags(context)}", context["tag"])
    if kind == "union_tag_not_found":
        return Problem(f"{field}.name", f"a {field} needs a name; known: {_known(field)}", value)
    if kind == "missing":
        return Problem(field, "is required but was not given", None)
    if kind == "extra_forbidden":
        owner = f"{parts[0]} {member!r}" if member else whole if len(parts) == 1 else parts[0]
        return Problem(field, f"{owner} has no field {parts[-1]!r}{_owners(parts, member)}", value)
    if kind == "preset":
        return Problem("preset", f"{error['msg']}, but got {value['preset']!r}", value["preset"])
    if kind in {"model_type", "model_attributes_type"}:
        return Problem(field, f"must be an object with fields, but got {value!r}", value)
    if kind == "value_error":
        return Problem(field, str(context["error"]), value)
    message = error["msg"][0].lower() + error["msg"][1:]
    message = message.removeprefix("input ").replace("should", "must")
    return Problem(field, f"{message}, but got {value!r}", value)


_UNION_ERRORS = {"union_tag_invalid", "union_tag_not_found"}


def _tags(context: Mapping[str, Any]) -> str:
    return str(context["expected_tags"]).replace("'", "")


def _known(field: str) -> str:
    if field == "algorithm":
        return ", ".join(REGISTRY)
    return "see `fedarena catalog`"


def _owners(parts: list[str], member: str | None) -> str:
    """Which methods do have that parameter, and which parameters this one has."""
    if parts[0] != "algorithm" or member is None:
        return ""
    owners = [name for name, algorithm in REGISTRY.items() if parts[-1] in algorithm.Params.model_fields]
    own = [name for name in REGISTRY[member].Params.model_fields if name != "name"]
    hint = f"; it belongs to {', '.join(owners)}" if owners else ""
    return f"{hint}; {member} has {', '.join(own) if own else 'no parameters'}"
