"""What a new user sees after `fedarena serve` in an empty folder: curves that grow."""

from pathlib import Path

import pytest

from app.starter import SPECS
from engine.methods import REGISTRY
from tests.browser.conftest import Pages
from tests.browser.product import serve

pytestmark = pytest.mark.browser

METHODS = [spec["algorithm"]["name"] for spec in SPECS]


def grow_as_rest_says(folder: Path, pages: Pages, waited_for: list[str], rounds: int) -> None:
    """All starters are listed; those waited for grow on the compare page, with the numbers of the store."""
    with serve(folder) as product, pages.watched(product) as open_page:
        starters = {item["spec"]["algorithm"]["name"]: item["id"] for item in product.experiments()}
        assert set(starters) == set(METHODS)
        titles = {REGISTRY[method].method.title for method in METHODS}
        page = open_page("/experiments")
        cells = page.locator('#experiments tbody [data-column="method"]')
        assert set(cells.all_inner_texts()) == titles
        page.goto(f"/compare?ids={','.join(starters[method] for method in waited_for)}")
        grown = f"n => window.fedarena.charts.accuracy.data.length === {len(waited_for)} && "
        grown += "window.fedarena.charts.accuracy.data.every(line => line.y.length >= n)"
        page.wait_for_function(grown, arg=1, timeout=10 * 60_000)
        page.wait_for_function(grown, arg=rounds, timeout=20 * 60_000)
        shown = {line["label"]: line["y"] for line in page.evaluate("window.fedarena.charts.accuracy.data")}
        for method in waited_for:
            line = shown[REGISTRY[method].method.title]
            assert line == [record["accuracy"] for record in product.rounds(starters[method])[1 : len(line) + 1]]


def test_the_first_starter_grows_as_rest_says(tmp_path: Path, pages: Pages) -> None:
    grow_as_rest_says(tmp_path / "home", pages, METHODS[:1], 3)


@pytest.mark.slow
def test_the_whole_starter_comparison_ends_with_what_rest_says(tmp_path: Path, pages: Pages) -> None:
    grow_as_rest_says(tmp_path / "home", pages, METHODS, SPECS[0]["rounds"])
