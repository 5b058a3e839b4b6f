"""A spec is written, checked while it is written, and queued."""

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.product import Product

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


def test_a_clone_starts_with_the_spec_of_its_model(
    finished: dict[str, str], product: Product, open_page: OpenPage
) -> None:
    page = open_page(f"/experiments/{finished['fedavg-43']}")
    page.get_by_role("link", name="Clone").click()
    page.wait_for_selector(READY)
    assert "seed: 43" in page.input_value("#spec")
    assert "name: fedavg-43" in page.input_value("#spec")
