"""Sweeps in the browser: write one with a dry run, queue it, see its table fill, repeat what was cancelled."""

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from app.store.database import Database
from engine.spec.experiment import ExperimentSpec
from tests.browser.axe import violations
from tests.browser.conftest import OpenPage
from tests.browser.filled import put, run
from tests.browser.product import SMALL, Product, eventually
from tests.services import record

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

DOCUMENT: dict[str, Any] = {
    "name": "<b>two</b> methods",
    "base": {key: value for key, value in SMALL.items() if key != "seed"} | {"rounds": 3},
    "grid": {"algorithm": [{"name": "fedprox", "mu": 0.25}, {"name": "standalone"}]},
    "seeds": [142, 143],
}


def write(page: "Page", document: dict[str, object]) -> None:
    page.locator("#document").fill(yaml.safe_dump(document, sort_keys=False))


def test_a_sweep_is_written_checked_queued_and_seen_to_the_end(product: Product, open_page: OpenPage) -> None:
    page = open_page("/sweeps/new", ignore=("422",))
    button, problems = page.locator("#queue-it"), page.locator("#problems li")
    write(page, {**DOCUMENT, "grid": {"training.lr": [0.1, -1]}})
    problems.first.wait_for()
    assert "training.lr" in problems.first.inner_text()
    assert "(in lr -1 and 1 more)" in problems.first.inner_text()
    assert button.is_disabled()
    write(page, {**DOCUMENT, "topology": 1})
    page.locator('#problems li[data-field="topology"]').wait_for()

    write(page, DOCUMENT)
    page.locator("#queue-it:not([disabled])").wait_for()
    assert problems.count() == 0
    assert re.match(r"Queue 4 experiments( \((about|roughly) .*\))?$", button.inner_text())
    assert page.locator("#dry-run").inner_text().split()[:2] == ["Settings", "2"]
    button.click()

    page.wait_for_url(re.compile(r"/sweeps/[0-9A-Z]{26}$"))
    key = page.url.rsplit("/", 1)[1]
    assert page.locator("h1").inner_text() == "<b>two</b> methods"
    assert page.locator("#cells .seed").count() == 4
    assert page.locator("#cells thead th").first.inner_text() == "Method"
    eventually(lambda: product.get(f"/api/sweeps/{key}")["counts"] == {"finished": 4}, "the sweep's end")
    page.locator('#state .chip[data-state="finished"]').wait_for()
    view = product.get(f"/api/sweeps/{key}")
    shown = page.locator("#cells tbody tr").all_inner_texts()
    for text, cell in zip(shown, view["cells"], strict=True):
        assert f"{100 * cell['best']['mean']:.2f} ± {100 * cell['best']['std']:.2f}" in text
    best = max(view["cells"], key=lambda cell: cell["best"]["mean"])
    assert f"{100 * best['best']['mean']:.2f}" in page.locator("#cells td.best").first.inner_text()
    assert page.locator("#compare").get_attribute("href") == "/compare?ids=" + ",".join(
        run["experiment"] for cell in view["cells"] for run in cell["runs"]
    )
    assert "mu: 0.25" in (page.locator("pre#document").text_content() or "")

    rows = open_page("/sweeps").locator("#sweeps tbody tr")
    assert "4 / 4" in rows.first.inner_text()


def test_the_price_of_a_sweep_tells_bytes_and_flops(product: Product, open_page: OpenPage) -> None:
    text = yaml.safe_dump({**DOCUMENT, "seeds": [181]}, sort_keys=False)  # a sweep that ran already would cost nothing
    answer = product.client.post(
        "/api/sweeps/check?rehearse=true", content=text, headers={"content-type": "application/yaml"}
    )
    cost = answer.json()["cost"]
    assert cost["unknown_flops"] == 0
    page = open_page("/sweeps/new")
    shown = page.evaluate(
        "async ([bytes, flops]) => (await import('/static/js/units.js')).formatBytes(bytes) + ' · ' +"
        " (await import('/static/js/units.js')).formatFlops(flops)",
        [cost["bytes"], cost["flops"]],
    )
    sent, computed = shown.split(" · ")
    assert computed.endswith("FLOP")
    page.locator("#document").fill(text)
    for title, value in (("Communication", sent), ("Computation", computed)):
        page.locator("#dry-run > div", has_text=title).get_by_text(value, exact=True).wait_for()
    page.goto("/new")
    page.locator("#spec").fill(text)
    page.locator(".strip-figures > div", has_text="Total").get_by_text(shown, exact=True).wait_for()


def test_text_that_cannot_be_read_marks_its_line_and_says_nothing_of_the_one_before(open_page: OpenPage) -> None:
    page = open_page("/sweeps/new", ignore=("422",))
    page.wait_for_selector('#verdict[data-state="good"]')
    assert page.locator("#dry-run dd").first.inner_text() != "–"
    page.locator("#document").fill("base:\n  rounds: 3\n  algorithm: {name: fedavg\n  seed: 1\n")
    problem = page.locator("#problems li")
    problem.first.wait_for()
    assert "a comma or the closing } is missing; it was opened in line 3" in problem.inner_text()
    assert "<" not in problem.inner_text()
    assert page.locator("#lines .bad").inner_text() == "4"
    assert set(page.locator("#dry-run dd").all_inner_texts()) == {"–"}
    problem.get_by_role("button", name="Go to line 4").click()
    chosen = page.locator("#document").evaluate("a => a.value.slice(a.selectionStart, a.selectionEnd)")
    assert chosen == "  seed: 1"


def test_cancelled_experiments_are_repeated_from_the_page(product: Product, open_page: OpenPage) -> None:
    answer = product.client.post(
        "/api/sweeps", json={**DOCUMENT, "seeds": [151, 152], "start_after": "2099-01-01T00:00:00Z"}
    )
    key = answer.json()["id"]
    page = open_page(f"/sweeps/{key}")
    page.get_by_role("button", name="Cancel 4 experiments").click()
    page.locator('#state .chip[data-state="cancelled"]').wait_for()
    page.locator("#cells tbody tr").first.get_by_role("button", name="Retry 2").click()
    page.locator('#cells tbody tr:first-child .seed:not([data-state="cancelled"])').first.wait_for()
    page.get_by_role("button", name="Retry 2 experiments").wait_for()
    counts = product.get(f"/api/sweeps/{key}")["counts"]
    assert (counts["cancelled"], sum(counts.values())) == (2, 4)
    product.client.post(f"/api/sweeps/{key}/cancel", json={})


def test_the_settings_chosen_on_validation_and_on_test_stand_side_by_side(
    product: Product, store: Database, open_page: OpenPage
) -> None:
    base = {**SMALL, "rounds": 2, "partition": {"name": "iid", "split": "80-10-10"}}
    for lr, test, validation in ((0.1, 0.5, 0.75), (0.2, 0.625, 0.25)):
        history = [record(0, None), *(record(number, test, validation_accuracy=validation) for number in (1, 2))]
        put(store, history, **{**base, "training": {**SMALL["training"], "lr": lr}, "seed": 181})
    document = {
        "base": {key: value for key, value in base.items() if key != "seed"},
        "grid": {"algorithm.name": [SMALL["algorithm"]["name"]], "training.lr": [0.1, 0.2]},
        "seeds": [181],
        "report": {"choose": {"over": ["training.lr"]}},
    }
    key = product.client.post("/api/sweeps", json=document).json()["id"]
    page = open_page(f"/sweeps/{key}")
    heads = page.locator("#choices thead th").all_inner_texts()
    assert heads[1:] == ["Finished", "Chosen on validation", "Validation (%)", "Test (%)", "Chosen on test", "Test (%)"]
    row = page.locator("#choices tbody tr").locator("th, td").all_inner_texts()
    assert row[1:] == ["2 of 2", "lr 0.1", "75.00", "50.00", "lr 0.2", "62.50"]
    with page.expect_download() as told:
        page.locator("#choices-panel").get_by_role("link", name="CSV").click()
    assert told.value.suggested_filename == f"sweep-{key}-choices.csv"
    assert violations(page) == []


LATER = "2099-01-01T00:00:00Z"


def test_the_time_left_says_what_it_leaves_out(product: Product, store: Database, open_page: OpenPage) -> None:
    put(store, **{**SMALL, "rounds": 3, "seed": 160})
    grid = {"algorithm.name": ["fedavg", "fedapen"]}
    document = {**DOCUMENT, "grid": grid, "seeds": [161, 162], "start_after": LATER}
    key = product.client.post("/api/sweeps", json=document).json()["id"]
    left = product.get(f"/api/sweeps/{key}")["time_left"]
    assert (left["unknown"], left["seconds"] is None) == (2, False)
    page = open_page(f"/sweeps/{key}")
    assert page.inner_text('[data-figure="left"] .figure-detail') == "excludes 2 runs without an estimate"
    product.client.post(f"/api/sweeps/{key}/cancel", json={})


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_a_sweep_and_their_list(
    product: Product, open_page: OpenPage, scheme: str, width: int
) -> None:
    answer = product.client.post("/api/sweeps", json={**DOCUMENT, "seeds": [171], "start_after": LATER})
    key = answer.json()["id"]
    page = open_page("/healthz", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for path in (f"/sweeps/{key}", "/sweeps"):
        page.goto(path)
        assert violations(page) == [], path
    product.client.post(f"/api/sweeps/{key}/cancel", json={})


def test_under_protocol_c_a_sweep_and_the_overview_follow_the_final_round_and_mark_what_did_not_converge(
    product: Product, store: Database, open_page: OpenPage
) -> None:
    base = {**DOCUMENT["base"], "rounds": 2, "evaluation": {"protocol": "C"}}
    for name, seed, share in (("fedavg", 171, 0.5), ("fedavg", 172, 0.1), ("fedper", 171, 0.5), ("fedper", 172, 0.5)):
        spec = {**base, "algorithm": {"name": name}, "seed": seed}
        history = run(ExperimentSpec.parse(spec).canonical())
        levels = [r.model_copy(update={"accuracy": a}) for r, a in zip(history, (None, 0.9, 0.5), strict=True)]
        put(store, levels, majority_share=share, **spec)
    grid = {"algorithm.name": ["fedavg", "fedper"]}
    key = product.client.post("/api/sweeps", json={"base": base, "grid": grid, "seeds": [171, 172]}).json()["id"]
    page = open_page(f"/sweeps/{key}")
    final = page.locator("#cells tbody td:nth-child(4)").all_inner_texts()
    assert [text.strip() for text in final] == ["50.00 ± 0.00 † (1 of 2)", "50.00 ± 0.00 †"]
    assert page.locator("#cells .seed").first.get_attribute("title") == (
        "Seed 171: finished, round 2 of 2, final 50.0 %, no convergence, reused"
    )
    assert page.inner_text("#no-convergence").startswith("† no convergence: ")
    page.goto("/")
    accuracies = page.locator("#finished tbody td:nth-child(4)").all_inner_texts()
    assert accuracies[:4] == ["50.0 †", "50.0 †", "50.0", "50.0 †"]
    assert page.inner_text("#no-convergence").startswith("† no convergence: ")
