"""One colour and one dash pattern for each method: the table that the pages and the printed figures share."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PALETTE = Path(__file__).with_name("palette.json")

FAMILY_TITLES = {
    "proposed": "Proposed",
    "distillation": "Knowledge distillation",
    "split": "Model split",
    "mutual": "Mutual learning",
    "homogeneous": "Model-homogeneous",
    "standalone": "Standalone",
}

LONG, DOT = (20, 4), (1, 4)
TONES = 4
"""So many tones has every family at least."""


@dataclass(frozen=True)
class Style:
    """How a line looks on white paper; an empty dash is a solid line, lengths are in pixels."""

    colour: str
    dash: tuple[int, ...]


@cache
def palette() -> dict[str, Any]:
    """The dashes, the families with their tones, and every method: its title, its family, its tone and its dash in it.

    Titles and families are those of the methods' headers; a method without a row in the table has a place by its name.
    """
    from engine import catalogue  # imports torch: a command that draws nothing must not wait for it

    found: dict[str, Any] = json.loads(PALETTE.read_text(encoding="utf-8"))
    dashes, rows = found["dashes"], found["methods"]
    return {
        "dashes": dashes,
        "families": {family: {"title": FAMILY_TITLES[family], **found["families"][family]} for family in FAMILY_TITLES},
        "methods": {
            method["id"]: {
                "title": method["title"],
                "family": method["family"],
                **(rows.get(method["id"]) or _place(method["id"], len(dashes))),
            }
            for method in catalogue.catalogue(None)["algorithms"]
        },
    }


def method_title(method: str) -> str:
    """The name as the paper writes it; an unknown id is shown as it is."""
    known = palette()["methods"].get(method)
    return method if known is None else str(known["title"])


def _place(method: str, dashes: int) -> dict[str, int]:
    """Where a method stands that is not listed: its name decides, by the same hash as in static/js/colours.js."""
    number = 2166136261
    for letter in method:
        number = (number ^ ord(letter)) * 16777619 % 2**32
    return {"tone": number % TONES, "dash": number % dashes}


def method_style(method: str, variant: int = 0) -> Style:
    """`variant` counts groups of one method with other settings: they keep its colour and change the dash.

    After one turn through all dashes a dot is added to each, after two turns two, as static/js/colours.js does.
    """
    table = palette()
    dashes = table["dashes"]
    place = table["methods"].get(method) or {"family": "homogeneous", **_place(method, len(dashes))}
    turns, dash = variant // len(dashes), dashes[(place["dash"] + variant) % len(dashes)]
    if turns:
        dash = [*(dash or LONG), *DOT * turns]
    return Style(table["families"][place["family"]]["light"][place["tone"]], tuple(dash))
