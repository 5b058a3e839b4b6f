"""The list is current without a reload, can be searched, and leads to a comparison."""

from typing import TYPE_CHECKING

import pytest

from app.store.database import Database
from engine.spec.experiment import ExperimentSpec
from tests.browser.conftest import OpenPage
from tests.browser.filled import SPEC, advance, put, run
from tests.browser.product import Product, eventually, small

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Route

pytestmark = pytest.mark.browser

NASTY = '<img src=x onerror="document.title=1"><script>alert(1)</script>'


def test_a_new_experiment_appears_and_finishes_without_a_reload(product: Product, open_page: OpenPage) -> None:
    page = open_page("/experiments")
    page.evaluate("window.untouched = true")
    experiment = product.submit(small("seen live"))
    row = page.locator(f'tr[data-id="{experiment}"]')
    row.wait_for()
    page.wait_for_selector(f'tr[data-id="{experiment}"] .chip[data-state="finished"]')
    told = product.get(f"/api/experiments/{experiment}")
    assert f"{100 * told['headline']['best_accuracy']:.1f}" in row.inner_text()
    assert "8 / 8" in row.inner_text()
    assert page.evaluate("window.untouched")


def test_search_and_state_are_in_the_address(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/experiments")
    page.keyboard.press("/")
    page.keyboard.type("standalone-42")
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 1")
    page.locator("#state-filter").select_option("failed")
    page.wait_for_selector("#no-match:not([hidden])")
    assert "search=standalone-42" in page.url
    assert "state=failed" in page.url
    page.reload()
    assert page.locator("#no-match").is_visible()
    page.get_by_role("button", name="Show all experiments").click()
    page.locator(f'tr[data-id="{finished["fedavg-42"]}"]').wait_for()


def test_rows_are_chosen_by_keyboard_and_compared_with_c(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/experiments?search=fedavg-4")
    page.locator("#experiments tbody tr").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert page.locator("#compare-selected").inner_text() == "Compare 2 selected"
    page.keyboard.press("c")
    page.wait_for_url("**/compare?ids=*")
    assert {finished["fedavg-42"], finished["fedavg-43"]} == set(page.url.split("ids=")[1].split(","))


def test_a_column_head_sorts_the_rows(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/experiments?state=finished")
    page.get_by_role("button", name="Accuracy (%)").click()
    page.wait_for_selector('th[data-column="accuracy"][aria-sort="descending"]')
    shown = page.locator('#experiments tbody [data-column="accuracy"]').all_inner_texts()
    values = [float(text.split()[0]) for text in shown]
    assert values == sorted(values, reverse=True)
    assert "sort=accuracy" in page.url


def test_the_accuracy_is_the_one_that_the_protocol_names_and_what_did_not_converge_is_marked(
    store: Database, open_page: OpenPage
) -> None:
    spec = {**SPEC, "rounds": 2, "clients": 150, "participants": 20}
    history = run(ExperimentSpec.parse(spec).canonical())
    levels = [history[0], *(r.model_copy(update={"accuracy": a}) for r, a in zip(history[1:], (0.9, 0.5), strict=True))]
    for protocol in "AC":
        changes = {"evaluation": {"protocol": protocol}, "name": f"judged-by-{protocol}"}
        put(store, levels, majority_share=0.5, **{**spec, **changes})
    page = open_page("/experiments?search=judged-by&sort=accuracy")
    assert page.locator('#experiments tbody [data-column="accuracy"]').all_inner_texts() == [
        "90.0",
        "50.0 †",
    ]
    assert page.locator('#experiments tbody [data-column="participation"]').all_inner_texts() == ["20", "20"]
    assert page.inner_text("#no-convergence").startswith("† no convergence: at most 2 points above")
    page.goto("/experiments?search=judged-by-A")
    assert page.locator("#no-convergence").is_hidden()


def test_an_answer_that_was_read_earlier_does_not_undo_what_came_live(store: Database, open_page: OpenPage) -> None:
    history = run(ExperimentSpec.parse(SPEC).canonical())
    experiment = put(store, history, upto=len(history) - 2, name="overtaken")
    page = open_page("/experiments?search=overtaken")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/api/experiments?**", lambda route: held.append((route, route.fetch())))
    page.get_by_role("button", name="Accuracy (%)").click()

    def asked() -> list[tuple["Route", "APIResponse"]]:
        page.wait_for_timeout(20)  # Playwright hears of requests only while it waits itself
        return held

    eventually(asked, "the list to be asked for")
    advance(store, experiment, history[-1])
    finished = page.locator(f'tr[data-id="{experiment}"] .chip[data-state="finished"]')
    finished.wait_for()
    [(route, answer)] = held
    route.fulfill(response=answer, json={**answer.json(), "total": 7})
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('1 of 7')")
    assert finished.count() == 1


def test_counts_say_what_is_not_in_the_list(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page(f"/experiments?search=standalone-4&selected={finished['fedavg-42']}")
    assert page.inner_text("#selection-count") == "1 selected, 1 not in this list"
    assert page.locator("#add-tag").is_disabled()
    page.locator("#group").check()
    assert page.inner_text("#experiments tr.group") == "Standalone · 2"

    def one_of_two(route: "Route") -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "items": answer.json()["items"][:1]})

    page.route("**/api/experiments?**", one_of_two)
    page.get_by_role("button", name="Accuracy (%)").click()
    page.get_by_text("Standalone · 1 (loaded rows only)").wait_for()


def test_names_and_tags_are_shown_as_text(store: Database, open_page: OpenPage) -> None:
    experiment = put(store, name=NASTY, tags=["<b>bold</b>"], notes=NASTY)
    page = open_page("/")
    shown = ("/experiments", f"/experiments/{experiment}", f"/compare?ids={experiment}")
    for path, word in (*((path, "onerror") for path in shown), (f"/new?from={experiment}", "<b>bold</b>")):
        page.goto(path)
        page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
        assert page.evaluate("document.querySelectorAll('main img, main b, main script').length") == 0
        assert page.title() != "1"
        text = page.inner_text("main") + "".join(
            page.evaluate("[...document.querySelectorAll('textarea')].map(t => t.value)")
        )
        assert word in text


def page_of_two_of_many(route: "Route") -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "items": answer.json()["items"][:2], "total": 163})


def test_selecting_all_says_that_only_the_loaded_ones_are_selected(
    finished: dict[str, str], open_page: OpenPage
) -> None:
    page = open_page("/experiments?search=fedavg-4")
    page.route("**/api/experiments?**", page_of_two_of_many)
    page.get_by_role("button", name="Accuracy (%)").click()
    page.get_by_text("2 of 163 experiments match").wait_for()
    page.locator("#select-all").check()
    assert page.inner_text("#selection-count") == "2 loaded of 163 selected"


def test_shift_selects_a_range(store: Database, open_page: OpenPage) -> None:
    for number in range(6):
        put(store, name=f"in a range {number}", rounds=1)
    page = open_page("/experiments?search=range&sort=name&order=up")
    boxes = page.locator("#experiments tbody input[type=checkbox]")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    assert [box.is_checked() for box in boxes.all()] == [False, True, True, True, True, False]
    boxes.nth(3).click(modifiers=["Shift"])
    assert page.inner_text("#selection-count") == "2 selected"


def test_keys_mean_the_row_that_has_the_focus(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/experiments?search=-4&sort=name&order=up")
    rows = page.locator("#experiments tbody tr")
    rows.nth(2).locator("input").focus()
    assert rows.nth(2).get_attribute("tabindex") == "0"
    assert page.locator('#experiments tbody tr[tabindex="0"]').count() == 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert rows.nth(3).locator("input").is_checked()
    assert page.inner_text("#selection-count") == "1 selected"


def test_a_long_tag_does_not_widen_its_filter(store: Database, open_page: OpenPage) -> None:
    put(store, name="labelled", tags=["t" * 50], rounds=1)
    page = open_page("/experiments")
    assert page.locator("#tag-filter").evaluate("select => select.clientWidth") < 180


def test_the_filters_list_titles_as_the_table_does(finished: dict[str, str], open_page: OpenPage) -> None:
    page = open_page("/experiments")
    assert "FedAvg" in page.locator("#algorithm-filter option").all_inner_texts()
    assert "Not applicable" in page.locator("#state-filter option").all_inner_texts()


def test_the_list_has_one_scroll_bar_and_its_end_is_in_it(store: Database, open_page: OpenPage) -> None:
    for number in range(3):
        put(store, name=f"one bar {number}", rounds=1)
    page = open_page("/experiments")
    whole = "document.documentElement.scrollHeight - document.documentElement.clientHeight"
    for width, height in ((1440, 900), (1024, 700)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(whole) == 0
    assert page.locator(".list-frame #more").count() == 1


def test_the_method_in_the_name_of_a_swept_experiment_is_not_cut_out(store: Database, open_page: OpenPage) -> None:
    name = "four methods, three seeds, two shares and more words: pfedafm, participation 1, seed 43"
    experiment = put(store, name=name, rounds=1)
    page = open_page("/experiments?search=four+methods")
    link = page.locator(f'tr[data-id="{experiment}"] .name-end')
    assert link.inner_text() == "pfedafm, participation 1, seed 43"
    shown = link.evaluate("end => end.getBoundingClientRect().left - end.closest('td').getBoundingClientRect().left")
    assert shown < page.locator(f'tr[data-id="{experiment}"] td.name').evaluate("cell => cell.clientWidth") / 2


def test_the_question_mark_lists_the_keys(open_page: OpenPage) -> None:
    page = open_page("/experiments")
    page.keyboard.press("?")
    assert "Compare the selection" in page.inner_text("#keys")
    page.keyboard.press("Escape")
    assert page.locator("#keys").is_hidden()
