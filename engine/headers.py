"""The header of a method's file as data: what it does, its equations, and how it deviates from the paper.

A header has a fixed form, which a test holds for every method: one sentence, the source, an indented block of
equations in the paper's letters with a word in front of each, and prose in which `Deviations` and `Readings` begin the
sentences that say so.
"""

import re
from dataclasses import dataclass
from inspect import cleandoc, getmodule

_COLUMNS = re.compile(r"\s{3,}")
_FORMULA = re.compile(r"\w\(|[=←]")
_TOPICS = re.compile(r"\b(Readings and deviations|Deviations?|Readings?): ")


@dataclass(frozen=True)
class Line:
    """One line of the equations. An empty label continues the line above."""

    label: str
    text: str
    remark: str


@dataclass(frozen=True)
class Header:
    """What the first lines of a method's file say."""

    purpose: str
    equations: tuple[Line, ...]
    notes: str
    deviations: str
    readings: str

    @property
    def inference(self) -> str:
        """The line that says what answers for a client."""
        return next((line.text for line in self.equations if line.label == "use"), "")


def header(subject: object) -> Header:
    """Of the module in which a class is written."""
    module = getmodule(subject)
    return parse((module.__doc__ if module else None) or "")


def parse(text: str) -> Header:
    """A module's docstring, taken apart."""
    blocks = re.split(r"\n\s*\n", cleandoc(text))
    purpose, *rest = blocks
    equations = [line for block in rest if block.startswith("    ") for line in _lines(block)]
    first = next((index for index, block in enumerate(rest) if block.startswith("    ")), 0)
    prose = " ".join(" ".join(block.split()) for block in rest[first:] if not block.startswith("    "))
    parts = _TOPICS.split(prose)
    topics = dict(zip(parts[1::2], parts[2::2], strict=True))
    deviations = [value for key, value in topics.items() if "eviation" in key]
    readings = [value for key, value in topics.items() if key.startswith("Reading") and "eviation" not in key]
    return Header(
        purpose=" ".join(purpose.split()),
        equations=tuple(equations),
        notes=parts[0].strip(),
        deviations=_sentence(" ".join(deviations)),
        readings=_sentence(" ".join(readings)),
    )


def _lines(block: str) -> list[Line]:
    rows = [row.rstrip() for row in block.splitlines()]
    starts = [len(row) - len(row.lstrip()) for row in rows]
    edge = min(starts)
    found = []
    for row, start in zip(rows, starts, strict=True):
        cells = _COLUMNS.split(row.strip())
        # a word in the left column is a label; a single cell at the edge is an equation of its own
        label = cells.pop(0) if start == edge and len(cells) > 1 else ""
        remark = cells.pop() if len(cells) > 1 and not _FORMULA.search(cells[-1]) else ""
        found.append(Line(label, "  ".join(cells), remark))
    return found


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]
