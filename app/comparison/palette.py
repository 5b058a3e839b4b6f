"""One colour and one dash pattern for each method: the table that the pages and the printed figures share."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PALETTE = Path(__file__).resolve().parents[2] / "static" / "palette.json"


@dataclass(frozen=True)
class Style:
    """How a line looks on white paper; an empty dash is a solid line, lengths are in pixels."""

    colour: str
    dash: tuple[int, ...]


@cache
def palette() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PALETTE.read_text(encoding="utf-8"))
    return found


def method_title(method: str) -> str:
    """The name as the paper writes it; an unknown id is shown as it is."""
    known = palette()["methods"].get(method)
    return method if known is None else str(known["title"])


def method_style(method: str, variant: int = 0) -> Style:
    """`variant` counts groups of one method with other settings: they keep its colour and change the dash."""
    table = palette()
    place = table["methods"].get(method, {"family": "homogeneous", "tone": 0, "dash": 0})
    dashes = table["dashes"]
    return Style(
        table["families"][place["family"]]["light"][place["tone"]],
        tuple(dashes[(place["dash"] + variant) % len(dashes)]),
    )
