"""Methods are told apart by colour and dash, by readers with any colour vision."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from app.comparison.palette import PALETTE, method_style, method_title, palette
from engine.methods import REGISTRY

KEY = ("pfedafm", "pfedes", "fedarc", "compfl", "standalone", "fedavg")
SURFACES = {"light": "#ffffff", "dark": "#181b20"}
SIGHT = {
    # linear RGB as seen with a kind of colour blindness in full strength (Machado, Oliveira and Fernandes 2009)
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
CONES = [[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.6299787]]
OKLAB = [
    [0.21045426, 0.79361779, -0.00407205],
    [1.9779985, -2.42859221, 0.45059371],
    [0.02590404, 0.78277177, -0.80867577],
]
CLEAR = 0.095
"""Distance in OKLab, where 0.02 is just noticeable; the old brown and ochre were 0.026 apart with deuteranopia."""


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def distance(one: str, other: str, sight: str) -> float:
    seen = [np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1) for colour in (one, other)]
    first, second = (np.array(OKLAB) @ np.cbrt(np.array(CONES) @ light) for light in seen)
    return float(np.linalg.norm(first - second))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def colour(method: str, theme: str) -> str:
    place = palette()["methods"][method]
    return str(palette()["families"][place["family"]][theme][place["tone"]])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", SURFACES)
def test_the_proposed_methods_and_the_two_plain_ones_are_clearly_apart(theme: str, sight: str) -> None:
    near = {
        (one, other): round(distance(colour(one, theme), colour(other, theme), sight), 3)
        for one, other in combinations(KEY, 2)
    }
    assert {pair: far for pair, far in near.items() if far < CLEAR} == {}


def test_they_also_differ_in_their_dash() -> None:
    assert len({method_style(method).dash for method in KEY}) == len(KEY)


def test_every_method_has_a_colour_of_its_own_under_the_name_and_the_family_of_its_header() -> None:
    known = {key: (item.method.title, item.method.family) for key, item in REGISTRY.items()}
    table = palette()["methods"]
    assert {key: (place["title"], place["family"]) for key, place in table.items()} == known
    assert json.loads(PALETTE.read_text(encoding="utf-8"))["methods"].keys() == known.keys()


def test_a_method_without_a_row_in_the_table_has_a_colour_of_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = json.loads(PALETTE.read_text(encoding="utf-8"))
    del table["methods"]["ditto"]
    (tmp_path / "palette.json").write_text(json.dumps(table))
    before = method_style("fedavg")
    monkeypatch.setattr("app.comparison.palette.PALETTE", tmp_path / "palette.json")
    palette.cache_clear()
    try:
        assert method_title("ditto") == "Ditto"
        assert method_style("ditto").colour in table["families"]["homogeneous"]["light"]
        assert method_style("ditto") == method_style("ditto")
        assert method_style("fedavg") == before
    finally:
        palette.cache_clear()


def test_every_tone_can_colour_text_in_its_theme() -> None:
    weak = [
        (family, theme, tone)
        for family, tones in palette()["families"].items()
        for theme, surface in SURFACES.items()
        for tone in tones[theme]
        if contrast(tone, surface) < 4.5
    ]
    assert weak == []


def test_no_two_methods_look_alike() -> None:
    looks = [method_style(method) for method in palette()["methods"]]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("theme", SURFACES)
def test_no_two_methods_share_a_colour_and_those_with_one_dash_are_further_apart(theme: str) -> None:
    """Boxes, bars and bubbles have no dash."""
    table = palette()["methods"]
    near = {
        (one, other): round(distance(colour(one, theme), colour(other, theme), "normal"), 3)
        for one, other in combinations(REGISTRY, 2)
    }
    limit = {pair: 0.075 if table[pair[0]]["dash"] == table[pair[1]]["dash"] else 0.045 for pair in near}
    assert {pair: far for pair, far in near.items() if far < limit[pair]} == {}


def test_a_variant_of_a_method_keeps_its_colour_and_changes_its_dash() -> None:
    plain, variant = method_style("fedavg"), method_style("fedavg", 1)
    assert plain.colour == variant.colour
    assert plain.dash != variant.dash


def test_more_variants_than_dashes_still_differ_in_their_dash() -> None:
    assert len({method_style("fedrep", variant).dash for variant in range(20)}) == 20


def test_a_method_from_elsewhere_is_shown_by_its_id() -> None:
    assert method_title("my-own") == "my-own"
