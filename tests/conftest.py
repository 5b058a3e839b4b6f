"""What all tests share: quiet cores, one place at a time for tests that start services, and a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Before torch is imported: several test processes share the cores, and results depend on the number of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SERVICES = {"browser", "postgres", "chaos", "cluster"}
CHROMIUM_OPTIONS = [
    "--no-sandbox",  # root has no user namespace to sandbox in; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file in one process, and all tests with services in one and the same, so that none disturbs another."""
    for item in items:
        group = "services" if SERVICES & {mark.name for mark in item.iter_markers()} else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own FEDARENA_ variables must not change what a test sees."""
    for name in list(os.environ):
        if name.startswith("FEDARENA_"):
            monkeypatch.delenv(name)


def _chromium() -> str | None:
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (path := shutil.which(name)):
            return path
    return None


# One for each module, not for the session: Playwright's event loop would stand in the way of asyncio tests elsewhere.
@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A headless Chromium; without one the test is skipped, and fails where CI=true."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = _chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            message = "no Chromium on this machine; `make browser` installs one where the user may"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()
