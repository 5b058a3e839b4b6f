"""Both themes, units and colours: what must hold on every page."""

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from app.comparison.palette import method_style
from tests.browser.conftest import OpenPage

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SURFACES = {"light": "#ffffff", "dark": "#181b20"}


def background(page: "Page") -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def styles(page: "Page") -> dict[str, dict[str, Any]]:
    script = "m => Object.fromEntries(m.allMethods().map(id => [id, m.methodStyle(id)]))"
    found: dict[str, dict[str, Any]] = page.evaluate(f"import('/static/js/colours.js').then({script})")
    return found


def test_the_theme_follows_the_system_and_the_switch(open_page: OpenPage) -> None:
    page = open_page("/experiments", color_scheme="light")
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.locator("#theme").click()
    assert background(page) == light
    page.reload()
    assert background(page) == light
    page.locator("#theme").click()
    assert background(page) == dark


def test_every_page_loads_in_both_themes_without_a_complaint(finished: dict[str, str], open_page: OpenPage) -> None:
    one = finished["fedavg-42"]
    for scheme in ("light", "dark"):
        page = open_page("/", color_scheme=scheme)
        for path in ("/experiments", f"/experiments/{one}", f"/compare?ids={','.join(finished.values())}", "/new"):
            page.goto(path)
            page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_page_fits_a_laptop_screen(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/")
    page.set_viewport_size({"width": 1024, "height": 700})
    for path in (
        "/",
        "/experiments",
        f"/experiments/{finished['fedavg-42']}",
        f"/compare?ids={finished['fedavg-42']}",
        "/new",
    ):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_every_method_colour_is_readable_in_both_themes(open_page: OpenPage) -> None:
    for method, style in styles(open_page("/experiments")).items():
        for theme, surface in SURFACES.items():
            assert contrast(style[theme], surface) >= 4.5, (method, theme)


def test_no_two_methods_look_alike(open_page: OpenPage) -> None:
    looks = styles(open_page("/experiments"))
    assert len(looks) >= 25
    for one, other in combinations(looks, 2):
        assert (looks[one]["light"], looks[one]["dash"]) != (looks[other]["light"], looks[other]["dash"]), (one, other)


NUMBERS = {
    "formatBytes(0)": "0 B",
    "formatBytes(999)": "999 B",
    "formatBytes(999600)": "1.00 MB",
    "formatBytes(1234567890)": "1.23 GB",
    "formatBytes(1073741824, 'IEC')": "1.00 GiB",
    "formatBytes(null)": "–",
    "formatFlops(3.4e12)": "3.40 TFLOP",
    "percent(0.7734)": "77.3 %",
    "duration(4.21)": "4.2 s",
    "duration(19200)": "5 h 20 min",
    "duration(86400)": "1 d",
    "meanStd(0.773, 0.0021, v => (100 * v).toFixed(2))": "77.30 ± 0.21",
    "ticks(0, 60, 6, true).join()": "0,10,20,30,40,50,60",
    "ticks(0, 3, 6, true).join()": "0,1,2,3",
}


def test_numbers_are_written_for_people(open_page: OpenPage) -> None:
    names = "formatBytes, formatFlops, percent, duration, meanStd, ticks"
    script = (
        f"async () => {{ const {{ {names} }} = await import('/static/js/units.js'); return [{','.join(NUMBERS)}]; }}"
    )
    assert dict(zip(NUMBERS, open_page("/experiments").evaluate(script), strict=True)) == NUMBERS


@pytest.mark.parametrize("method", ["fedavg", "my-own", "größer", "constructor"])
def test_a_line_looks_the_same_on_the_screen_and_in_a_printed_figure(open_page: OpenPage, method: str) -> None:
    page = open_page("/methods")
    shown = page.evaluate("id => import('/static/js/colours.js').then(m => m.methodStyle(id))", method)
    printed = method_style(method)
    assert (shown["light"], tuple(shown["dash"])) == (printed.colour, printed.dash)
