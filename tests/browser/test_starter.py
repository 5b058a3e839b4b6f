"""What a new user sees after `fedarena serve` in an empty folder: two curves that grow."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import watched_pages
from tests.browser.product import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_the_starter_comparison_grows_and_ends_with_what_rest_says(tmp_path: Path, browser: "Browser") -> None:
    with serve(tmp_path / "home") as product, watched_pages(browser, product) as open_page:
        starters = {item["spec"]["algorithm"]["name"]: item["id"] for item in product.experiments()}
        assert set(starters) == {"standalone", "fedavg"}
        rows = open_page("/").locator("#experiments tbody tr")
        assert {text.split("\t")[3].strip() for text in rows.all_inner_texts()} == {"Standalone", "FedAvg"}
        page = open_page(f"/compare?ids={','.join(starters.values())}")
        grown = "n => window.fedarena.charts.accuracy.data.length === 2 && "
        grown += "window.fedarena.charts.accuracy.data.every(line => line.y.length > n)"
        page.wait_for_function(grown, arg=1)
        rounds = product.get(f"/api/experiments/{starters['fedavg']}")["rounds"]
        page.wait_for_function(grown, arg=rounds - 1, timeout=10 * 60_000)
        shown = {line["label"]: line["y"] for line in page.evaluate("window.fedarena.charts.accuracy.data")}
        for label, method in (("FedAvg", "fedavg"), ("Standalone", "standalone")):
            product.wait(starters[method])
            assert shown[label] == [record["accuracy"] for record in product.rounds(starters[method])[1:]]
