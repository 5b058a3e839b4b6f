"""One running product for all browser tests, and pages that fail on any script error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.product import PATIENCE, Product, serve, small

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Shared, so a test looks only at what it made itself; the starter comparison has a product of its own."""
    with serve(tmp_path_factory.mktemp("home"), FEDARENA_STARTER="false") as running:
        yield running


@pytest.fixture(scope="session")
def finished(product: Product) -> dict[str, str]:
    """Finished experiments by name: two methods, two seeds each."""
    ids = {
        f"{method}-{seed}": product.submit(small(f"{method}-{seed}", algorithm={"name": method}, seed=seed))
        for seed in (42, 43)
        for method in ("fedavg", "standalone")
    }
    for experiment in ids.values():
        product.wait(experiment)
    return ids


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: "Browser", product: Product) -> Iterator[OpenPage]:
    with watched_pages(browser, product) as open_at:
        yield open_at


@contextmanager
def watched_pages(browser: "Browser", product: Product) -> Iterator[OpenPage]:
    """Opens addresses of a product; afterwards no page may have logged an error or broken the security policy."""
    problems: list[str] = []
    contexts = []

    def open_at(path: str, *, ignore: tuple[str, ...] = (), **options: Any) -> "Page":
        context = browser.new_context(base_url=product.url, viewport={"width": 1440, "height": 900}, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        page = context.new_page()

        def note(kind: str, text: str) -> None:
            if kind in {"error", "warning"} and not any(word in text for word in ignore):
                problems.append(f"{path}: {kind}: {text}")

        page.on("console", lambda message: note(message.type, message.text))
        page.on("pageerror", lambda error: note("error", str(error)))
        page.goto(path)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert problems == []
