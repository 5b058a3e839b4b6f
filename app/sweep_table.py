"""A sweep's table as a file: CSV for programs, Markdown for notes, LaTeX (booktabs) for papers."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.comparison.groups import METHOD, field_title, shown
from app.comparison.palette import method_title
from app.tex import tex
from app.views.choices import Choices, Pick, Spread, spread
from app.views.sweeps import SweepView
from engine.records import NO_CONVERGENCE, CostToTarget

FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "tex": "application/x-tex; charset=utf-8",
}


@dataclass(frozen=True)
class Measure:
    """One column of numbers."""

    name: str
    """For programs."""
    title: str
    """For people, with the unit."""
    values: tuple[Spread | None, ...]
    scale: float = 1.0
    digits: int = 2
    larger_is_better: bool = True
    judged: bool = True
    """Whether methods are ranked by it: of best and final accuracy only the one that the protocol names."""
    marks: tuple[str, ...] = ()
    """Behind the number of each row, where there are any."""

    def text(self, row: int) -> str:
        """`77.30 ± 0.21`; one seed has no deviation."""
        found = self.values[row]
        if found is None:
            return "–"
        mean = f"{found.mean * self.scale:.{self.digits}f}"
        number = mean if found.std is None else f"{mean} ± {found.std * self.scale:.{self.digits}f}"
        return number + (self.marks[row] if self.marks else "")

    def best(self, conditions: Sequence[str | None]) -> frozenset[int]:
        """The best rows under equal conditions by the printed mean, so that equal texts are treated alike."""
        if not self.judged:
            return frozenset()
        rivals: dict[str, dict[int, float]] = {}
        for row, (found, shared) in enumerate(zip(self.values, conditions, strict=True)):
            if found is not None and shared is not None:
                rivals.setdefault(shared, {})[row] = round(found.mean * self.scale, self.digits)
        pick = max if self.larger_is_better else min
        return frozenset(
            row
            for means in rivals.values()
            if len(means) > 1
            for row, mean in means.items()
            if mean == pick(means.values())
        )


@dataclass(frozen=True)
class SweepTable:
    """Rows are cells; the first columns are the swept values."""

    paths: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    """Finished seeds of each row."""
    conditions: tuple[str | None, ...]
    """Rows under equal conditions can be ranked; None: this row cannot."""
    measures: tuple[Measure, ...]
    not_converged: tuple[int, ...] = ()
    """How many of the finished seeds of each row did not converge."""

    @property
    def note(self) -> str | None:
        """What the mark means, where there is one."""
        return f"† {NO_CONVERGENCE}." if any(self.not_converged) else None

    def as_csv(self) -> str:
        """Numbers in full: accuracies are fractions, a column each for mean and deviation."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        pairs = [f"{measure.name}_{part}" for measure in self.measures for part in ("mean", "std")]
        writer.writerow([*self.paths, "seeds", "no_convergence", *pairs])
        for number, row in enumerate(self.rows):
            numbers: list[Any] = []
            for measure in self.measures:
                found = measure.values[number]
                numbers += ["", ""] if found is None else [found.mean, "" if found.std is None else found.std]
            counts = [self.seeds[number], self.not_converged[number]]
            writer.writerow([*(_harmless(_plain(row.get(path))) for path in self.paths), *counts, *numbers])
        return out.getvalue()

    def as_markdown(self) -> str:
        return _markdown(self._lines(_escaped, "**{}**"), self._columns, self.note)

    def as_latex(self) -> str:
        return _latex(self._lines(tex, "\\textbf{{{}}}"), self._columns, self.note)

    @property
    def _columns(self) -> str:
        return "l" * len(self.paths) + "r" * (1 + len(self.measures))

    def _lines(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        heads = (*map(_head, self.paths), "Seeds", *(measure.title for measure in self.measures))
        lines = [[escape(text) for text in heads]]
        best = [measure.best(self.conditions) for measure in self.measures]
        for number, row in enumerate(self.rows):
            cells = [escape(_shown(path, row[path]) if path in row else "–") for path in self.paths]
            numbers = [escape(measure.text(number)) for measure in self.measures]
            marked = [bold.format(text) if number in top else text for text, top in zip(numbers, best, strict=True)]
            lines.append([*cells, str(self.seeds[number]), *marked])
        return lines


@dataclass(frozen=True)
class ChoiceTable:
    """Rows are groups of cells: the setting chosen on validation with its test accuracy, and the one chosen on test."""

    choices: Choices

    def as_csv(self) -> str:
        """A column for each field chosen over, twice; accuracies are fractions."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        paths, over = self.choices.paths, self.choices.over
        writer.writerow(
            [*paths, "cells", "finished"]
            + [f"on_validation.{name}" for name in (*over, "validation_mean", "validation_std", *_ACCURACY)]
            + ["why_not"]
            + [f"on_test.{name}" for name in (*over, *_ACCURACY)]
        )
        for group in self.choices.groups:
            picked, validation = group.on_validation, group.validation
            writer.writerow(
                [
                    *(_harmless(_plain(group.values.get(path))) for path in paths),
                    *(group.cells, group.finished),
                    *self._values(picked),
                    *_numbers(validation)[:2],
                    *_numbers(None if picked is None else picked.accuracy),
                    _harmless(group.why_not),
                    *self._values(group.on_test),
                    *_numbers(group.on_test.accuracy),
                ]
            )
        return out.getvalue()

    def as_markdown(self) -> str:
        return _markdown(self._lines(_escaped), self._columns)

    def as_latex(self) -> str:
        return _latex(self._lines(tex), self._columns)

    @property
    def _columns(self) -> str:
        return "l" * len(self.choices.paths) + "rlrrlr"

    def _values(self, pick: Pick | None) -> list[Any]:
        return [_harmless(_plain(pick.values.get(path))) if pick else None for path in self.choices.over]

    def _lines(self, escape: Callable[[str], str]) -> list[list[str]]:
        heads = [*map(_head, self.choices.paths), "Finished"]
        heads += ["Chosen on validation", "Validation (%)", "Test (%)", "Chosen on test", "Test (%)"]
        lines = [heads]
        for group in self.choices.groups:
            picked = group.on_validation
            lines.append(
                [
                    *(_shown(path, group.values[path]) if path in group.values else "–" for path in self.choices.paths),
                    f"{group.finished} of {group.cells}",
                    f"– ({group.why_not})" if picked is None else setting(picked.values),
                    _percent(group.validation),
                    _percent(None if picked is None else picked.accuracy),
                    setting(group.on_test.values),
                    _percent(group.on_test.accuracy),
                ]
            )
        return [[escape(text) for text in line] for line in lines]


_ACCURACY = ("accuracy_mean", "accuracy_std", "seeds")


def setting(values: Mapping[str, Any]) -> str:
    """What was chosen in words: `lr 0.01, epochs 5`; of a method its parameters, as its name stands beside."""
    told: list[tuple[str, Any]] = []
    for path, value in values.items():
        inner = value.items() if isinstance(value, dict) else [(path, value)]
        told += [(name, part) for name, part in inner if name != "name"]
    return ", ".join(f"{field_title(path)} {shown(part)}" for path, part in told) or "–"


def _numbers(found: Spread | None) -> list[Any]:
    return [None] * 3 if found is None else [found.mean, found.std, found.seeds]


def _percent(found: Spread | None) -> str:
    return Measure("", "", (found,), 100).text(0)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown(lines: Sequence[Sequence[str]], columns: str, note: str | None = None) -> str:
    """`columns` as LaTeX says it: l and r; the note stands below the table."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in lines)
    rule = "|".join("---:" if column == "r" else "---" for column in columns)
    return "\n".join([head, f"|{rule}|", *body, *(["", note] if note else [])]) + "\n"


def _latex(lines: Sequence[Sequence[str]], columns: str, note: str | None = None) -> str:
    below = [f"\\par\\smallskip{{\\footnotesize {tex(note)}}}"] if note else []
    head, *body = (f"  {' & '.join(cells)} \\\\" for cells in lines)
    return "\n".join(
        [f"\\begin{{tabular}}{{{columns}}}", "  \\toprule", head, "  \\midrule", *body, "  \\bottomrule",
         "\\end{tabular}", *below, ""]
    )  # fmt: skip


def make_table(view: SweepView, costs: Mapping[str, CostToTarget] | None = None) -> SweepTable:
    """Mean ± deviation over the finished seeds; `costs` by experiment adds what it took to reach the target."""
    rules = {cell.headline_rule for cell in view.cells}
    best, final = (tuple(getattr(cell, name) for cell in view.cells) for name in ("best", "final"))
    not_converged = tuple(sum(run.no_convergence for run in cell.runs) for cell in view.cells)
    seeds = tuple(0 if cell.best is None else cell.best.seeds for cell in view.cells)
    marks = tuple(map(convergence_mark, not_converged, seeds))
    marked = {
        rule: tuple(mark if cell.headline_rule == rule else "" for cell, mark in zip(view.cells, marks, strict=True))
        for rule in ("best", "final")
    }
    measures = [
        Measure("best_accuracy", "Best (%)", best, 100, judged=rules == {"best"}, marks=marked["best"]),
        Measure("final_accuracy", "Final (%)", final, 100, judged=rules == {"final"}, marks=marked["final"]),
    ]
    if costs is not None and (wanted := target_of(view.document)) is not None:
        target = f"{100 * wanted:.6g} %"
        for name, title, scale, digits in (
            ("rounds", f"Rounds to {target}", 1.0, 1),
            ("bytes", f"MB to {target}", 1e-6, 1),
            ("flops", f"TFLOP to {target}", 1e-12, 2),
            ("spent_bytes", f"MB spent to {target}", 1e-6, 1),
            ("spent_flops", f"TFLOP spent to {target}", 1e-12, 2),
        ):
            values = tuple(
                _all_or_none([getattr(costs[run.experiment], name) for run in cell.runs if run.experiment in costs])
                for cell in view.cells
            )
            measures.append(Measure(f"{name}_to_target", title, values, scale, digits, larger_is_better=False))
    return SweepTable(
        paths=tuple(view.paths),
        rows=tuple(cell.values for cell in view.cells),
        seeds=seeds,
        conditions=tuple(cell.conditions if view.comparable else None for cell in view.cells),
        measures=tuple(measures),
        not_converged=not_converged,
    )


def convergence_mark(some: int, seeds: int) -> str:
    """Behind an accuracy: nothing, a mark, or a mark with how many of the seeds it is about."""
    if some == 0:
        return ""
    return " †" if some == seeds else f" † ({some} of {seeds})"


def target_of(document: Mapping[str, Any]) -> float | None:
    """The accuracy for costs to a target, where the document names one."""
    target: float | None = (document.get("report") or {}).get("target")
    return target


def _all_or_none(values: Sequence[float | None]) -> Spread | None:
    """A mean over the seeds that happened to reach the target would flatter: all of them, or no number."""
    return None if any(value is None for value in values) else spread(values)


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _head(path: str) -> str:
    """Sentence case; a symbol such as lr or mu stays as it is."""
    title = field_title(path)
    return title if len(title) < 4 else title[0].upper() + title[1:]


def _shown(path: str, value: Any) -> str:
    """An object by its name, and its other fields in brackets; a method by its title."""
    if isinstance(value, dict) and "name" in value:
        rest = ", ".join(f"{field_title(key)} {shown(inner)}" for key, inner in value.items() if key != "name")
        name = _shown(f"{path}.name", value["name"])
        return f"{name} ({rest})" if rest else name
    return method_title(value) if path == METHOD and isinstance(value, str) else shown(value)


def _harmless(value: Any) -> Any:
    """A spreadsheet would run a text that starts with one of these letters as a formula."""
    return f"'{value}" if isinstance(value, str) and re.match(r"[=+\-@\t\r]", value) else value
