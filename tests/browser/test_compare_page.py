"""The comparison groups seeds, measures cost and significance, says what is unfair, and can be exported."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import pytest

from app.config import Settings
from app.pages import routes
from app.store import lifecycle, rounds, steering
from app.store.claims import Claim
from app.store.database import Database
from app.tex import LETTERS, tex
from engine.records import RoundRecord, cost_to_target
from engine.spec.experiment import ExperimentSpec
from tests.browser.axe import violations
from tests.browser.conftest import OpenPage, Pages
from tests.browser.filled import SPEC, advance, put, run
from tests.browser.product import Product
from tests.services import serving, short_folder

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.browser

SEEDS = (42, 43)
METHODS = {"fedarc": "FedARC", "pfedes": "pFedES", "standalone": "Standalone", "fedavg": "FedAvg"}


@dataclass
class Filled:
    """A served store with finished experiments, by what they are for."""

    product: Product
    store: Database
    ids: dict[str, list[str]]

    def address(self, *names: str, **more: str) -> str:
        ids = ",".join(key for name in names for key in self.ids[name])
        return f"/compare?ids={ids}" + "".join(f"&{key}={value}" for key, value in more.items())

    def rounds(self, name: str, place: int = 0) -> list[RoundRecord]:
        with self.store.read() as session:
            return [RoundRecord(**item) for item in rounds.after(session, self.ids[name][place])]


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    with short_folder() as home:
        settings = Settings(home=home, starter=False)
        with serving(settings) as address:
            store = Database(settings.database)
            ids = {
                name: [put(store, algorithm={"name": name}, seed=seed, name=f"{name}-{seed}") for seed in SEEDS]
                for name in METHODS
            }
            for lr in (0.01, 0.02, 0.1):
                training = {**SPEC["training"], "lr": lr}
                ids[f"lr {lr}"] = [put(store, seed=seed, training=training) for seed in SEEDS]
            ids["other"] = [put(store, partition={"name": "iid"}, rounds=4)]
            long = [run(ExperimentSpec.parse({**SPEC, "rounds": 3, "clients": 2}).canonical())[-1]]
            history = [
                RoundRecord(**{**long[0].model_dump(), "round": n, "accuracy": 0.2 + 0.6 * (n / 900)})
                for n in range(901)
            ]
            ids["long"] = [put(store, history, rounds=900, seed=seed, clients=2) for seed in SEEDS]
            yield Filled(Product(address), store, ids)
            store.close()


@pytest.fixture
def open_page(pages: Pages, filled: Filled) -> Iterator[OpenPage]:
    with pages.watched(filled.product) as open_at:
        yield open_at


def line(page: "Page", label: str, chart: str = "accuracy") -> dict[str, Any]:
    lines: list[dict[str, Any]] = page.evaluate("name => window.fedarena.charts[name].data", chart)
    return next(item for item in lines if item["label"] == label)


def exported(page: "Page", where: str, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.locator(where).get_by_role("button", name=kind, exact=True).click()
    return waiting.value.path().read_bytes()


def sheet(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode())))


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        ([0.80], [0.70], ", from one seed"),
        ([0.80, 0.70], [0.74, 0.74], ", less than the spread over seeds"),
        ([0.80, 0.81], [0.70, 0.70], ""),
    ],
)
def test_a_lead_that_seeds_alone_could_make_says_so(
    filled: Filled, open_page: OpenPage, first: list[float], second: list[float], end: str
) -> None:
    ids = []
    for name, reached in (("fedarc", first), ("pfedes", second)):
        for seed, accuracy in enumerate(reached):
            spec = {**SPEC, "algorithm": {"name": name}, "seed": seed, "rounds": 1}
            opening, last = run(ExperimentSpec.parse(spec).canonical())
            ids.append(put(filled.store, [opening, last.model_copy(update={"accuracy": accuracy})], **spec))
    page = open_page(f"/compare?ids={','.join(ids)}")
    lead = 100 * (fmean(first) - fmean(second))
    assert f"{lead:.1f} points ahead of pFedES{end};" in page.inner_text("#verdict")
    assert page.locator('[data-figure="lead"] .figure-detail').inner_text() == f"ahead of pFedES{end}"


def cell(page: "Page", method: str, column: str) -> str:
    heads = page.locator("#table thead th").all_inner_texts()
    row: Locator = page.locator("#table tbody tr", has=page.get_by_text(method, exact=True))
    return row.locator("th, td").all_inner_texts()[heads.index(column)]


def test_seeds_become_a_line_with_a_band_over_any_axis_and_the_address_remembers_it(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page(filled.address(*METHODS))
    runs = [filled.rounds("fedavg", place)[1:] for place in (0, 1)]
    pairs = [(a.accuracy or 0, b.accuracy or 0) for a, b in zip(*runs, strict=True)]
    shown = line(page, "FedAvg")
    assert shown["x"] == [record.round for record in runs[0]]
    assert shown["y"] == pytest.approx([fmean(pair) for pair in pairs])
    spread = [high - mean for high, mean in zip(shown["high"], shown["y"], strict=True)]
    assert spread == pytest.approx([stdev(pair) for pair in pairs])
    assert "FedARC leads with" in page.inner_text("#verdict")
    assert page.locator('[data-figure="fair"]').inner_text().splitlines()[1] == "Comparable"
    page.get_by_label("Bytes", exact=True).check()
    page.get_by_label("log x").check()
    page.select_option("#smooth", "5")
    page.locator("#accuracy .end-label", has_text="pFedES").click()
    for label in ("FedAvg", "Standalone"):
        page.locator("#loss .end-label", has_text=label).click()
    page.reload()
    assert page.evaluate("window.fedarena.charts.accuracy.quantities[0]") == "bytes"
    assert page.evaluate("window.fedarena.charts.accuracy.log") == [True, False]
    assert len(page.evaluate("window.fedarena.charts.accuracy.hidden")) == 1
    assert len(page.evaluate("window.fedarena.charts.loss.hidden")) == 2
    total = sum(record.bytes_up + record.bytes_down for record in runs[0])
    shown = line(page, "FedAvg")
    assert shown["x"][-1] == total
    assert shown["y"][-1] == pytest.approx(fmean(fmean(pair) for pair in pairs[-5:]))
    level = line(page, "Standalone")
    assert level["x"] == [min(line(page, "pFedES")["x"]), total]
    assert level["y"][0] == level["y"][1]


def test_a_target_gives_the_cost_of_the_records_and_says_when_nobody_reaches_it(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page(filled.address("fedarc", "fedavg", target="80"))
    costs = [cost_to_target(filled.rounds("fedarc", place), 0.8) for place in (0, 1)]
    reached = [cost.rounds for cost in costs if cost.rounds is not None]
    assert len(reached) == 2
    assert cell(page, "FedARC", "Rounds to target").split(" ")[0] == f"{fmean(reached):g}"
    rows = sheet(exported(page, ".panel:has(#table)", "CSV"))
    arc = dict(zip(rows[0], next(row for row in rows if row[0] == "FedARC"), strict=True))
    assert float(arc["bytes_to_target_mean"]) == pytest.approx(fmean(cost.bytes or 0 for cost in costs))
    assert float(arc["flops_to_target_mean"]) == pytest.approx(fmean(cost.flops or 0 for cost in costs))
    assert float(arc["spent_bytes_to_target_mean"]) == fmean(cost.spent_bytes or 0 for cost in costs)
    assert float(arc["spent_flops_to_target_mean"]) == pytest.approx(fmean(cost.spent_flops or 0 for cost in costs))
    runs = [filled.rounds("fedarc", place) for place in (0, 1)]
    assert float(arc["best_accuracy_mean"]) == pytest.approx(fmean(max(r.accuracy or 0 for r in one) for one in runs))
    assert float(arc["seconds_mean"]) == pytest.approx(fmean(sum(r.seconds for r in one) for one in runs))
    page.fill("#target", "100")
    assert cell(page, "FedAvg", "Rounds to target") == "not reached"
    assert "target=100" in page.url


def reaching(filled: Filled, method: str, seed: int, level: float, rounds: int) -> str:
    """A run of one level of accuracy."""
    spec = {**SPEC, "algorithm": {"name": method}, "seed": seed, "rounds": rounds}
    history = run(ExperimentSpec.parse(spec).canonical())
    return put(filled.store, [r.model_copy(update={"accuracy": level if r.round else None}) for r in history], **spec)


@pytest.mark.parametrize(("level", "names"), [(0.7, "FedAvg"), (0.5, "Standalone")])
def test_who_sends_nothing_is_named_as_the_cheapest_only_where_nobody_else_reaches_the_target(
    filled: Filled, open_page: OpenPage, level: float, names: str
) -> None:
    runs = [reaching(filled, "fedavg", 1, level, 2), reaching(filled, "standalone", 1, 0.7, 2)]
    page = open_page(f"/compare?ids={','.join(runs)}&target=60")
    figure = page.locator('[data-figure="bytes"]')
    assert (figure.locator(".figure-value").inner_text() == "0 B") is (names == "Standalone")
    assert figure.locator(".figure-detail").inner_text() == f"{names}, least to 60.0 %"
    assert cell(page, "Standalone", "Communication to target") == "0 B"


def test_a_cost_to_the_target_says_that_it_is_the_papers_count_and_what_was_spent(
    filled: Filled, open_page: OpenPage
) -> None:
    runs = [reaching(filled, method, 1, 0.7, 2) for method in ("fedarc", "fedavg")]
    page = open_page(f"/compare?ids={','.join(runs)}&target=60&open=price")
    page.wait_for_function("() => window.fedarena.charts.price?.drawn()")
    assert "as the papers count" in page.inner_text("#price .chart-hint")
    head, *rows = page.evaluate("window.fedarena.charts.price.data()")
    assert head[4:] == ["bytes spent until then", "FLOPs spent until then"]
    assert all(row[4] > 0 for row in rows)
    spent = cell(page, "FedARC", "Bytes spent until then")
    detail = page.locator('[data-figure="bytes"] .figure-detail')
    least = detail.inner_text().partition(",")[0]
    assert f"as the papers count: the mean of all rounds times the rounds to the target; spent until then: {spent}" in (
        detail.get_attribute("title") or ""
    ), least
    page.fill("#target", "")
    page.wait_for_function("() => !document.querySelector('#price .chart-hint').textContent.includes('papers')")


def test_a_method_competes_for_the_target_with_all_its_seeds(filled: Filled, open_page: OpenPage) -> None:
    lucky = [reaching(filled, "pfedes", seed, level, 2) for seed, level in ((1, 0.7), (2, 0.5))]
    steady = [reaching(filled, method, seed, 0.7, 2) for method in ("fedarc", "fedavg") for seed in (1, 2)]
    page = open_page(f"/compare?ids={','.join(lucky + steady)}&target=60&open=price")
    assert cell(page, "pFedES", "Communication to target").endswith("(1 of 2 seeds)")
    bold = page.locator("#table tbody tr", has=page.locator("td.best")).locator("th").all_inner_texts()
    assert sorted(bold) == ["FedARC", "FedAvg"]
    assert page.locator('[data-figure="bytes"] .figure-detail').inner_text() == "FedARC, least to 60.0 %"
    page.wait_for_function("() => window.fedarena.charts.price?.drawn()")
    price = {row[0]: row[2] for row in page.evaluate("window.fedarena.charts.price.data()")[1:]}
    assert price["pFedES"] is None
    page.goto(f"/compare?ids={','.join(lucky)}&target=60")
    assert "with all seeds" in page.locator('[data-figure="bytes"] .figure-detail').inner_text()


def test_every_chart_and_table_is_exported(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address(*METHODS, open="boxes,wins,price"))
    drawn = "() => ['boxes', 'wins', 'scatter', 'price'].every(n => window.fedarena.charts[n]?.drawn())"
    # Chromium drops the eleventh download of a document within a second without a word
    for pair in (("#loss", "#wins"), ("#scatter", "#price"), ("#accuracy", "#boxes")):
        page.reload()
        page.wait_for_function(drawn)
        for where in pair:
            assert b"<svg" in exported(page, where, "SVG")[:200], where
            assert exported(page, where, "PNG").startswith(b"\x89PNG"), where
            assert len(sheet(exported(page, where, "CSV"))) > 2, where
    assert b"#a3680d" in exported(page, "#boxes", "SVG")
    rows = sheet(exported(page, "#accuracy", "CSV"))
    place = rows[0].index("FedAvg")
    assert [float(row[place]) for row in rows[1:]] == pytest.approx(line(page, "FedAvg")["y"])
    with page.expect_download() as waiting:
        page.get_by_role("link", name="PGF").click()
    assert "\\addlegendentry{FedARC}" in waiting.value.path().read_text()
    page.locator("#table-markdown").click()
    page.wait_for_function("() => document.querySelector('#table-markdown').textContent === 'Copied'")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("| Method | Seeds | Best accuracy (%) |")
    assert "| FedARC | 2 | **" in text
    page.locator("#table-latex").click()
    page.wait_for_function("() => document.querySelector('#table-latex').textContent === 'Copied'")
    text = page.evaluate("navigator.clipboard.readText()")
    assert all(part in text for part in ("\\toprule", "$\\pm$", "\\textbf{"))


def test_a_picture_has_room_for_long_names_and_shows_where_the_target_is_reached(
    filled: Filled, open_page: OpenPage
) -> None:
    address = filled.address("lr 0.01", "lr 0.02", "other", target="70", by="training.lr,partition.name,models.family")
    page = open_page(address, color_scheme="dark")
    picture = exported(page, "#accuracy", "SVG").decode()
    assert picture.count("<circle") == 2
    measured = page.evaluate(
        """text => {
            const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
            document.body.append(svg);
            const boxes = [...svg.querySelectorAll("text")].map((item) => item.getBBox());
            return [svg.width.baseVal.value, Math.max(...boxes.map((box) => box.x + box.width))];
        }""",
        picture,
    )
    assert measured[1] < measured[0]
    image = exported(page, "#accuracy", "PNG")
    corner = page.evaluate(
        """async (bytes) => {
            const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
            const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
            pen.drawImage(image, 0, 0);
            return [image.width, ...pen.getImageData(2, 2, 1, 1).data];
        }""",
        list(image),
    )
    assert corner == [2 * measured[0], 255, 255, 255, 255]  # white paper, whatever the screen


def test_page_and_server_write_the_same_latex(open_page: OpenPage) -> None:
    page = open_page("/compare")
    text = "".join(LETTERS) + "plain 0.5"
    script = "text => import('/static/js/table.js').then((m) => m.latex([[text]]))"
    assert page.evaluate(script, text).splitlines()[2] == f"  {tex(text)} \\\\"
    assert tex("p < 0.001, λ · 50 % “a|b” ≤ 2 …") == r"p $<$ 0.001, $\lambda$ $\cdot$ 50 \% ``a$|$b'' $\le$ 2 \ldots{}"


def test_clients_wins_and_significance_tell_the_same_story(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("fedarc", "fedavg", open="boxes,wins,significance"))
    page.wait_for_function("() => ['boxes', 'wins'].every(n => window.fedarena.charts[n]?.drawn())")
    ends = {name: [filled.rounds(name, place)[-1].client_accuracy for place in (0, 1)] for name in ("fedarc", "fedavg")}
    boxes = page.evaluate("window.fedarena.charts.boxes.data()")
    shown = {(row[1], row[2]): row[3] for row in boxes[1:] if row[0] == "FedAvg"}
    assert shown == {(s, k): v for s, one in zip(SEEDS, ends["fedavg"], strict=True) for k, v in one.items()}
    wins = sum(a[k] > b[k] for a, b in zip(ends["fedarc"], ends["fedavg"], strict=True) for k in a)
    assert f"FedARC is better on {wins} of 20 clients" in page.inner_text("#wins-text")
    page.wait_for_selector("#significance tbody tr")
    row = page.locator("#significance tbody tr").first.locator("th, td").all_inner_texts()
    assert row[:4] == ["FedARC", "FedAvg", "20", str(wins)]
    page.select_option("#view-wins [data-moment]", "best")
    assert "at=best" in page.url


def test_clients_are_read_again_while_rounds_come_fast_and_a_late_answer_is_dropped(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page("/compare")
    page.evaluate("""async () => {
        const { ClientTable } = await import("/static/js/compare/views.js");
        const [table, timers, wait] = [new ClientTable(() => {}), [], window.setTimeout.bind(window)];
        window.setTimeout = (call, after) => (after === 3000 ? timers.push(call) : wait(call, after));
        Object.assign(window, { table, timers });
    }""")
    need = "([id, round, at]) => window.table.need([{ id, next_round: round }], at)"
    read = "id => window.table.values[id]?.round === 40"
    key = filled.ids["fedavg"][0]
    with page.expect_response("**/compare/clients*at=last"):
        page.evaluate(need, [key, 1, "last"])
    for number in range(2, 6):
        page.evaluate(need, [key, number, "last"])
    assert page.evaluate("window.timers.length") == 1  # the first round's, which no later one puts off
    with page.expect_response("**/compare/clients*at=last"):
        page.evaluate("() => window.timers[0]()")
    page.wait_for_function(read, arg=key)
    held: list[Route] = []
    page.route("**/compare/clients*at=each", lambda route: held.append(route))
    page.evaluate(need, [key, 9, "each"])
    with page.expect_response("**/compare/clients*at=last"):
        page.evaluate(need, [key, 9, "last"])
    with page.expect_response("**/compare/clients*at=each"):
        held[0].continue_()
    page.evaluate("() => fetch('/healthz').then((answer) => answer.text())")  # what came before it was read
    assert page.evaluate(read, key)


def test_a_sweep_has_a_point_for_each_value(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("lr 0.01", "lr 0.02", "lr 0.1", open="sweep"))
    page.wait_for_function("() => window.fedarena.charts.sweep?.drawn()")
    rows = page.evaluate("window.fedarena.charts.sweep.data()")
    assert rows[0] == ["method", "training.lr", "best accuracy", "std", "runs"]
    assert [(row[1], row[4]) for row in rows[1:]] == [("0.01", 2), ("0.02", 2), ("0.1", 2)]
    assert page.locator("#unfair").is_hidden()
    assert "Swept: training.lr: 0.01, 0.02, 0.1" in page.inner_text("#notes")
    page.select_option("#by", "algorithm.name")
    assert len(page.evaluate("window.fedarena.charts.accuracy.data")) == 1
    assert cell(page, "FedAvg", "Seeds") == "6"


def test_many_lines_have_a_legend_whose_name_shows_the_band_and_names_of_bubbles_stay_apart(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page(filled.address(*METHODS, "lr 0.01", "lr 0.02", "lr 0.1", "other", "long"))
    names = page.locator("#accuracy .legend-item")
    assert names.count() == 9
    numbers = [float(text.split("\n")[-1].removesuffix(" %")) for text in names.all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    assert page.evaluate("window.fedarena.charts.accuracy.banded") == []
    names.filter(has_text="pFedES").focus()
    assert page.evaluate("window.fedarena.charts.accuracy.banded") == ["pFedES"]
    assert page.evaluate("document.activeElement.textContent").startswith("pFedES")
    crowd = [{"x": 300 + 40 * (n % 5), "y": 200 + 30 * (n // 5), "radius": 9, "text": "FedAvg-FT"} for n in range(25)]
    script = "([b, f]) => import('/static/js/chart-echarts.js').then((m) => m.placeNames(b, f))"
    placed = page.evaluate(script, [crowd, {"left": 0, "top": 0, "right": 800, "bottom": 500}])
    for one, other in combinations(placed, 2):
        assert abs(one["x"] - other["x"]) > 54 or abs(one["y"] - other["y"]) >= 12


def test_an_unfair_comparison_says_what_differs(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("standalone", "other"))
    warning = page.inner_text("#unfair")
    assert "partition.name: pathological, iid" in warning
    assert "rounds: 40, 4" in warning
    assert page.locator("#differences thead th").all_inner_texts()[:2] == ["Method", "partition.name"]
    page.goto(filled.address("standalone", "fedavg"))
    assert page.locator("#unfair").is_hidden()
    assert page.locator("#notes li").count() == 0


def copied(page: "Page", kind: str) -> str:
    button = page.locator(f"#table-{kind}")
    button.click()
    page.wait_for_function(f"() => document.querySelector('#table-{kind}').textContent === 'Copied'")
    return str(page.evaluate("navigator.clipboard.readText()"))


def assert_nobody_leads(page: "Page") -> None:
    verdict = page.inner_text("#verdict")
    assert verdict.startswith("Not comparable")
    assert not re.search("lead|ahead|best|level", verdict)
    for name in ("best", "lead", "bytes", "flops"):
        figure = page.locator(f'[data-figure="{name}"]')
        assert figure.locator(".figure-value").inner_text() == "–"
        assert figure.locator(".figure-detail").inner_text() == "not comparable"
    assert page.locator('[data-figure="fair"] .figure-value').inner_text() == "Not comparable"
    assert page.locator("#unfair").is_visible()
    assert page.locator("#table td.best").count() == 0
    assert page.locator("#table .gap").count() == 0
    assert "**" not in copied(page, "markdown")
    assert "\\textbf" not in copied(page, "latex")


def test_an_unfair_comparison_has_no_leader_and_no_lead(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("standalone", "other", "fedarc", target="50"))
    assert_nobody_leads(page)
    rows = page.locator("#table tbody th").all_inner_texts()
    assert rows == ["Standalone", "FedAvg", "FedARC"]  # as in the address, not by rank


def by_rounds(
    filled: Filled, method: str, *accuracies: float, protocol: str = "C", share: float | None = None, **changes: Any
) -> str:
    """A finished experiment with these accuracies in its rounds; `share` is that of the majority class."""
    spec = {"algorithm": {"name": method}, "rounds": len(accuracies), "evaluation": {"protocol": protocol}, **changes}
    history = run(ExperimentSpec.parse({**SPEC, **spec}).canonical())
    told = [r.model_copy(update={"accuracy": a}) for r, a in zip(history[1:], accuracies, strict=True)]
    return put(filled.store, [history[0], *told], majority_share=share, **spec)


def test_under_protocol_c_everything_follows_the_final_round(filled: Filled, open_page: OpenPage) -> None:
    training = SPEC["training"]
    early = [by_rounds(filled, "compfl", 0.9, 0.5, training={**training, "lr": lr}) for lr in (0.01, 0.02)]
    late = [by_rounds(filled, "fedavg", 0.7, 0.6, training={**training, "lr": lr}) for lr in (0.01, 0.02)]
    page = open_page(f"/compare?ids={early[0]},{late[0]}&open=price")
    assert page.inner_text("#verdict").startswith("FedAvg leads with 60.0 % in the final round, 10.0 points ahead")
    figure = page.locator('[data-figure="best"]')
    assert figure.inner_text().splitlines()[:2] == ["Final accuracy", "60.00 %"]
    assert page.locator("#table tbody th").all_inner_texts() == ["FedAvg", "CompFL"]
    assert page.locator("#table thead th").all_inner_texts()[2:4] == ["Final (%)", "Best (%)"]
    assert page.locator("#table td.best").all_inner_texts() == ["60.00"]
    assert re.findall(r"\*\*(.*?)\*\*", copied(page, "markdown")) == ["60.00"]
    assert re.findall(r"textbf\{(.*?)\}", copied(page, "latex")) == ["60.00"]
    page.wait_for_function("() => window.fedarena.charts.price?.drawn()")
    head, *rows = page.evaluate("window.fedarena.charts.price.data()")
    assert (head[1], {row[0]: row[1] for row in rows}) == ("final accuracy", {"FedAvg": 0.6, "CompFL": 0.5})
    page.goto(f"/compare?ids={','.join(early + late)}&open=sweep&field=training.lr")
    page.wait_for_function("() => window.fedarena.charts.sweep?.drawn()")
    head, *rows = page.evaluate("window.fedarena.charts.sweep.data()")
    assert (head[2], {row[2] for row in rows}) == ("final accuracy", {0.5, 0.6})
    assert page.locator("#members tbody tr").first.locator("td").nth(5).inner_text() == "50.0 %"


def test_groups_that_did_not_converge_are_marked_and_the_mark_is_explained(filled: Filled, open_page: OpenPage) -> None:
    def runs(method: str, *shares: float) -> list[str]:
        return [by_rounds(filled, method, 0.3, 0.5, seed=n, share=share) for n, share in enumerate(shares)]

    learned, some, none = runs("fedavg", 0.1, 0.1), runs("fedper", 0.5, 0.1), runs("ditto", 0.5, 0.49)
    page = open_page(f"/compare?ids={','.join(learned + some + none)}")
    cells = page.locator("#table tbody tr td:nth-child(3)").all_inner_texts()
    assert [re.sub(r"\s+", " ", cell).strip() for cell in cells] == [
        "50.00 ± 0.00",
        "50.00 ± 0.00 † (1 of 2)",
        "50.00 ± 0.00 †",
    ]
    note = page.inner_text("#no-convergence")
    assert note.startswith("† no convergence: at most 2 points above")
    assert copied(page, "markdown").splitlines()[-1] == note
    latex = copied(page, "latex").splitlines()
    assert "50.00 $\\pm$ 0.00 \\dag{} (1 of 2)" in latex[5]
    assert latex[-1].startswith("\\par\\smallskip{\\footnotesize \\dag{} no convergence: ")
    page.goto(f"/compare?ids={','.join(learned)}")
    assert page.locator("#no-convergence").is_hidden()


def test_results_of_two_protocols_are_not_comparable(filled: Filled, open_page: OpenPage) -> None:
    runs = [
        by_rounds(filled, method, 0.5, 0.6, protocol=protocol) for method in ("fedavg", "compfl") for protocol in "AC"
    ]
    page = open_page(f"/compare?ids={','.join(runs)}")
    assert "evaluation.protocol: A, C" in page.inner_text("#unfair")
    assert_nobody_leads(page)


def test_page_and_sweep_make_the_same_cells_bold(filled: Filled, open_page: OpenPage) -> None:
    methods, shares, levels = ("pfedes", "fedrep", "fedavg"), (1.0, 0.5), (0.61, 0.72, 0.53, 0.64, 0.75, 0.46)
    cells = [(method, share) for method in methods for share in shares]
    for (method, share), level in zip(cells, levels, strict=True):
        by_rounds(filled, method, level, 0.4, protocol="A", participation=share, clients=8, partition={"name": "iid"})
    base = {key: value for key, value in SPEC.items() if key != "seed"}
    base |= {"rounds": 2, "clients": 8, "partition": {"name": "iid"}}
    grid = {"algorithm.name": list(methods), "participation": list(shares)}
    answer = filled.product.client.post("/api/sweeps", json={"base": base, "grid": grid, "seeds": [SPEC["seed"]]})
    key = answer.json()["id"]
    assert answer.json()["counts"] == {"finished": 6}
    latex = filled.product.client.get(f"/api/sweeps/{key}/table.tex").text
    page = open_page(f"/sweeps/{key}")
    assert page.locator("#cells thead th").all_inner_texts()[:2] == ["Method", "Participation"]
    assert page.locator("#cells tbody tr").first.locator("th, td").all_inner_texts()[:2] == ["pFedES", "1"]
    assert page.locator('[data-figure="best"] .figure-value').inner_text() == "–"
    on_page = page.locator("#cells td.best").all_inner_texts()
    page.goto(str(page.locator("#compare").get_attribute("href")))
    assert sorted(page.locator("#table td.best").all_inner_texts()) == sorted(on_page) == ["72.00", "75.00"]
    assert sorted(re.findall(r"textbf\{(.*?)\}", latex)) == sorted(on_page)
    assert "  pFedES & 0.5 & 1 & \\textbf{72.00} & 40.00 \\\\" in latex
    assert "  Method & Participation & Seeds & Best (\\%) & Final (\\%)" in latex
    rows = open_page("/sweeps").locator("#sweeps .swept")
    assert rows.first.inner_text() == "method, participation · 1 seed"


def test_variants_of_one_method_differ_in_their_sample_on_the_page_and_in_every_picture(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page(filled.address("lr 0.01", "lr 0.02", "lr 0.1"))
    samples = page.locator("#accuracy .end-label line")
    dashes = samples.evaluate_all("lines => lines.map((line) => line.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == len(dashes) == 3
    picture = exported(page, "#accuracy", "SVG").decode()
    printed = re.findall(r'class="sample"[^>]*stroke-dasharray="([^"]*)"', picture)
    assert len(set(printed)) == len(printed) == 3
    ids = ",".join(key for lr in ("0.01", "0.02", "0.1") for key in filled.ids[f"lr {lr}"])
    pgf = filled.product.client.get(f"/api/compare/figure.pgf?ids={ids}").text
    assert len(set(re.findall(r"line width=0.9pt([^\]]*)\]", pgf))) == 3


def test_axes_of_rounds_and_costs_start_at_nothing(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("fedarc", "fedavg"))
    for chart in ("#accuracy", "#loss"):
        ticks = re.findall(r'text-anchor="middle">([^<]*)<', exported(page, chart, "SVG").decode())
        assert ticks[0] == "0", chart


def test_totals_far_apart_are_drawn_over_a_logarithm_until_a_reader_decides(
    filled: Filled, open_page: OpenPage
) -> None:
    page = open_page(filled.address("pfedes", "fedavg", x="bytes"))
    log = "window.fedarena.charts.accuracy.log[0]"
    assert page.evaluate(log) is True
    assert page.get_by_label("log x").is_checked()
    assert "log_x=true" in str(page.get_by_role("link", name="PDF").get_attribute("href"))
    page.get_by_label("log x").uncheck()
    assert page.evaluate(log) is False
    assert "log x separates the low-communication methods" in page.inner_text("#accuracy .chart-hint")
    page.reload()
    assert page.evaluate(log) is False
    page.goto(filled.address("fedarc", "fedavg", x="bytes"))
    assert page.evaluate(log) is False
    page.goto(filled.address("pfedes", "fedavg"))
    assert page.evaluate(log) is False


def test_a_reader_chooses_which_bands_are_drawn(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address(*METHODS))
    banded = "window.fedarena.charts.accuracy.banded"
    assert len(page.evaluate(banded)) == 4
    page.select_option("#bands", "hovered")
    assert page.evaluate(banded) == []
    page.locator("#accuracy .end-label", has_text="pFedES").hover()
    assert page.evaluate(banded) == ["pFedES"]
    page.select_option("#bands", "off")
    page.reload()
    page.locator("#accuracy .end-label", has_text="pFedES").hover()
    assert page.evaluate(banded) == []


def test_a_sweep_leaves_room_for_its_lines_on_a_phone(filled: Filled, open_page: OpenPage) -> None:
    page = open_page("/healthz")
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(filled.address("lr 0.01", "lr 0.02", "lr 0.1", open="sweep"))
    page.wait_for_function("() => window.fedarena.charts.sweep?.drawn()")
    paper = page.context.new_page()
    paper.set_content(exported(page, "#sweep", "SVG").decode())
    texts = {text.text_content(): text.bounding_box() for text in paper.locator("svg text").all()}
    middle, right = texts["0.02"], texts["0.1"]
    assert middle is not None
    assert right is not None
    assert right["x"] - middle["x"] > 180
    paper.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_the_win_rate_has_room_whatever_the_names(filled: Filled, open_page: OpenPage, width: int) -> None:
    training = SPEC["training"]
    long = [put(filled.store, rounds=2, training={**training, "lr": lr}) for lr in (0.000012345678, 0.000023456789)]
    page = open_page(f"/compare?ids={','.join(long)}&open=wins")
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function("() => ['wins', 'scatter'].every(n => window.fedarena.charts[n]?.drawn())")
    pictures = [exported(page, plot, "SVG").decode() for plot in ("#wins", "#scatter")]
    paper = page.context.new_page()  # without the pages' security policy
    for picture in pictures:
        paper.set_content(f"<style>body {{ margin: 0 }}</style>{picture}")
        frame = paper.locator("svg").bounding_box()
        assert frame is not None
        boxes = [(text.text_content() or "", text.bounding_box()) for text in paper.locator("svg text").all()]
        ticks = []
        for text, box in boxes:
            assert box is not None
            assert box["x"] >= -1, text
            assert box["y"] >= -1, text
            assert box["x"] + box["width"] <= frame["width"] + 1, text
            assert box["y"] + box["height"] <= frame["height"] + 1, text
            if re.fullmatch(r"-?[0-9.]+", text):
                ticks.append(box["y"])
        assert max(ticks) - min(ticks) > 180
    paper.close()


def test_all_experiments_of_a_comparison_are_listed_without_a_scroller(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address(*METHODS, "lr 0.01", "lr 0.02", "lr 0.1", "other", "long"))
    frame = page.locator(".table-frame:has(#members)")
    assert page.locator("#members tbody tr").count() > 12
    assert frame.evaluate("frame => frame.scrollHeight - frame.clientHeight") <= 1


def test_a_remark_on_all_pairs_is_made_once_below_them(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address(*METHODS, open="significance"))
    page.wait_for_selector("#significance tbody tr")
    note = page.inner_text(".significance-note")
    assert note.count("2 seeds are few: the interval is wide.") == 1
    assert "seeds are few" not in page.inner_text("#significance tbody")


def test_a_sweep_over_data_is_ranked_only_where_the_data_are_equal(filled: Filled, open_page: OpenPage) -> None:
    iid: dict[str, Any] = {"partition": {"name": "iid"}, "rounds": 2}
    arc, avg = (put(filled.store, algorithm={"name": name}, **iid) for name in ("fedarc", "fedavg"))
    page = open_page(filled.address("fedarc", "fedavg") + f",{arc},{avg}")
    assert page.locator("#unfair").is_hidden()
    fair = page.locator('[data-figure="fair"]')
    assert fair.locator(".figure-value").inner_text() == "Settings differ"
    assert fair.locator(".figure-detail").inner_text() == "compare rows with equal partition and rounds"
    assert page.inner_text("#verdict").startswith("Settings differ: compare rows with equal partition and rounds;")
    assert page.locator('[data-figure="lead"] .figure-value').inner_text() == "–"
    assert page.locator("#table tbody td.best").count() == 2  # best accuracy, on either data
    page.goto(f"/compare?ids={filled.ids['fedavg'][0]},{avg}")
    assert fair.locator(".figure-value").inner_text() == "Settings differ"
    assert page.locator("#table tbody td.best").count() == 0
    page.goto(f"/compare?ids={arc},{avg}")
    assert fair.locator(".figure-value").inner_text() == "Comparable"


def test_a_run_that_ended_early_is_no_equal_budget(filled: Filled, open_page: OpenPage) -> None:
    history = run(ExperimentSpec.parse({**SPEC, "algorithm": {"name": "compfl"}}).canonical())
    short = put(filled.store, history, upto=10, algorithm={"name": "compfl"})
    page = open_page(filled.address("fedavg") + f",{short}")
    assert page.locator("#unfair").is_hidden()
    with filled.store.write() as session:
        row = lifecycle.cancel(session, short)
        assert row is not None
        assert lifecycle.obey_cancel(session, Claim(short, row.fence, "filler", row.spec, row.next_round))
    page.wait_for_selector("#unfair")
    assert "CompFL ended after 10 of 40 rounds: cancelled" in page.inner_text("#unfair")
    page.goto(f"/compare?ids={short}")
    assert page.locator("#unfair").is_hidden()


def test_a_line_that_ended_is_silent_beyond_its_end(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(filled.address("standalone", "other"))
    plot = page.locator("#accuracy .u-over")
    box = plot.bounding_box()
    assert box is not None
    tip = page.locator("#accuracy .chart-tip .tip-name")
    plot.hover(position={"x": 0.8 * box["width"], "y": 100})
    assert tip.all_inner_texts() == ["Standalone"]
    plot.hover(position={"x": 0.05 * box["width"], "y": 100})
    assert sorted(tip.all_inner_texts()) == ["FedAvg", "Standalone"]


def test_server_and_page_give_groups_the_same_labels(filled: Filled, open_page: OpenPage) -> None:
    training = SPEC["training"]
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"lr": 0.00001, "clip": None}, {}),
        ({"lr": 1.0}, {"partition": {"name": "iid"}}),
        ({"lr": 1.5e-7}, {"partition": {"name": "iid"}}),
    ]
    odd = [put(filled.store, rounds=2, training={**training, **change}, **more) for change, more in changes]
    page = open_page(f"/compare?ids={','.join(odd)}")
    for by in ("", "training.lr", "partition.classes_per_client,training.clip", "partition.name"):
        page.goto(f"/compare?ids={','.join(odd)}&by={by}")
        labels = [item["label"] for item in page.evaluate("window.fedarena.charts.accuracy.data")]
        told = filled.product.get(f"/api/compare/significance?ids={','.join(odd)}&by={by}")["groups"]
        assert labels == list(told)
    page.goto(f"/compare?ids={','.join(odd[:2])}&by=partition.name")
    labels = [item["label"] for item in page.evaluate("window.fedarena.charts.accuracy.data")]
    assert labels == ["FedAvg · partition pathological", "FedAvg · partition iid"]


def test_a_long_comparison_is_thinned_and_keeps_its_numbers(
    filled: Filled, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_POINTS", 600)
    page = open_page(filled.address("long", target="70"))
    shown = line(page, "FedAvg")
    assert 100 <= len(shown["x"]) <= 300
    assert shown["y"][-1] == pytest.approx(0.8)
    expected = cost_to_target(filled.rounds("long"), 0.7)
    page.wait_for_function("n => document.querySelector('#table').innerText.includes(n)", arg=f"{expected.rounds} ± 0")
    page.select_option("#smooth", "50")
    rows = sheet(exported(page, "#accuracy", "CSV"))
    assert [int(row[0]) for row in rows[1:]] == list(range(901))
    whole = [record.accuracy for record in filled.rounds("long")]
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(whole)


def test_the_cost_to_a_target_follows_a_long_curve_that_grows(
    filled: Filled, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_POINTS", 600)
    history = filled.rounds("long")
    growing = put(filled.store, history, upto=899, rounds=900, clients=2, algorithm={"name": "compfl"})
    page = open_page(f"/compare?ids={growing},{filled.ids['long'][0]}&target=80")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    shown = "text => document.querySelector('#table').innerText.includes(text)"
    page.wait_for_function(shown, arg="not reached")
    assert cell(page, "CompFL", "Rounds to target") == "not reached"
    advance(filled.store, growing, history[900])
    page.wait_for_function("() => !document.querySelector('#table').innerText.includes('not reached')")
    assert cell(page, "CompFL", "Rounds to target") == "900"


def test_zoom_and_hidden_lines_survive_the_growth_of_a_curve(filled: Filled, open_page: OpenPage) -> None:
    history = run(ExperimentSpec.parse({**SPEC, "algorithm": {"name": "compfl"}}).canonical())
    growing = put(filled.store, history, upto=5, algorithm={"name": "compfl"})
    page = open_page(filled.address("fedarc", "fedavg") + f",{growing}")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    page.locator("#accuracy .end-label", has_text="FedAvg").click()
    box = page.locator("#accuracy .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 120, steps=4)
    page.mouse.up()
    zoom = page.evaluate("window.fedarena.charts.accuracy.zoom")
    hidden = page.evaluate("window.fedarena.charts.accuracy.hidden")
    assert zoom is not None
    for record in history[6:9]:
        advance(filled.store, growing, record)
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[2].y.length === 8")
    assert line(page, "CompFL")["y"] == [record.accuracy for record in history[1:9]]
    assert page.evaluate("window.fedarena.charts.accuracy.zoom") == zoom
    assert page.evaluate("window.fedarena.charts.accuracy.hidden") == hidden
    assert "hide=FedAvg" in page.url
    assert "zoom=" in page.url


def test_experiments_are_added_and_removed_in_place(filled: Filled, open_page: OpenPage) -> None:
    page = open_page(f"/compare?ids={filled.ids['fedavg'][0]}")
    page.get_by_text("Add experiments", exact=True).click()
    page.fill("#add-search", "standalone-43")
    page.locator("#candidates .candidate", has_text="standalone-43").click()
    page.wait_for_function("() => window.fedarena.charts.accuracy.data.length === 2")
    assert filled.ids["standalone"][1] in page.url
    page.get_by_role("button", name="Remove fedavg-42").click()
    assert [item["label"] for item in page.evaluate("window.fedarena.charts.accuracy.data")] == ["Standalone"]


def test_an_experiment_that_grows_while_it_is_added_loses_no_round(filled: Filled, open_page: OpenPage) -> None:
    history = run(ExperimentSpec.parse({**SPEC, "algorithm": {"name": "compfl"}}).canonical())
    growing = put(filled.store, history, upto=5, algorithm={"name": "compfl"}, name="late")
    other = put(filled.store, upto=1)
    page = open_page(f"/compare?ids={other}")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    page.get_by_text("Add experiments", exact=True).click()
    page.fill("#add-search", "late")
    candidate = page.locator("#candidates .candidate", has_text="late")
    candidate.wait_for()
    advance(filled.store, growing, history[6])
    held: list[Route] = []

    def hold(route: "Route") -> None:
        held.append(route)

    page.route("**/api/compare/curves*", hold)
    with page.expect_request("**/api/compare/curves*"):
        candidate.click()
    answer = held[0].fetch()
    advance(filled.store, growing, history[7])
    advance(filled.store, other, run(ExperimentSpec.parse(SPEC).canonical())[2])
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0].y.length === 2")
    held[0].fulfill(response=answer)
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[1]?.y.length === 7")
    assert line(page, "CompFL")["y"] == [record.accuracy for record in history[1:8]]
    assert "7 / 40" in page.inner_text("#members")


def test_a_deleted_experiment_leaves_the_comparison(filled: Filled, open_page: OpenPage) -> None:
    gone = put(filled.store, name="gone", algorithm={"name": "compfl"}, rounds=3)
    page = open_page(filled.address("fedavg") + f",{gone}")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    with filled.store.write() as session:
        assert steering.mark_deleted(session, gone) is not None
    page.get_by_text("gone was deleted and left this comparison.").wait_for()
    assert [item["label"] for item in page.evaluate("window.fedarena.charts.accuracy.data")] == ["FedAvg"]
    assert gone not in page.url


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_at_the_ends_of_lines_are_large_enough_to_hit(
    filled: Filled, open_page: OpenPage, scheme: str, width: int
) -> None:
    page = open_page(filled.address(*METHODS, "lr 0.01", "lr 0.02", "lr 0.1"), color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.reload()
    assert page.locator("#loss").get_by_role("button", name="FedAvg").count() >= 3
    assert violations(page) == []


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(filled: Filled, open_page: OpenPage, scheme: str, width: int) -> None:
    page = open_page("/healthz", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(filled.address(*METHODS, open="boxes,wins,price,significance", target="80"))
    page.wait_for_function("() => ['boxes', 'wins', 'price'].every(n => window.fedarena.charts[n]?.drawn())")
    page.wait_for_selector("#significance tbody tr")
    assert violations(page) == []
    assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")
    page.goto("/compare")
    assert violations(page) == []


def test_the_measure_of_readability_finds_what_cannot_be_read(open_page: OpenPage) -> None:
    page = open_page("/compare")
    page.evaluate("document.querySelector('#empty h2').style.color = '#eeeeee'")
    page.evaluate("document.querySelector('#empty').append(document.createElement('button'))")
    found = violations(page)
    assert {line.split(": ")[1] for line in found} == {"color-contrast", "button-name"}, json.dumps(found)


def test_an_empty_comparison_tells_the_next_step(open_page: OpenPage) -> None:
    page = open_page("/compare")
    assert page.get_by_role("link", name="Choose experiments").is_visible()
