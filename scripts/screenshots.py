"""Take a picture of every page in both themes and at two sizes, from a running product with finished experiments.

They are for looking at, so they lie in a folder that is not part of the repository. The few that a document shows are
copied to docs/screenshots.
"""

import argparse
import re
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import chromium  # noqa: E402
from tests.browser.product import Product, serve  # noqa: E402 the checkout is put on the path first

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = ROOT / "build" / "screenshots"
DOCUMENTED = ROOT / "docs" / "screenshots"
SIZES = {"desktop": (1440, 900), "laptop": (1024, 700)}
LARGEST = 200_000
"""Bytes of one picture that is part of the repository."""

PRICED = "() => /\\([^…]+\\)/.test(document.querySelector('#queue-it').textContent)"
DRAWN = "() => document.querySelector('#partition-map').heatmap.heat"
COSTS = "() => !document.querySelector('[data-cost] .waiting')"
VIEWED = "() => ['boxes', 'wins', 'price'].every(id => document.querySelector(`#${id} :is(canvas, svg)`))"
TESTED = "() => document.querySelector('#significance tbody tr')"
COMPLETE = {
    "new": (PRICED, DRAWN),
    "new-swept": (PRICED, DRAWN),
    "methods": (COSTS,),
    "method": (COSTS,),
    "experiment": (DRAWN,),
    "compare-open": (VIEWED, TESTED),
    "compare-sweep": ("() => document.querySelector('#sweep :is(canvas, svg)')", TESTED),
}
"""What comes after the first paint of a page, and is waited for."""
WHOLE = {"experiment", "compare", "compare-open", "compare-sweep", "sweep"}
"""Pictured down to the foot."""

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

QUICK = {"models": {"family": "tiny-mlp"}, "rounds": 12}
"""So that the sweep that is really run takes a minute."""


def shown() -> set[str]:
    """The pictures that a document refers to."""
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return {name for text in texts for name in re.findall(r"screenshots/([\w-]+)\.png", text.read_text("utf-8"))}


def run_sweep(product: Product) -> dict[str, Any]:
    """A finished sweep, as REST shows it."""
    document = yaml.safe_load(SWEEP)
    document["base"] |= QUICK
    key = product.client.post("/api/sweeps", json=document).raise_for_status().json()["id"]
    while (view := product.get(f"/api/sweeps/{key}"))["state"] in {"queued", "running"}:
        time.sleep(1)
    return dict(view)


def pages(product: Product) -> dict[str, str]:
    """What is shown, by the name of its picture."""
    starters = [item for item in product.experiments() if "starter" in item["tags"]]
    for item in starters:
        product.wait(item["id"], patience=3600)
    shown = next(item["id"] for item in starters if item["spec"]["algorithm"]["name"] == "fedavg")
    ids = ",".join(item["id"] for item in starters)
    sweep = run_sweep(product)
    swept = ",".join(run["experiment"] for cell in sweep["cells"] for run in cell["runs"])
    return {
        "overview": "/",
        "experiments": "/experiments",
        "experiment": f"/experiments/{shown}",
        "compare": f"/compare?ids={ids}&target=80",
        "compare-bytes": f"/compare?ids={ids}&x=bytes",
        "compare-open": f"/compare?ids={ids}&open=boxes,wins,price,significance",
        "compare-sweep": f"/compare?ids={swept}&open=sweep,significance",
        "compare-empty": "/compare",
        "new": "/new",
        "new-swept": f"/new#text={quote(SWEEP)}",
        "sweeps": "/sweeps",
        "sweep": f"/sweeps/{sweep['id']}",
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


def take(browser: "Browser", product: Product, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in pages(product).items():
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                context = browser.new_context(
                    base_url=product.url,
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                )
                page = context.new_page()
                page.goto(path)
                page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
                page.wait_for_function("() => !document.querySelector('#verdict[data-state=busy]')")
                if name in WHOLE:  # parts of a page are drawn when they come into sight
                    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
                for condition in COMPLETE.get(name, ()):
                    page.wait_for_function(condition)
                page.evaluate("() => scrollTo(0, 0)")
                target = folder / f"{name}-{size}-{theme}.png"
                page.screenshot(path=target, full_page=name in WHOLE)
                context.close()
                sys.stdout.write(f"{target}\n")


def document(folder: Path) -> None:
    """Copy what the documents show."""
    for name in sorted(shown()):
        target = DOCUMENTED / f"{name}.png"
        shutil.copyfile(folder / target.name, target)
        shrink(target)
        if target.stat().st_size > LARGEST:
            raise SystemExit(f"{target.name} has {target.stat().st_size} bytes; {LARGEST} are allowed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a running FedArena with finished starter experiments; without it one is started")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.program(), args=chromium.OPTIONS)
        if options.url:
            take(browser, Product(options.url), options.folder)
        else:
            with TemporaryDirectory() as home, serve(Path(home) / "home") as product:
                take(browser, product, options.folder)
        browser.close()
    document(options.folder)


if __name__ == "__main__":
    main()
