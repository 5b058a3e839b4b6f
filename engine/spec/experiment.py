"""ExperimentSpec: everything that decides a result, complete, checked, and nothing that says where it runs."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union

from pydantic import Field, ValidationError, field_validator, model_validator

from engine.data.spec import DatasetSpec, PartitionSpec
from engine.kit.contract import AlgorithmParams
from engine.methods import REGISTRY
from engine.spec.evaluation import EvaluationSpec
from engine.spec.frozen import Frozen, essence
from engine.spec.models import ModelsSpec
from engine.spec.presets import PRESETS
from engine.spec.problems import (
    MOST_CLIENTS,
    SpecError,
    brief,
    cohort_size,
    explained,
    read_document,
    refuse_mistaken,
    refused,
    undirected,
    without_controls,
)
from engine.spec.training import TrainingSpec

if TYPE_CHECKING:
    AlgorithmSpec = AlgorithmParams
else:
    AlgorithmSpec = Annotated[
        Union[tuple(algorithm.Params for algorithm in REGISTRY.values())],  # noqa: UP007 the members are known at run time
        Field(discriminator="name", description="The method and its own parameters"),
    ]


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
    evaluation: EvaluationSpec = Field(EvaluationSpec(), description="When and on which clients accuracy is measured")
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
            raise refused("preset", f"must be one of {', '.join(PRESETS)}, but got {brief(preset)}", preset)
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
            raise refused("participants", "give participants or participation, not both", number)
        if type(number) is not int or number < 1:
            raise refused("participants", f"must be a whole number of at least 1, but got {brief(number)}", number)
        if type(clients) is int and clients >= 1:
            if number > clients:
                raise refused("participants", f"must be at most the {clients} clients, but got {number}", number)
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
