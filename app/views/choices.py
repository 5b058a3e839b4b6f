"""Hyperparameters chosen: of each group of a sweep's cells the best on validation and, beside it, the best on test."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from app.store.sound import sound_spec
from app.store.states import State
from app.store.tables import Experiment
from engine.records import HeadlineRule, has_validation, headline_rule

METHOD = "algorithm"
"""Chosen over as whole objects: those of one method are its settings, and methods are never chosen."""


class Spread(BaseModel):
    """Mean and standard deviation over the seeds that have finished."""

    mean: float
    std: float | None = Field(description="Of a sample; null with one seed")
    seeds: int


class Pick(BaseModel):
    """A cell that was chosen."""

    cell: int = Field(description="Its number in `cells`")
    values: dict[str, Any] = Field(description="The fields chosen over")
    accuracy: Spread = Field(description="Its test accuracy")


class Choice(BaseModel):
    """Cells that differ in nothing but the fields chosen over, and which of them is taken."""

    values: dict[str, Any] = Field(description="The other swept fields")
    cells: int = Field(description="How many can run")
    finished: int = Field(description="How many have finished with every seed; the others are not chosen from")
    headline_rule: HeadlineRule = Field(description="Which accuracies count: C final, A and B best")
    on_validation: Pick | None = Field(
        description="Highest mean validation accuracy; its test accuracy is that of the round that was best on "
        "validation (A, B) or of the final one (C)"
    )
    validation: Spread | None = Field(description="Validation accuracy of that cell")
    why_not: str | None = Field(description="Why nothing was chosen on validation")
    on_test: Pick = Field(description="Highest mean test accuracy, as papers report it")


class Choices(BaseModel):
    """What `report.choose` of the document asks for."""

    over: list[str] = Field(description="The fields chosen over")
    paths: list[str] = Field(description="The other swept fields; algorithm: by the method's name alone")
    groups: list[Choice] = Field(description="Of which at least one cell has finished")


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Spread(mean=statistics.fmean(known), std=std, seeds=len(known))


def choices(
    document: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], runs: Sequence[Sequence[Experiment]]
) -> Choices | None:
    """From the experiments of each cell; None where the document asks for no choice."""
    over = _over(document)
    if not over:
        return None
    groups: dict[str, list[_Candidate]] = {}
    shared: dict[str, dict[str, Any]] = {}
    for number, (values, rows) in enumerate(zip(cells, runs, strict=True)):
        if any(row.state is State.NOT_APPLICABLE for row in rows):
            continue
        rest = _shared(values, over)
        key = json.dumps(rest, sort_keys=True)
        shared[key] = rest
        own = {path: value for path, value in values.items() if path in over}
        groups.setdefault(key, []).append(_Candidate(number, own, rows))
    found = [choice for key, group in groups.items() if (choice := _choice(shared[key], group)) is not None]
    paths = dict.fromkeys(path for values in cells for path in _shared(values, over))
    return Choices(over=over, paths=list(paths), groups=found)


@dataclass(frozen=True)
class _Candidate:
    cell: int
    values: dict[str, Any]
    rows: Sequence[Experiment]

    @property
    def rule(self) -> HeadlineRule:
        return headline_rule(sound_spec(self.rows[0].spec))

    @property
    def finished(self) -> bool:
        """With every seed: those that happened to get through would flatter a setting with which others failed."""
        return bool(self.rows) and all(
            row.state is State.FINISHED and row.final_accuracy is not None for row in self.rows
        )

    @property
    def test(self) -> list[float | None]:
        return [row.final_accuracy if self.rule == "final" else row.best_accuracy for row in self.rows]

    @property
    def validation(self) -> list[float | None]:
        final = self.rule == "final"
        return [row.final_validation_accuracy if final else row.best_validation_accuracy for row in self.rows]

    @property
    def test_by_validation(self) -> list[float | None]:
        """Test accuracy of the round that was best on validation."""
        return [row.final_accuracy if self.rule == "final" else row.accuracy_at_best_validation for row in self.rows]

    def pick(self, accuracies: Iterable[float | None]) -> Pick:
        accuracy = spread(accuracies)
        assert accuracy is not None, "a finished cell has been tested"
        return Pick(cell=self.cell, values=self.values, accuracy=accuracy)


def _choice(values: dict[str, Any], group: Sequence[_Candidate]) -> Choice | None:
    finished = [candidate for candidate in group if candidate.finished]
    if not finished:
        return None
    on_test = max(finished, key=lambda candidate: _mean(candidate.test))  # of equals the first
    why_not = _why_not(finished)
    on_validation = None if why_not else max(finished, key=lambda candidate: _mean(candidate.validation))
    return Choice(
        values=values,
        cells=len(group),
        finished=len(finished),
        headline_rule=on_test.rule,
        on_validation=None if on_validation is None else on_validation.pick(on_validation.test_by_validation),
        validation=None if on_validation is None else spread(on_validation.validation),
        why_not=why_not,
        on_test=on_test.pick(on_test.test),
    )


def _why_not(finished: Sequence[_Candidate]) -> str | None:
    """A choice among those alone that happen to have a validation accuracy would be another choice."""
    for row in (row for candidate in finished for row in candidate.rows):
        spec = sound_spec(row.spec)
        if not has_validation(spec):
            partition = spec["partition"]
            name = "an imported partition" if partition["name"] == "imported" else f"the split {partition.get('split')}"
            return f"{name} has no validation part"
    if any(value is None for candidate in finished for value in candidate.validation):
        return "some runs have no validation accuracy: they are older than it, or no client has a validation sample"
    return None


def _mean(values: Iterable[float | None]) -> float:
    found = spread(values)
    assert found is not None, "a finished cell has been tested"
    return found.mean


def _shared(values: Mapping[str, Any], over: Sequence[str]) -> dict[str, Any]:
    """What a cell shares with its group: other fields as they are, of a method chosen over its name."""
    return {
        path: {"name": value.get("name")} if path == METHOD and path in over and isinstance(value, dict) else value
        for path, value in values.items()
        if path not in over or path == METHOD
    }


def _over(document: Mapping[str, Any]) -> list[str]:
    """As far as the stored document says it."""
    report = document.get("report")
    choose = report.get("choose") if isinstance(report, Mapping) else None
    over = choose.get("over") if isinstance(choose, Mapping) else None
    return [path for path in over if isinstance(path, str)] if isinstance(over, list) else []
