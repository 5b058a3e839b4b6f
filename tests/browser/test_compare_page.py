"""The comparison groups seeds by method, measures cost to a target, and can be exported."""

import csv
import io
import statistics
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.product import Product, small

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

METHODS = ("fedavg", "standalone")


def address(finished: dict[str, str], **more: str) -> str:
    return f"/compare?ids={','.join(finished.values())}" + "".join(f"&{key}={value}" for key, value in more.items())


def line(page: "Page", label: str, chart: str = "accuracy") -> dict[str, Any]:
    lines: list[dict[str, Any]] = page.evaluate("name => window.fedarena.charts[name].data", chart)
    return next(item for item in lines if item["label"] == label)


def test_seeds_of_a_method_become_one_line_with_a_band(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    page = open_page(address(finished))
    for method, label in zip(METHODS, ("FedAvg", "Standalone"), strict=True):
        runs = [product.rounds(finished[f"{method}-{seed}"])[1:] for seed in (42, 43)]
        pairs = [(a["accuracy"], b["accuracy"]) for a, b in zip(*runs, strict=True)]
        shown = line(page, label)
        assert shown["x"] == [record["round"] for record in runs[0]]
        assert shown["y"] == pytest.approx([statistics.mean(pair) for pair in pairs])
        spread = [high - mean for high, mean in zip(shown["high"], shown["y"], strict=True)]
        assert spread == pytest.approx([statistics.stdev(pair) for pair in pairs])


def test_the_axis_can_be_bytes_and_the_address_remembers_it(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    page = open_page(address(finished))
    page.get_by_label("Bytes", exact=True).check()
    assert "x=bytes" in page.url
    records = product.rounds(finished["fedavg-42"])
    total = 0
    sums = [total := total + record["bytes_up"] + record["bytes_down"] for record in records]
    assert line(page, "FedAvg")["x"] == sums[1:]
    page.reload()
    assert page.evaluate("window.fedarena.charts.accuracy.quantities[0]") == "bytes"


def test_a_target_gives_rounds_and_bytes_until_it_is_reached(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    runs = [product.rounds(finished[f"fedavg-{seed}"]) for seed in (42, 43)]
    target = min(max(record["accuracy"] for record in run[1:]) for run in runs) - 0.001
    expected = statistics.mean(
        next(record["round"] for record in run[1:] if record["accuracy"] >= target) for run in runs
    )
    page = open_page(address(finished))
    page.fill("#target", f"{100 * target:.4f}")
    assert page.evaluate("window.fedarena.charts.accuracy.target") == pytest.approx(target, abs=1e-6)
    row = page.locator("#table tbody tr", has_text="FedAvg").inner_text().split("\t")
    heads = page.locator("#table thead th").all_inner_texts()
    cell = row[heads.index("Rounds to target")]
    assert float(cell.split(" ")[0]) == pytest.approx(expected, abs=0.05)
    assert "target=" in page.url


def test_a_target_nobody_reaches_says_so(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(address({"one": finished["standalone-42"]}, target="100"))
    reached = page.evaluate("Math.max(...window.fedarena.charts.accuracy.data[0].y) >= 1")
    assert ("not reached" in page.inner_text("#table")) != reached


def test_the_chart_is_exported_as_csv_svg_and_png(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(address(finished))
    files = {}
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as waiting:
            page.locator("#accuracy").get_by_role("button", name=kind).click()
        assert waiting.value.suggested_filename == f"compare-accuracy-by-round.{kind.lower()}"
        files[kind] = waiting.value.path().read_bytes()
    rows = list(csv.reader(io.StringIO(files["CSV"].decode())))
    assert rows[0][:2] == ["round", "FedAvg"]
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(line(page, "FedAvg")["y"])
    assert files["SVG"].startswith(b"<svg")
    assert b"Accuracy (%)" in files["SVG"]
    assert files["PNG"].startswith(b"\x89PNG")


def test_the_table_is_copied_as_markdown_and_latex(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(address(finished))
    page.get_by_role("button", name="Copy Markdown").click()
    page.wait_for_function("() => document.querySelector('#table-markdown').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()").startswith("| Method | Seeds | Best accuracy (%) |")
    page.get_by_role("button", name="Copy LaTeX").click()
    page.wait_for_function("() => document.querySelector('#table-latex').textContent === 'Copied'")
    text = page.evaluate("navigator.clipboard.readText()")
    assert "\\toprule" in text
    assert "$\\pm$" in text


def test_like_with_like_is_told_from_an_unfair_comparison(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    page = open_page(address(finished))
    assert page.locator("#fair").is_visible()
    other = product.submit(small("other data", partition={"name": "iid"}, rounds=4))
    product.wait(other)
    page = open_page(address({"a": finished["standalone-42"], "b": other}))
    warning = page.inner_text("#unfair")
    assert "partition.name: pathological, iid" in warning
    assert "rounds: 8, 4" in warning
    assert "rounds" in page.inner_text("#differences")


def test_experiments_are_added_and_removed_in_place(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(f"/compare?ids={finished['fedavg-42']}")
    page.get_by_text("Add experiments", exact=True).click()
    page.fill("#add-search", "standalone-43")
    page.locator("#candidates .candidate", has_text="standalone-43").click()
    page.wait_for_function("() => window.fedarena.charts.accuracy.data.length === 2")
    assert finished["standalone-43"] in page.url
    page.get_by_role("button", name="Remove fedavg-42").click()
    assert [item["label"] for item in page.evaluate("window.fedarena.charts.accuracy.data")] == ["Standalone"]


def test_the_comparison_grows_live(product: Product, open_page: OpenPage) -> None:
    experiment = product.submit(small("compared live", rounds=30))
    page = open_page(f"/compare?ids={experiment}")
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0]?.y.length >= 30")
    product.wait(experiment)
    records = product.rounds(experiment)[1:]
    assert line(page, "FedAvg")["y"] == [record["accuracy"] for record in records]


def test_an_empty_comparison_tells_the_next_step(open_page: OpenPage) -> None:
    page = open_page("/compare")
    assert page.get_by_role("link", name="Choose experiments").is_visible()
