"""Take the pictures that the documents show, from a running product with finished experiments.

`--all --folder FOLDER` takes every page in both themes and at two sizes, to look at.
"""

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import chromium  # noqa: E402
from tests.browser.product import Product, serve  # noqa: E402 the checkout is put on the path first

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = ROOT / "docs" / "screenshots"
SIZES = {"desktop": (1440, 900), "laptop": (1024, 700)}
LARGEST = 200_000
"""Bytes of one picture: the folder is part of the repository."""


PRICED = "() => document.querySelector('#queue-it').textContent.includes('(')"
DRAWN = "() => document.querySelector('#partition-map').heatmap.heat"
COSTS = "() => !document.querySelector('[data-cost] .waiting')"
COMPLETE = {"new": (PRICED, DRAWN), "new-swept": (PRICED, DRAWN), "methods": (COSTS,), "method": (COSTS,)}
"""What comes after the first paint of a page, and is waited for."""

SWEEP = """\
name: who learns from whom
base:
  dataset: {name: digits}
  partition: {name: pathological, classes_per_client: 2}
  models: {family: cnn-5}
  clients: 10
  rounds: 20
grid:
  algorithm:
    - {name: fedavg}
    - {name: fedprox, mu: 0.1}
    - {name: pfedafm}
  training.lr: [0.01, 0.1]
seeds: [42, 43, 44]
"""


def shown() -> set[str]:
    """The pictures that a document refers to."""
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return {name for text in texts for name in re.findall(r"screenshots/([\w-]+)\.png", text.read_text("utf-8"))}


def pages(product: Product) -> dict[str, str]:
    """What is shown, by the name of its picture."""
    starters = [item for item in product.experiments() if "starter" in item["tags"]]
    for item in starters:
        product.wait(item["id"], patience=3600)
    shown = next(item["id"] for item in starters if item["spec"]["algorithm"]["name"] == "fedavg")
    ids = ",".join(item["id"] for item in starters)
    return {
        "overview": "/",
        "experiments": "/experiments",
        "experiment": f"/experiments/{shown}",
        "compare": f"/compare?ids={ids}&target=80",
        "compare-bytes": f"/compare?ids={ids}&x=bytes",
        "compare-empty": "/compare",
        "new": "/new",
        "new-swept": f"/new#text={quote(SWEEP)}",
        "sweeps": "/sweeps",
        "sweep-new": "/sweeps/new",
        "methods": "/methods",
        "method": "/methods/pfedafm",
        "workers": "/workers",
        "datasets": "/datasets",
        "settings": "/settings",
        "not-found": "/experiments/unknown",
    }


def shrink(path: Path) -> None:
    """A palette where the picture would be too large; it shifts pale colours, so only there."""
    if path.stat().st_size > LARGEST:
        with Image.open(path) as picture:
            pixels = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        pixels.save(path, optimize=True)


def take(browser: "Browser", product: Product, folder: Path, wanted: set[str] | None) -> None:
    """`wanted`: names of pictures; None: all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in pages(product).items():
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                if wanted is not None and f"{name}-{size}-{theme}" not in wanted:
                    continue
                context = browser.new_context(
                    base_url=product.url,
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                )
                page = context.new_page()
                page.goto(path)
                page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
                page.wait_for_function("() => !document.querySelector('#verdict[data-state=busy]')")
                for condition in COMPLETE.get(name, ()):
                    page.wait_for_function(condition)
                target = folder / f"{name}-{size}-{theme}.png"
                page.screenshot(path=target, full_page=name in {"experiment", "compare"})
                context.close()
                shrink(target)
                if target.stat().st_size > LARGEST:
                    raise SystemExit(f"{target.name} has {target.stat().st_size} bytes; {LARGEST} are allowed")
                sys.stdout.write(f"{target.relative_to(folder.parent)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a running FedArena with finished starter experiments; without it one is started")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--all", action="store_true", help="every page, not only what the documents show")
    options = parser.parse_args()
    wanted = None if options.all else shown()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.program(), args=chromium.OPTIONS)
        if options.url:
            take(browser, Product(options.url), options.folder, wanted)
        else:
            with TemporaryDirectory() as home, serve(Path(home) / "home") as product:
                take(browser, product, options.folder, wanted)
        browser.close()


if __name__ == "__main__":
    main()
