"""What one round leaves behind: the same words in the database row, the event, the CSV line and the JSON file."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

VALIDATED_SPLITS = frozenset({"80-10-10", "authors"})
TraceValue = float | list[float] | None

CONVERGENCE_MARGIN = 0.02
"""Points above the share of the majority class that a finished run must pass, or it is said not to have converged."""
NO_CONVERGENCE = (
    f"no convergence: at most {100 * CONVERGENCE_MARGIN:g} points above what naming the most frequent class of each "
    "client’s test set reaches; papers print “–”"
)
"""What the mark † of such a run means, in every table; static/js/convergence.js says the same."""


class Dropped(BaseModel):
    """What did not count in a round because its numbers were not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: int | None = Field(description="Who was left out; null: the server itself")
    part: str = Field(
        description="local work (the client sat out the round), message, classes (of a message), test, or new state "
        "(of the server, which kept its former one)"
    )
    reason: str


class RoundRecord(BaseModel):
    """One round. Accuracies are fractions; counts are sums over the cohort; a value that does not exist is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int = Field(ge=0, description="0 is the opening: what happens once before training")
    accuracy: float | None = Field(
        description="Test accuracy under the evaluation protocol; null when nobody was tested"
    )
    loss: float | None = Field(description="Training loss of the first phase, sample-weighted over the cohort")
    scalars_up: int = Field(description="Float scalars sent by the cohort")
    scalars_down: int = Field(description="Float scalars received by the cohort")
    bytes_up: int = Field(description="Four bytes a scalar sent")
    bytes_down: int = Field(description="Four bytes a scalar received")
    client_flops: int = Field(description="FLOPs of local training, summed over the cohort")
    server_flops: int = Field(description="FLOPs of what the server trains or computes")
    eval_flops: int = Field(description="FLOPs of tuning a copy for the test; not part of client_flops")
    seconds: float = Field(description="Wall time of the round")
    client_seconds: float = Field(description="Wall time of local work, summed over the cohort")
    server_seconds: float = Field(description="Wall time of aggregation")
    cohort: list[int] = Field(description="Clients that took part, ascending; those that sat out among them")
    client_accuracy: dict[str, float] = Field(description="Client id to test accuracy, of the clients tested")
    traces: dict[str, Any] = Field(default_factory=dict, description="What the method itself reports")
    dropped: list[Dropped] = Field(
        default_factory=list, description="What was left out because it was not finite: client, part, reason"
    )
    validation_accuracy: float | None = Field(
        None, description="Validation accuracy by the same rule, of the same clients; null without a validation part"
    )

    @field_validator("accuracy", "validation_accuracy", "loss", mode="before")
    @classmethod
    def _nan_is_null(cls, value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else value

    def without_times(self) -> dict[str, Any]:
        """All that must be equal when the round is computed again.

        The validation accuracy stands in it where there is one: other records are what they were before it came.
        """
        apart = {"validation_accuracy"} if self.validation_accuracy is None else set[str]()
        return self.model_dump(exclude={"seconds", "client_seconds", "server_seconds"} | apart)


class Headline(BaseModel):
    """The numbers a table shows for one experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    best_accuracy: float | None = Field(None, description="Highest accuracy of a tested round")
    best_round: int | None = Field(None, description="The first round that reached it")
    final_accuracy: float | None = Field(None, description="Accuracy of the last tested round")
    best_validation_accuracy: float | None = Field(None, description="Highest validation accuracy of a tested round")
    best_validation_round: int | None = Field(None, description="The first round that reached it")
    accuracy_at_best_validation: float | None = Field(None, description="Test accuracy of that round")
    final_validation_accuracy: float | None = Field(None, description="Validation accuracy of the last tested round")

    def after(self, round: int, accuracy: float | None, validation_accuracy: float | None) -> Self:
        """With one more round. The opening (round 0) does not count, nor does a round in which nobody was tested."""
        if round == 0 or accuracy is None:
            return self
        news: dict[str, Any] = {"final_accuracy": accuracy, "final_validation_accuracy": validation_accuracy}
        if self.best_accuracy is None or accuracy > self.best_accuracy:
            news |= {"best_accuracy": accuracy, "best_round": round}
        known = self.best_validation_accuracy
        if validation_accuracy is not None and (known is None or validation_accuracy > known):
            news |= {
                "best_validation_accuracy": validation_accuracy,
                "best_validation_round": round,
                "accuracy_at_best_validation": accuracy,
            }
        return self.model_copy(update=news)

    def judged(self, rule: "HeadlineRule") -> float | None:
        """The accuracy that counts."""
        return self.final_accuracy if rule == "final" else self.best_accuracy


def headline(records: Iterable[RoundRecord | Mapping[str, Any]]) -> Headline:
    """Over all rounds."""
    found = Headline()
    for record in records:
        if isinstance(record, RoundRecord):
            found = found.after(record.round, record.accuracy, record.validation_accuracy)
        else:
            found = found.after(record["round"], record["accuracy"], record.get("validation_accuracy"))
    return found


HeadlineRule = Literal["best", "final"]


def headline_rule(spec: Mapping[str, Any]) -> HeadlineRule:
    """Which accuracy an experiment is judged by: the final one under protocol C, the best one under A and B."""
    return "final" if spec["evaluation"].get("protocol") == "C" else "best"


def no_convergence(accuracy: float | None, majority_share: float | None) -> bool:
    """Whether the accuracy that a finished run is judged by tells that nothing was learned.

    `majority_share` is reached without learning: by naming the most frequent class of each client's test set.
    """
    if accuracy is None or majority_share is None:
        return False
    return accuracy <= majority_share + CONVERGENCE_MARGIN


def has_validation(spec: Mapping[str, Any]) -> bool:
    """Whether its split keeps samples for validation; an imported partition brings its own split, which has none."""
    partition = spec["partition"]
    return partition.get("split") in VALIDATED_SPLITS and partition.get("name") != "imported"


def conditions(spec: Mapping[str, Any]) -> str:
    """Equal where results may be ranked: the same data, clients, models, budget, topology and evaluation."""
    whole = ("dataset", "partition", "clients", "models", "rounds", "participation", "topology", "evaluation")
    text = json.dumps([*(spec.get(name) for name in whole), spec["training"]["epochs"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class CostToTarget(BaseModel):
    """What it took to reach an accuracy, counted twice; null when it was never reached.

    The papers multiply the mean cost of all rounds by the rounds to the target, which charges a method for what it only
    does later. What was spent is the sum of what happened, the opening included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: float
    rounds: int | None = Field(description="First round whose accuracy reaches the target")
    scalars: float | None = Field(description="Scalars sent and received per round, times the rounds to the target")
    bytes: float | None
    flops: float | None = Field(description="Client FLOPs per round and participant, times the rounds to the target")
    spent_scalars: int | None = Field(description="Scalars sent and received until the target was reached")
    spent_bytes: int | None
    spent_flops: float | None = Field(description="Client FLOPs of a participant until the target was reached, summed")


def cost_to_target(records: Sequence[RoundRecord], target: float) -> CostToTarget:
    """Rounds, communication and computation to a target accuracy. Averages are over all rounds but the opening."""
    rounds = [record for record in records if record.round > 0]
    reached = next((r.round for r in rounds if r.accuracy is not None and r.accuracy >= target), None)
    if reached is None:
        return CostToTarget.model_validate({**dict.fromkeys(CostToTarget.model_fields), "target": target})
    until = [record for record in records if record.round <= reached]
    share = reached / len(rounds)
    return CostToTarget(
        target=target,
        rounds=reached,
        scalars=_scalars(rounds) * share,
        bytes=_bytes(rounds) * share,
        flops=_flops_of_one(rounds) * share,
        spent_scalars=_scalars(until),
        spent_bytes=_bytes(until),
        spent_flops=_flops_of_one(until),
    )


def _scalars(records: Iterable[RoundRecord]) -> int:
    return sum(record.scalars_up + record.scalars_down for record in records)


def _bytes(records: Iterable[RoundRecord]) -> int:
    return sum(record.bytes_up + record.bytes_down for record in records)


def _flops_of_one(records: Iterable[RoundRecord]) -> float:
    """Of one participant in each round."""
    return sum(record.client_flops / len(record.cohort) for record in records if record.cohort)
