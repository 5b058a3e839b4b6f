"""The header of a method's file as data: what it does, its equations, and how it deviates from the paper.

A header has a fixed form, which a test holds for every method: one sentence after the method's title, the source, an
indented block of equations in the paper's letters with a word in front of each, and prose in which `Deviations` and
`Readings` begin the sentences that say so. The source reads `Authors: Paper. Venue year. https://…`; all but the paper
may be missing.
"""

import re
from dataclasses import dataclass
from inspect import cleandoc, getmodule

_COLUMNS = re.compile(r"\s{3,}")
_FORMULA = re.compile(r"\w\(|[=←]")
_TOPICS = re.compile(r"\b(Readings and deviations|Deviations?|Readings?): ")
_TITLE = re.compile(r"(?P<title>[^:]+?)(?: \([^)]*\))?: ")  # in brackets: what the name stands for
_PUBLISHED = re.compile(r"(?:(?P<venue>.+?)(?: \d{1,3})?,? )?(?P<year>\d{4})[.;]?")  # a journal's volume is left out
_LINK = re.compile(r"https?://\S+$")


@dataclass(frozen=True)
class Line:
    """One line of the equations. An empty label continues the line above."""

    label: str
    text: str
    remark: str


@dataclass(frozen=True)
class Source:
    """Where a method comes from."""

    paper: str
    authors: str = ""
    venue: str = ""
    year: int | None = None
    link: str = ""


@dataclass(frozen=True)
class Header:
    """What the first lines of a method's file say."""

    title: str
    purpose: str
    source: Source
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
    purpose, *rest = (block if block.startswith("    ") else " ".join(block.split()) for block in blocks)
    named = _TITLE.match(purpose)
    title = named["title"] if named else ""
    equations = [line for block in rest if block.startswith("    ") for line in _lines(block)]
    first = next((index for index, block in enumerate(rest) if block.startswith("    ")), 0)
    prose = " ".join(block for block in rest[first:] if not block.startswith("    "))
    parts = _TOPICS.split(prose)
    topics = dict(zip(parts[1::2], parts[2::2], strict=True))
    deviations = [value for key, value in topics.items() if "eviation" in key]
    readings = [value for key, value in topics.items() if key.startswith("Reading") and "eviation" not in key]
    return Header(
        title=title,
        purpose=purpose,
        source=_source(rest[0] if first else "", title),
        equations=tuple(equations),
        notes=parts[0].strip(),
        deviations=_sentence(" ".join(deviations)),
        readings=_sentence(" ".join(readings)),
    )


def _source(text: str, title: str) -> Source:
    """A paper whose authors are not named begins with the method's title."""
    link = _LINK.search(text)
    text = _LINK.sub("", text).strip()
    authors, colon, rest = text.partition(": ")
    if not colon or authors == title:
        authors, rest = "", text
    paper, _, published = rest.removesuffix(".").rpartition(". ")
    where = _PUBLISHED.match(published)
    if where is None:
        return Source(rest.removesuffix("."), authors, link=link[0] if link else "")
    return Source(paper, authors, where["venue"] or "", int(where["year"]), link[0] if link else "")


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
