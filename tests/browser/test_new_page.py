"""A spec is written, checked while it is written, and queued."""

import ast
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from app.store.database import Database
from tests.browser.conftest import OpenPage
from tests.browser.filled import put
from tests.browser.product import SMALL, Product, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

READY = '#verdict[data-state="good"]'
WRONG = '#verdict[data-state="bad"]'


def test_the_example_is_valid_and_can_be_queued(product: Product, open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    text = page.input_value("#spec").replace("rounds: 20", "rounds: 2").replace("my-first-fedavg", "from the form")
    page.fill("#spec", text)
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('2 rounds')")
    page.get_by_role("button", name="Queue 1 experiment").click()
    page.wait_for_url("**/experiments/*")
    assert page.inner_text("h1") == "from the form"
    assert product.wait(page.url.split("/")[-1])["spec"]["rounds"] == 2


def test_a_bad_spec_shows_each_error_at_its_field_and_cannot_be_queued(product: Product, open_page: OpenPage) -> None:
    page = open_page("/new", ignore=("422",))
    page.wait_for_selector(READY)
    before = len(product.experiments())
    text = page.input_value("#spec")
    page.fill("#spec", text.replace("participation: 1", "participation: 1.5").replace("clients: 10", "clients: 0"))
    page.wait_for_selector(WRONG)
    assert {item.get_attribute("data-field") for item in page.locator("#problems li").all()} == {
        "clients",
        "participation",
    }
    assert "1.5" in page.inner_text('#problems li[data-field="participation"]')
    assert page.locator("#queue-it").is_disabled()
    page.locator('#problems li[data-field="participation"] button').click()
    chosen = page.evaluate("(a => a.value.slice(a.selectionStart, a.selectionEnd))(document.querySelector('#spec'))")
    assert chosen == "participation: 1.5"
    assert len(product.experiments()) == before


def test_text_that_is_no_yaml_is_told_with_its_line(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    page.fill("#spec", "rounds: 3\nalgorithm: {name: fedavg\nseed: 1\n")
    page.wait_for_selector(WRONG)
    assert "Not readable as YAML or JSON" in page.inner_text("#problems")


def test_json_is_accepted_too(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    page.fill(
        "#spec",
        '{"algorithm": {"name": "standalone"}, "dataset": {"name": "digits"}, "rounds": 7,\n'
        '"partition": {"name": "iid"}, "models": {"family": "tiny-cnn"}}',
    )
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('7 rounds')")
    assert page.input_value("#method") == "standalone"


def test_choosing_a_method_writes_its_block(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    page.select_option("#method", "standalone")
    assert "name: standalone" in page.input_value("#spec")
    assert "rounds: 20" in page.input_value("#spec")
    page.wait_for_selector(READY)


def test_a_partition_that_cannot_be_drawn_says_why_and_the_one_before_comes_back(open_page: OpenPage) -> None:
    page = open_page("/new", ignore=("409",))
    drawn = "() => document.querySelector('#partition-map').heatmap.heat !== null"
    page.wait_for_function(drawn)
    text = page.input_value("#spec")
    refusal = {"errors": [{"field": "", "message": "the files are elsewhere", "value": None}]}
    page.route("**/api/partition", lambda route: route.fulfill(status=409, json=refusal))
    page.fill("#spec", text.replace("seed: 42", "seed: 43"))
    page.get_by_text("the files are elsewhere").wait_for()
    page.unroute("**/api/partition")
    page.fill("#spec", text)
    page.wait_for_function(drawn)


def test_the_python_of_a_sweep_holds_its_text_whatever_is_quoted_in_it(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    base = {key: value for key, value in SMALL.items() if key != "seed"}
    quotes = '"' * 3
    text = f"base: {json.dumps(base)}\nseeds: [1, 2]\nnotes: 'C:\\new, {quotes}so{quotes}'\nname: \"it\""
    page.fill("#spec", text)
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('2 experiments')")
    page.get_by_label("Python").check()
    code = ast.parse(page.locator("#expanded").text_content() or "")
    found = [node.value for node in ast.walk(code) if isinstance(node, ast.Constant) and "base" in str(node.value)]
    assert found == [f"\n{text}"]


def test_a_clone_has_the_spec_of_its_model_but_not_its_name_and_notes(store: Database, open_page: OpenPage) -> None:
    model = put(store, name="the model", notes="seen on a Monday", tags=["night"], seed=43, rounds=2)
    page = open_page(f"/experiments/{model}", ignore=("409",))  # no data give the partition it is said to have
    page.get_by_role("link", name="Clone").click()
    page.wait_for_selector(READY)
    text = page.input_value("#spec")
    assert "seed: 43" in text
    assert "night" in text
    assert "the model" not in text
    assert "Monday" not in text


def rounds(page: "Page", number: int) -> None:
    """Types another number of rounds and waits until the server found it good."""
    page.fill("#field-rounds", str(number))
    page.wait_for_function(f"() => document.querySelector('#verdict').textContent.includes(': {number} rounds')")


def test_a_price_is_never_that_of_an_earlier_text(open_page: OpenPage) -> None:
    from playwright.sync_api import Error

    page = open_page("/new")
    page.wait_for_selector("#cost-bytes")
    assert "roughly" in page.inner_text("#queue-it") or "about" in page.inner_text("#queue-it")
    held: list[Route] = []
    page.route("**/api/estimate", lambda route: held.append(route))
    rounds(page, 21)
    page.wait_for_function("() => !document.querySelector('#queue-it').disabled")
    assert page.inner_text("#queue-it") == "Queue 1 experiment (…)"
    assert set(page.locator(".strip-figures dd").all_inner_texts()) == {"…"}

    def asked() -> list["Route"]:
        page.wait_for_timeout(20)  # Playwright hears of requests only while it waits itself
        return held

    eventually(asked, "the price to be asked for")
    typed = "field => { field.value = '22'; field.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.locator("#field-rounds").evaluate(typed)
    with contextlib.suppress(Error):  # the page may have given up the question
        held[0].continue_()
    page.wait_for_timeout(100)
    assert "(…)" in page.inner_text("#queue-it")
    page.unroute("**/api/estimate")
    rounds(page, 23)
    page.wait_for_selector("#cost-bytes")


def test_a_cost_that_cannot_be_told_says_why(open_page: OpenPage) -> None:
    page = open_page("/new")
    refusal = {"estimate": None, "reason": "the rehearsal needs the files of mnist"}
    page.route("**/api/estimate", lambda route: route.fulfill(json=refusal))
    page.wait_for_selector(READY)
    rounds(page, 21)
    page.get_by_text("No estimate: the rehearsal needs the files of mnist").wait_for()
    assert page.inner_text("#queue-it") == "Queue 1 experiment"


def test_paper_settings_are_taken_back_and_what_was_changed_since_stays(open_page: OpenPage) -> None:
    page = open_page("/new?algorithm=pfedafm")
    page.wait_for_selector(READY)
    before = page.input_value("#spec")
    for preset in ("A", "B", "C", ""):
        page.select_option("#preset", preset)
        assert (page.input_value("#spec") == before) == (preset == "")
    page.select_option("#preset", "B")
    page.fill("#field-training-epochs", "7")
    page.select_option("#preset", "")
    assert page.input_value("#spec") == before.replace("epochs: 1", "epochs: 7")


def test_paper_settings_of_swept_methods_are_taken_back(open_page: OpenPage) -> None:
    page = open_page("/new")
    base = {key: value for key, value in SMALL.items() if key not in {"seed", "algorithm", "training"}}
    grid = {"algorithm": [{"name": "pfedafm"}, {"name": "fedprox", "mu": 0.2}]}
    page.fill("#spec", json.dumps({"base": base, "grid": grid, "seeds": [1]}))
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('2 experiments')")
    page.select_option("#preset", "A")
    page.select_option("#preset", "")
    page.wait_for_selector("#queue-it:enabled")
    page.get_by_label("JSON", exact=True).check()
    assert json.loads(page.locator("#expanded").text_content() or "") == {"base": base, "grid": grid, "seeds": [1]}


def test_every_help_text_can_be_read_to_its_end(open_page: OpenPage) -> None:
    page = open_page("/new?algorithm=pfedafm")
    page.wait_for_selector(READY)
    cut = "helps => helps.filter(help => help.scrollHeight > help.clientHeight + 1).map(help => help.textContent)"
    assert page.locator(".field-help").evaluate_all(cut) == []


def test_the_two_seeds_are_told_apart(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    page.get_by_label("partition seed", exact=True).fill("7")
    page.get_by_label("run seed", exact=True).fill("8")
    assert "seed: 7}" in page.input_value("#spec")
    assert "\nseed: 8" in page.input_value("#spec")


def test_notes_have_several_lines(open_page: OpenPage) -> None:
    page = open_page("/new")
    page.wait_for_selector(READY)
    page.get_by_label("notes", exact=True).fill("one\ntwo")
    page.wait_for_selector(READY)
    assert 'notes: "one\\ntwo"' in page.input_value("#spec")


def test_an_unknown_method_is_told_at_its_field_without_the_list_of_all(open_page: OpenPage) -> None:
    page = open_page("/new", ignore=("422",))
    page.wait_for_selector(READY)
    page.fill("#spec", page.input_value("#spec").replace("{name: fedavg}", "{name: pfedamf}"))
    page.wait_for_selector(WRONG)
    told = page.inner_text('[data-path="algorithm"] .field-error')
    assert told == "unknown algorithm 'pfedamf'; did you mean pfedafm?"
    assert "fedproto" not in told


def test_a_key_opens_the_form_at_its_first_field(open_page: OpenPage) -> None:
    page = open_page("/experiments")
    page.keyboard.press("n")
    page.wait_for_url("**/new")
    page.wait_for_selector(READY)
    assert page.evaluate("document.activeElement.id") == "method"
    page.fill("#field-rounds", "21")
    page.locator("h1").click()
    page.keyboard.press("n")
    page.wait_for_function("() => document.activeElement.id === 'method'")
    assert page.input_value("#field-rounds") == "21"


PRESS = "area.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true, bubbles: true}));"
"""As Ctrl+Enter, but without the moment that a key of the keyboard takes to arrive."""


@pytest.mark.parametrize(("path", "area"), [("/new", "#spec"), ("/sweeps/new", "#document")])
def test_what_was_just_typed_is_not_queued_before_it_was_checked(open_page: OpenPage, path: str, area: str) -> None:
    page = open_page(path)
    page.wait_for_selector(READY)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "idempotency-key" in request.headers else None)
    typed = "area.value = area.value.replace(/rounds: \\d+/, 'rounds: 3'); area.dispatchEvent(new Event('input'));"
    page.locator(area).evaluate(f"area => {{ {typed} {PRESS} }}")
    page.wait_for_selector("#queue-it:enabled")
    assert sent == []
    assert page.url.partition("#")[0].endswith(path)


@pytest.mark.parametrize(
    ("path", "area", "api"), [("/new", "#spec", "/api/experiments"), ("/sweeps/new", "#document", "/api/sweeps")]
)
def test_pressing_again_and_a_lost_answer_make_nothing_twice(
    product: Product, open_page: OpenPage, path: str, area: str, api: str
) -> None:
    page = open_page(path, ignore=("ERR_FAILED",))
    page.wait_for_selector(READY)
    page.fill(area, page.input_value(area).replace("name: ", "name: once ", 1))
    page.wait_for_selector("#queue-it:enabled")
    keys: list[str] = []

    def lose_the_first(route: "Route") -> None:
        keys.append(route.request.headers["idempotency-key"])
        answer = route.fetch()
        route.abort() if len(keys) == 1 else route.fulfill(response=answer)

    page.route(lambda url: url.endswith(api), lose_the_first)
    page.locator(area).evaluate(f"area => {{ {PRESS} {PRESS} }}")
    page.wait_for_selector(WRONG)
    assert page.inner_text("#verdict") == "Not queued"
    page.locator("#queue-it").click()
    page.wait_for_url(f"**{api.removeprefix('/api')}/0*")
    assert len(keys) == 2
    assert keys[0] == keys[1]
    made = [item["id"] for item in product.get(f"{api}?limit=50")["items"] if (item["name"] or "").startswith("once")]
    for key in made:
        product.client.post(f"{api}/{key}/cancel", json={})
    assert len(made) == 1
