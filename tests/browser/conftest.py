"""One running product and one browser for all these tests, and pages that fail on any script error."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from app.config import Settings
from app.store.database import Database
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from tests.browser import chromium
from tests.browser.filled import put
from tests.browser.product import PATIENCE, Product, serve, small

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page

Scheme = Literal["light", "dark"]


# For these tests, not for the session: Playwright's event loop would stand in the way of asyncio tests elsewhere.
@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    """A headless Chromium; without one the test is skipped, and fails where CI=true."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = chromium.program()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            message = "no Chromium on this machine; `make browser` installs one where the user may"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        running = playwright.chromium.launch(executable_path=path, args=chromium.OPTIONS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def product_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def product(product_home: Path) -> Iterator[Product]:
    """Shared, so a test looks only at what it made itself; the starter comparison has a product of its own."""
    with serve(product_home, FEDARENA_STARTER="false") as running:
        yield running


@pytest.fixture(scope="session")
def store(product: Product, product_home: Path) -> Iterator[Database]:
    """The product's own store, for experiments that are seen to grow without being trained."""
    store = Database(Settings(home=product_home).database)
    yield store
    store.close()


@pytest.fixture(scope="session")
def finished(store: Database) -> dict[str, str]:
    """Finished experiments by name: two methods, two seeds each; their partitions are those of the data here."""
    made = {}
    for seed in (42, 43):
        for method in ("fedavg", "standalone"):
            spec = small(f"{method}-{seed}", algorithm={"name": method}, seed=seed)
            partition = catalogue.preview_partition(ExperimentSpec.parse(spec), None)
            made[spec["name"]] = put(store, fingerprint=partition["fingerprint"], **spec)
    return made


OpenPage = Callable[..., "Page"]


class Pages:
    """Pages of one browser, handed on from test to test: the first address in a new one costs five times the next."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._idle: dict[str, list[Page]] = {}

    @contextmanager
    def watched(self, product: Product) -> Iterator[OpenPage]:
        """Opens addresses of a product; afterwards no page may have logged an error or broken the security policy."""
        problems: list[str] = []
        opened: list[tuple[Page, Callable[..., None], Callable[..., None]]] = []
        idle = self._idle.setdefault(product.url, [])

        def open_at(path: str, *, ignore: tuple[str, ...] = (), color_scheme: Scheme = "light") -> "Page":
            page = idle.pop() if idle else self._new(product)

            def note(kind: str, text: str) -> None:
                if kind in {"error", "warning"} and not any(word in text for word in ignore):
                    problems.append(f"{path}: {kind}: {text}")

            def on_console(message: "ConsoleMessage") -> None:
                if not message.location["url"].endswith("/favicon.ico"):  # asked for where the page before was no page
                    note(message.type, message.text)

            def on_error(error: "Error") -> None:
                note("error", str(error))

            page.on("console", on_console)
            page.on("pageerror", on_error)
            opened.append((page, on_console, on_error))
            page.set_viewport_size({"width": 1440, "height": 900})
            page.emulate_media(color_scheme=color_scheme)
            page.goto(path)
            return page

        yield open_at
        for page, on_console, on_error in opened:
            page.remove_listener("console", on_console)
            page.remove_listener("pageerror", on_error)
            page.unroute_all()
            page.goto("/healthz")  # no script runs there
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
            idle.append(page)
        assert problems == []

    def _new(self, product: Product) -> "Page":
        context = self._browser.new_context(base_url=product.url)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(PATIENCE * 1000)
        return context.new_page()


@pytest.fixture(scope="package")
def pages(browser: "Browser") -> Pages:
    return Pages(browser)


@pytest.fixture
def open_page(pages: Pages, product: Product) -> Iterator[OpenPage]:
    with pages.watched(product) as open_at:
        yield open_at
