"""What a new user sees after `fedarena serve` in an empty folder: curves that grow."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.starter import SPECS
from engine.algorithms import REGISTRY
from tests.browser.conftest import watched_pages
from tests.browser.product import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

METHODS = [spec["algorithm"]["name"] for spec in SPECS]


def end_with_what_rest_says(folder: Path, browser: "Browser", waited_for: list[str]) -> None:
    """All starters are listed; those waited for grow on the compare page and end with the numbers of the store."""
    with serve(folder) as product, watched_pages(browser, product) as open_page:
        starters = {item["spec"]["algorithm"]["name"]: item["id"] for item in product.experiments()}
        assert set(starters) == set(METHODS)
        titles = {REGISTRY[method].method.title for method in METHODS}
        cells = open_page("/experiments").locator('#experiments tbody [data-column="method"]')
        assert set(cells.all_inner_texts()) == titles
        page = open_page(f"/compare?ids={','.join(starters[method] for method in waited_for)}")
        grown = f"n => window.fedarena.charts.accuracy.data.length === {len(waited_for)} && "
        grown += "window.fedarena.charts.accuracy.data.every(line => line.y.length > n)"
        page.wait_for_function(grown, arg=1, timeout=10 * 60_000)
        page.wait_for_function(grown, arg=SPECS[0]["rounds"] - 1, timeout=20 * 60_000)
        shown = {line["label"]: line["y"] for line in page.evaluate("window.fedarena.charts.accuracy.data")}
        for method in waited_for:
            product.wait(starters[method])
            label = REGISTRY[method].method.title
            assert shown[label] == [record["accuracy"] for record in product.rounds(starters[method])[1:]]


def test_the_first_starters_grow_and_end_with_what_rest_says(tmp_path: Path, browser: "Browser") -> None:
    end_with_what_rest_says(tmp_path / "home", browser, METHODS[:2])


@pytest.mark.slow
def test_the_whole_starter_comparison_ends_with_what_rest_says(tmp_path: Path, browser: "Browser") -> None:
    end_with_what_rest_says(tmp_path / "home", browser, METHODS)
