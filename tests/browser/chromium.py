"""Where Chromium is, and how it is started."""

import os
import shutil

OPTIONS = [
    "--no-sandbox",  # root has no user namespace to sandbox in; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def program() -> str | None:
    """The program on this machine; None: there may still be the one that Playwright brings."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (path := shutil.which(name)):
            return path
    return None
