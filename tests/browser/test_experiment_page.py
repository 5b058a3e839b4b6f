"""The page of one experiment shows what the store holds, while it grows and afterwards."""

import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from app.store import experiments, steering
from app.store.database import Database
from engine.records import Dropped
from engine.spec.experiment import ExperimentSpec
from tests.browser.conftest import OpenPage
from tests.browser.filled import SPEC, advance, put, run
from tests.browser.product import Product, eventually, small

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

HISTORY_SPEC = ExperimentSpec.parse(SPEC).canonical()
HISTORY = run(HISTORY_SPEC)


def drawn(page: "Page", chart: str) -> dict[str, Any]:
    """The first line of a chart as it is shown."""
    line: dict[str, Any] = page.evaluate("name => window.fedarena.charts[name].data[0] ?? {x: [], y: []}", chart)
    return line


def test_the_curve_grows_and_shows_what_rest_says(product: Product, open_page: OpenPage) -> None:
    experiment = product.submit(small("watched", rounds=16))
    page = open_page(f"/experiments/{experiment}")
    before = len(drawn(page, "accuracy")["x"])
    page.wait_for_function("n => window.fedarena.charts.accuracy.data[0]?.x.length > n + 1", arg=before)
    page.wait_for_selector('#state .chip[data-state="finished"]')
    records = product.rounds(experiment)
    assert drawn(page, "accuracy")["x"] == [record["round"] for record in records]
    assert drawn(page, "accuracy")["y"] == [record["accuracy"] for record in records]
    assert drawn(page, "loss")["y"] == [record["loss"] for record in records]
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Checkpoint").click()
    with tarfile.open(waiting.value.path()) as archive:
        assert f"{experiment}/spec.json" in archive.getnames()


def test_costs_are_drawn_as_running_sums(finished: dict[str, str], product: Product, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{finished['fedavg-42']}")
    records = product.rounds(finished["fedavg-42"])
    total = 0
    sums = [total := total + record["bytes_up"] + record["bytes_down"] for record in records]
    assert sums[-1] > 0
    assert drawn(page, "bytes")["y"] == sums
    assert drawn(page, "flops")["y"][-1] == sum(record["client_flops"] for record in records)


def test_every_picture_is_exported(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{finished['fedavg-42']}")
    # Chromium drops the eleventh download of a document within a second without a word
    for pictures in (("#accuracy", "#clients"), ("#spread-panel", "#client-rounds", "#partition-map")):
        page.reload()
        for where in pictures:
            page.locator(where).scroll_into_view_if_needed()
            for kind, opening in (("CSV", b""), ("SVG", b"<svg"), ("PNG", b"\x89PNG")):
                with page.expect_download() as waiting:
                    page.locator(where).get_by_role("button", name=kind, exact=True).click()
                content = waiting.value.path().read_bytes()
                assert content.lstrip().startswith(opening), (where, kind)
                assert len(content) > 50, (where, kind)


def test_every_client_has_a_bar_with_its_last_accuracy(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    page = open_page(f"/experiments/{finished['standalone-42']}")
    last: dict[int, float] = {}
    for record in product.rounds(finished["standalone-42"]):
        last |= {int(client): value for client, value in record["client_accuracy"].items()}
    assert drawn(page, "clients")["y"] == [last[client] for client in sorted(last)]
    page.get_by_label("by accuracy").check()
    assert drawn(page, "clients")["y"] == sorted(last.values())


def test_the_key_figures_name_the_best_round(finished: dict[str, str], product: Product, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{finished['fedavg-42']}")
    headline = product.get(f"/api/experiments/{finished['fedavg-42']}")["headline"]
    figure = page.locator('[data-figure="best"]').inner_text()
    assert f"{100 * headline['best_accuracy']:.1f} %" in figure
    assert f"in round {headline['best_round']}" in figure


def test_a_reload_shows_the_same_picture(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{finished['fedavg-43']}")
    names = ["accuracy", "loss", "bytes", "flops", "clients"]
    before = [drawn(page, name) for name in names]
    page.reload()
    assert [drawn(page, name) for name in names] == before


def test_a_running_experiment_can_be_cancelled_and_keeps_its_rounds(product: Product, open_page: OpenPage) -> None:
    with product.running(small("to be cancelled", rounds=5000)) as experiment:
        page = open_page(f"/experiments/{experiment}")
        page.wait_for_function("() => window.fedarena.charts.accuracy.data[0]?.x.length > 2")
        page.get_by_role("button", name="Cancel experiment").click()
        page.wait_for_selector('#state .chip[data-state="cancelled"]')
    assert product.wait(experiment, "cancelled")["next_round"] > 2
    assert page.locator("#cancel").is_hidden()
    records = product.rounds(experiment)
    page.wait_for_function("n => window.fedarena.charts.accuracy.data[0].x.length === n", arg=len(records))


def test_a_diverged_experiment_says_why_and_what_to_do(product: Product, open_page: OpenPage) -> None:
    wild = {"epochs": 1, "batch_size": 32, "lr": 10, "weight_decay": 1, "clip": None, "augment": False}
    experiment = product.submit(small("too fast", models={"family": "tiny-cnn"}, training=wild))
    page = open_page(f"/experiments/{experiment}")
    page.wait_for_selector('#state .chip[data-state="diverged"]')
    told = product.get(f"/api/experiments/{experiment}")["error"]["reason"]
    panel = page.locator("#error").inner_text()
    assert told in panel
    assert "learning rate" in panel


def test_the_page_says_who_was_left_out_when_and_why(store: Database, open_page: OpenPage) -> None:
    silent = Dropped(client=7, part="message", reason="not all of its numbers are finite")
    failed = Dropped(client=None, part="new state", reason="its training loss became nan")
    history = [
        record.model_copy(update={"dropped": [silent] if record.round in {2, 3, 4, 6} else []}) for record in HISTORY
    ]
    experiment = put(store, history, upto=7)
    page = open_page(f"/experiments/{experiment}")
    page.wait_for_selector("#left-out tbody tr")
    rows = page.locator("#left-out tbody tr")
    assert rows.all_inner_texts() == ["Client 7\tmessage\tnot all of its numbers are finite\t2–4, 6"]
    advance(store, experiment, history[8].model_copy(update={"dropped": [failed]}))
    page.wait_for_selector("#left-out tbody tr:nth-child(2)")
    assert rows.all_inner_texts()[1] == "Server\tnew state\tits training loss became nan\t8"


def test_where_nobody_was_left_out_nothing_is_said_of_it(store: Database, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{put(store, HISTORY)}")
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0]?.x.length > 6")
    assert page.locator("#left-out").is_hidden()


def test_zoom_and_hidden_lines_survive_new_rounds(store: Database, open_page: OpenPage) -> None:
    experiment = put(store, HISTORY, upto=8)
    page = open_page(f"/experiments/{experiment}")
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0]?.x.length > 6")
    stage = page.locator("#accuracy .u-over").bounding_box()
    assert stage is not None
    page.mouse.move(stage["x"] + 0.3 * stage["width"], stage["y"] + 50)
    page.mouse.down()
    page.mouse.move(stage["x"] + 0.7 * stage["width"], stage["y"] + 60, steps=4)
    page.mouse.up()
    zoom = page.evaluate("window.fedarena.charts.accuracy.zoom")
    assert zoom is not None
    page.locator("#loss .end-label").click()
    count = len(drawn(page, "accuracy")["x"])
    for record in HISTORY[9:12]:
        advance(store, experiment, record)
    page.wait_for_function("n => window.fedarena.charts.accuracy.data[0].x.length === n + 3", arg=count)
    assert page.evaluate("window.fedarena.charts.accuracy.zoom") == zoom
    assert page.evaluate("window.fedarena.charts.loss.hidden") == ["FedAvg"]
    page.locator("#accuracy").get_by_role("button", name="Reset zoom").click()
    assert page.evaluate("window.fedarena.charts.accuracy.zoom") is None


def test_a_dropped_connection_shows_a_banner_and_loses_no_round(
    store: Database, product: Product, open_page: OpenPage
) -> None:
    experiment = put(store, HISTORY, upto=5)
    page = open_page(f"/experiments/{experiment}", ignore=("ERR_FAILED",))
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0]?.x.length > 2")
    page.route("**/api/events**", lambda route: route.abort())
    page.evaluate("import('/static/js/live.js').then(({live}) => live.connect())")
    page.wait_for_selector("#offline:not([hidden])")
    for record in HISTORY[6:]:
        advance(store, experiment, record)
    assert product.wait(experiment)["state"] == "finished"
    page.unroute("**/api/events**")
    page.wait_for_selector("#offline", state="hidden")
    records = product.rounds(experiment)
    page.wait_for_function("n => window.fedarena.charts.accuracy.data[0].x.length === n", arg=len(records))
    assert drawn(page, "accuracy")["y"] == [record["accuracy"] for record in records]


def test_notes_that_are_not_saved_yet_survive_new_rounds(
    store: Database, product: Product, open_page: OpenPage
) -> None:
    experiment = put(store, HISTORY, upto=3)
    page = open_page(f"/experiments/{experiment}", ignore=("409",))  # no data give the partition it is said to have
    page.get_by_text("Name, tags and notes").click()
    page.fill("#label-notes", "the second client")
    page.locator("h1").click()
    advance(store, experiment, HISTORY[4])
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0].x.length === 5")
    assert page.input_value("#label-notes") == "the second client"
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_function("() => document.querySelector('#notes').textContent === 'the second client'")
    product.client.patch(f"/api/experiments/{experiment}", json={"notes": "from elsewhere"}).raise_for_status()
    page.wait_for_function("() => document.querySelector('#label-notes').value === 'from elsewhere'")


def test_ten_thousand_clients_are_shown_and_followed(store: Database, open_page: OpenPage) -> None:
    many = {**SPEC, "clients": 10_000, "rounds": 14}
    history = run(ExperimentSpec.parse(many).canonical())
    experiment = put(store, history, upto=13, clients=10_000, rounds=14)
    page = open_page(f"/experiments/{experiment}")
    assert page.locator("#spread .box").count() == 13
    width = page.locator("#clients .chart-stage").evaluate("stage => stage.clientWidth")
    assert len(page.evaluate("fedarena.charts.clients.ticks")) * 42 < width  # four digits and a space each
    assert page.evaluate("document.querySelector('#client-rounds canvas').clientHeight") < 1000
    first = [record.client_accuracy["24"] for record in history[1:14]]
    with page.expect_download() as waiting:
        page.locator("#client-rounds").get_by_role("button", name="CSV").click()
    rows = waiting.value.path().read_text().splitlines()
    assert len(rows) == 10_001
    assert [float(value) for value in rows[25].split(",")] == [24, *first]
    advance(store, experiment, history[14])
    page.wait_for_selector('#state .chip[data-state="finished"]')
    assert page.locator("#spread .box").count() == 14


def test_a_partition_of_other_data_is_not_shown_as_its_own(store: Database, open_page: OpenPage) -> None:
    experiment = put(store, HISTORY, fingerprint="f" * 64)
    page = open_page(f"/experiments/{experiment}", ignore=("409",))
    page.locator("#partition-map").scroll_into_view_if_needed()
    page.get_by_text("but the experiment used ffffffffffff").wait_for()


def test_the_downloads_hold_every_round(finished: dict[str, str], product: Product, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{finished['fedavg-42']}")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Rounds as CSV").click()
    rows = waiting.value.path().read_text().splitlines()
    assert len(rows) == 1 + len(product.rounds(finished["fedavg-42"]))


def test_a_deleted_experiment_is_restored_at_its_address(
    store: Database, product: Product, open_page: OpenPage
) -> None:
    experiment = put(store, HISTORY, name="gone for a moment")
    product.client.delete(f"/api/experiments/{experiment}").raise_for_status()
    page = open_page(f"/experiments/{experiment}", ignore=("404", "409"))
    assert "“gone for a moment” was deleted" in page.inner_text("main")
    page.get_by_role("button", name="Restore it").click()
    page.get_by_role("heading", name="gone for a moment").wait_for()


def test_before_the_first_round_one_line_says_what_is_waited_for_and_no_panel_is_empty(
    store: Database, product: Product, open_page: OpenPage
) -> None:
    changes: dict[str, Any] = {"rounds": 12, "algorithm": {"name": "pfedafm"}}
    history = run(ExperimentSpec.parse({**SPEC, **changes}).canonical())
    experiment = put(store, history, upto=0, **changes)
    page = open_page(f"/experiments/{experiment}", ignore=("409",))
    assert page.inner_text("#waiting") == "Running. The first round is not finished yet."
    assert page.locator("main .chart:visible").evaluate_all("list => list.map(item => item.id)") == ["partition-map"]
    assert page.locator("#artifacts").is_hidden()
    assert "nothing is sent" not in page.inner_text("main")
    advance(store, experiment, history[1])
    page.wait_for_selector("#accuracy canvas")
    assert page.locator("#waiting").is_hidden()
    for name in ("accuracy", "loss", "bytes", "flops"):
        assert page.evaluate("name => fedarena.charts[name].reach", name) == [0, 12]
    assert page.locator("#bytes .chart-hint").inner_text() == "up + down"


def test_a_waiting_experiment_tells_its_place_and_shows_its_partition_at_once(
    product: Product, open_page: OpenPage
) -> None:
    late: dict[str, str | int] = {"start_after": "2099-01-01T00:00:00Z", "priority": -100}
    ids = [product.client.post("/api/experiments", json=small(f"waits {n}"), params=late).json()["id"] for n in (1, 2)]
    page = open_page(f"/experiments/{ids[1]}")
    position = product.get(f"/api/experiments/{ids[1]}")["position"]
    assert position >= 1
    assert page.inner_text("#waiting").startswith(f"Queued: {position} experiment")
    page.wait_for_function("() => document.querySelector('#partition-map').heatmap.heat?.values.length === 5")
    page.get_by_role("button", name="Cancel experiment").click()
    page.get_by_text("Cancelled before the first round was finished").wait_for()
    assert "Cancelled. Stored rounds are kept." in page.inner_text("#notices")
    product.client.post(f"/api/experiments/{ids[0]}/cancel", json={})


def test_the_best_accuracy_is_not_told_twice(store: Database, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{put(store, HISTORY[:13], rounds=12)}", ignore=("409",))
    best = max(HISTORY[1:13], key=lambda record: record.accuracy or 0)
    detail = page.inner_text('[data-figure="best"] .figure-detail')
    assert detail.startswith(f"in round {best.round}")
    same = f"{100 * (best.accuracy or 0):.1f}" == f"{100 * (HISTORY[12].accuracy or 0):.1f}"
    assert detail.endswith(" %") != same


def test_under_protocol_c_the_final_round_is_what_counts(store: Database, open_page: OpenPage) -> None:
    under_c: dict[str, Any] = {"rounds": 12, "evaluation": {"protocol": "C"}}
    history = [*HISTORY[:12], HISTORY[12].model_copy(update={"accuracy": 0.5})]
    page = open_page(f"/experiments/{put(store, history, **under_c)}", ignore=("409",))
    best = max(HISTORY[1:12], key=lambda record: record.accuracy or 0)
    title, value, detail = page.inner_text('[data-figure="best"]').splitlines()
    assert (title, value) == ("Final accuracy", "50.0 %")
    assert detail == f"in round 12 · best {100 * (best.accuracy or 0):.1f} % in round {best.round}"
    assert page.evaluate("fedarena.charts.accuracy.marks") == []  # it would be the best round


@pytest.mark.parametrize(("share", "told"), [(0.487, True), (0.47, False)])
def test_a_finished_run_that_did_not_converge_says_so_with_its_numbers(
    store: Database, open_page: OpenPage, share: float, told: bool
) -> None:
    history = [HISTORY[0], *(r.model_copy(update={"accuracy": 0.5}) for r in HISTORY[1:13])]
    experiment = put(store, history, upto=11, majority_share=share, rounds=12)
    page = open_page(f"/experiments/{experiment}", ignore=("409",))
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    assert page.locator("#convergence").is_hidden()
    advance(store, experiment, history[12])
    page.wait_for_selector('#state .chip[data-state="finished"]')
    assert page.locator("#convergence").is_visible() == told
    if told:
        assert page.inner_text("#convergence").startswith(
            "No convergence: the best accuracy, 50.00 %, does not pass 50.70 %, 2 points above what naming"
        )


def test_a_validation_part_has_a_dashed_line_and_says_what_it_chooses_while_rounds_come(
    store: Database, open_page: OpenPage
) -> None:
    levels = [None, 0.25, 0.5, 0.375, 0.75]
    history = [
        record.model_copy(update={"validation_accuracy": level})
        for record, level in zip(HISTORY[:5], levels, strict=True)
    ]
    partition = {"name": "iid", "split": "80-10-10"}
    key = put(store, history, upto=3, rounds=4, partition=partition)
    page = open_page(f"/experiments/{key}", ignore=("409",))
    figure = page.locator('[data-figure="validation"]')
    line = "() => fedarena.charts.accuracy.data.find((line) => line.key === 'validation')?.y"
    assert f"{100 * (history[2].accuracy or 0):.1f} %" in figure.inner_text()
    assert "50.0 % on validation in round 2" in figure.inner_text()
    assert page.evaluate(line) == levels[:4]
    advance(store, key, history[4])
    page.wait_for_function("() => document.querySelector('[data-figure=validation]').innerText.includes('round 4')")
    assert f"{100 * (history[4].accuracy or 0):.1f} %" in figure.inner_text()
    assert page.evaluate(line) == levels


def test_without_a_validation_part_nothing_is_said_of_one(store: Database, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{put(store, HISTORY[:13], rounds=12)}", ignore=("409",))
    page.locator('[data-figure="best"]').wait_for()
    assert page.locator('[data-figure="validation"]').is_hidden()
    assert page.evaluate("() => fedarena.charts.accuracy.data.length") == 1


def test_long_notes_are_cut_until_they_are_wanted_and_their_addresses_are_links(
    store: Database, open_page: OpenPage
) -> None:
    lines = ["see https://example.org/a?b=1 (and http://example.org/c), not javascript:alert(1)", *["more"] * 50, "end"]
    page = open_page(f"/experiments/{put(store, HISTORY, notes=chr(10).join(lines))}", ignore=("409",))
    links = page.locator("#notes a")
    assert links.evaluate_all("list => list.map(link => link.getAttribute('href'))") == [
        "https://example.org/a?b=1",
        "http://example.org/c",
    ]
    assert links.first.get_attribute("rel") == "noopener"
    height = "document.querySelector('#notes').clientHeight"
    assert page.evaluate(height) <= 120
    page.get_by_role("button", name="Show all").click()
    assert page.evaluate(height) > 1000
    page.get_by_role("button", name="Show less").click()
    assert page.evaluate(height) <= 120


def test_a_deletion_leads_back_to_the_list_as_it_was_filtered(store: Database, open_page: OpenPage) -> None:
    put(store, HISTORY, name="to go back from 1")
    put(store, HISTORY, name="to go back from 2")
    page = open_page("/experiments?search=go+back&sort=name", ignore=("409",))
    page.get_by_role("link", name="to go back from 1").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Undo").wait_for()
    assert page.input_value("#search") == "go back"
    assert "sort=name" in page.url
    assert page.locator("#experiments tbody tr").count() == 1


def test_an_action_that_no_server_heard_is_not_called_refused(store: Database, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{put(store, HISTORY)}", ignore=("409", "ERR_FAILED"))
    page.route("**/api/experiments/*", lambda route: route.abort())
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("Not done: The server does not answer.").wait_for()


def test_an_unknown_experiment_gets_a_friendly_page(open_page: OpenPage) -> None:
    page = open_page("/experiments/01AAAAAAAAAAAAAAAAAAAAAAAA", ignore=("404",))
    assert "There is no experiment" in page.inner_text("main")
    page.get_by_role("link", name="Go to the experiments").click()
    eventually(lambda: page.url.endswith("/experiments"), "the list")


@pytest.mark.parametrize("spec", [{}, {**HISTORY_SPEC, "algorithm": {"name": "fednew"}}], ids=["none", "new method"])
def test_a_spec_that_is_not_understood_leaves_every_page_working(
    store: Database, open_page: OpenPage, spec: dict[str, Any]
) -> None:
    key = put(store, HISTORY)
    with store.write() as session:
        row = experiments.get(session, key)
        assert row is not None
        row.spec = spec
    page = open_page(f"/experiments/{key}", ignore=("409",))  # without the spec there is no partition to draw
    assert page.locator("#not-understood").is_visible()
    assert len(drawn(page, "accuracy")["x"]) > 1
    for path in ("/", "/experiments", f"/compare?ids={key}"):
        page.goto(path)
        page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    with store.write() as session:
        assert steering.mark_deleted(session, key) is not None


def test_a_finished_experiment_goes_on_to_more_rounds_and_both_pages_name_each_other(
    product: Product, open_page: OpenPage
) -> None:
    old = product.submit(small("short", rounds=4, seed=77))
    product.wait(old)
    page = open_page(f"/experiments/{old}")
    page.get_by_role("button", name="Continue to … rounds").click()
    page.get_by_label("Rounds", exact=True).fill("9")
    assert (
        "takes over rounds 0 to 4 and goes on from the last checkpoint" in page.locator("#extend-effect").inner_text()
    )
    page.get_by_role("button", name="Continue to 9 rounds").click()
    page.wait_for_url(lambda url: "/experiments/" in url and old not in url)
    longer = page.url.rpartition("/")[2]
    page.wait_for_selector('#state .chip[data-state="finished"]')
    page.wait_for_function("() => window.fedarena.charts.accuracy.data[0].x.length === 10")
    assert drawn(page, "accuracy")["y"] == [record["accuracy"] for record in product.rounds(longer)]
    assert product.rounds(longer)[:5] == product.rounds(old)
    story = page.locator("#story")
    assert story.inner_text() == "Goes on after round 4 of a run of 4 rounds"
    story.get_by_role("link").click()
    page.wait_for_url(f"**/{old}")
    assert page.locator("#story").inner_text() == "Also with 9 rounds"


def test_fewer_rounds_are_read_out_and_what_is_refused_is_told_in_the_form(
    store: Database, open_page: OpenPage
) -> None:
    whole, rarely = put(store, seed=501), put(store, seed=502, evaluation={"every": 7})
    page = open_page(f"/experiments/{rarely}", ignore=("409",))
    form = page.locator("#extend")
    assert form.is_hidden()
    page.get_by_role("button", name="Continue to … rounds").click()
    page.get_by_label("Rounds", exact=True).fill("10")
    form.get_by_role("button", name="Read out 10 rounds").click()
    form.get_by_text("because evaluation.every is 7").wait_for()
    page.get_by_label("Rounds", exact=True).fill("40")
    assert form.get_by_role("button").is_disabled()
    page.keyboard.press("Escape")
    assert form.is_hidden()
    page.goto(page.url.replace(rarely, whole))
    page.get_by_role("button", name="Continue to … rounds").click()
    page.get_by_label("Rounds", exact=True).fill("10")
    form.get_by_role("button", name="Read out 10 rounds").click()
    page.wait_for_url(lambda url: "/experiments/" in url and whole not in url)
    assert page.locator("#story").inner_text() == "Read out of a run of 40 rounds"
    assert page.locator('[data-figure="round"]').inner_text().split()[-1] == "10"


def test_a_method_whose_rounds_depend_on_their_number_says_so_before_it_is_asked(
    store: Database, open_page: OpenPage
) -> None:
    page = open_page(f"/experiments/{put(store, seed=503, algorithm={'name': 'fedkd'})}")
    page.get_by_role("button", name="Continue to … rounds").click()
    assert "FedKD's energy threshold goes from 0.95 to 0.98" in page.locator("#extend-effect").inner_text()
    assert page.locator("#extend-submit").is_disabled()
