"""Measures the dashboard on a store with 10,000 experiments, in a real Chromium: `make bench`.

Twenty of the experiments have 500 rounds of 100 clients each; they are the comparison. It prints the table of
docs/benchmarks.md: every figure beside its aim, and how busy the machine was. Times are medians over repeats. CPU is
that of the web server alone, for each call: it says something on a busy machine too, where the times do not.
"""

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.config import Settings  # noqa: E402 the checkout is put on the path first
from app.store.database import Database  # noqa: E402
from app.store.ids import new_id  # noqa: E402
from app.store.listing import Sort  # noqa: E402
from app.store.migrate import migrate  # noqa: E402
from app.store.states import State  # noqa: E402
from app.store.tables import Experiment  # noqa: E402
from engine.methods import REGISTRY  # noqa: E402
from engine.spec.experiment import ExperimentSpec  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.browser.filled import SPEC, advance, put, run  # noqa: E402
from tests.browser.product import Product, serve  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response

COMPARED, ROUNDS, CLIENTS = 20, 500, 100
NARROWED = {"few match": "search=fedarc&state=finished", "nearly all match": "tag=bench&state=finished"}
PAINTED = (
    "n => { const c = window.fedarena?.charts?.accuracy; return c && c.data.length >= n ? performance.now() : 0; }"
)
ROWS = "() => document.querySelectorAll('#experiments tbody tr').length > 0"


def row(title: str, measured: float, unit: str, aim: float | None = None, more: str = "") -> None:
    """A line of the table."""
    told = "" if aim is None else f"{aim:,.0f} {unit}, {'met' if measured < aim else '**missed**'}"
    print(f"| {title} | {measured:,.0f} {unit}{more} | {told} |", flush=True)


def fill(database: Database, count: int) -> list[str]:
    """The ids of the compared experiments."""
    methods = sorted(REGISTRY)
    plain = {name: ExperimentSpec.parse({**SPEC, "algorithm": {"name": name}}) for name in methods}
    rows = []
    for place in range(count - COMPARED):
        method = methods[place % len(methods)]
        best = 0.5 + place * 7919 % 4500 / 10_000
        rows.append(
            Experiment(
                id=new_id(),
                name=f"run {place}",
                tags=["bench"],
                notes="",
                algorithm=method,
                dataset="digits",
                spec={**plain[method].canonical(), "name": f"run {place}", "seed": place},
                fingerprint=f"{place:064x}",
                state=State.FINISHED,
                created_at=1.7e9 + place,
                place=0,
                rounds=40,
                next_round=41,
                best_accuracy=best,
                best_round=38,
                final_accuracy=best - 0.01,
                totals={"bytes_up": place, "bytes_down": place, "client_flops": place},
            )
        )
    with database.write() as session:
        session.add_all(rows)
    return [
        put(database, algorithm={"name": methods[place]}, rounds=ROUNDS, clients=CLIENTS) for place in range(COMPARED)
    ]


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process; its children do not count."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Caller:
    """Calls the web server again and again."""

    product: Product
    client: httpx.Client
    repeats: int

    def once(self, path: str) -> float:
        """Milliseconds until the whole answer is here."""
        start = time.perf_counter()
        self.client.get(path).raise_for_status()
        return 1000 * (time.perf_counter() - start)

    def __call__(self, path: str) -> tuple[float, float]:
        """The median of the milliseconds, and the CPU milliseconds of the server for one call."""
        before = cpu_seconds(self.product.pid)
        times = [self.once(path) for _ in range(self.repeats)]
        return statistics.median(times), 1000 * (cpu_seconds(self.product.pid) - before) / self.repeats


def kept_answers(page: "Page") -> "list[Response]":
    """All that the page will be answered."""
    answers: list[Response] = []

    def keep(answer: "Response") -> None:
        answers.append(answer)

    page.on("response", keep)
    return answers


def cold(browser: "Browser", base: str, path: str, ready: str, argument: Any, repeats: int) -> tuple[float, int, int]:
    """Milliseconds from the request to the picture in a browser without a cache; bytes as sent; requests."""
    times, weights, counts = [], [], []
    for _ in range(repeats):
        context = browser.new_context(base_url=base, viewport={"width": 1440, "height": 900})
        page = context.new_page()
        answers = kept_answers(page)
        page.goto(path, wait_until="commit")
        page.wait_for_function(ready, arg=argument)
        times.append(float(page.evaluate("() => new Promise(r => requestAnimationFrame(() => r(performance.now())))")))
        read = [answer.request.sizes()["responseBodySize"] for answer in answers if "/api/events" not in answer.url]
        weights.append(sum(read))
        counts.append(len(read))
        context.close()
    return statistics.median(times), int(statistics.median(weights)), int(statistics.median(counts))


def produced_to_painted(page: "Page", database: Database, others: list[str], rounds: int) -> list[float]:
    """Milliseconds from the commit of a round to the frame that shows it."""
    growing = put(database, upto=3, rounds=ROUNDS, clients=CLIENTS, seed=7)
    page.goto(f"/compare?ids={','.join([growing, *others])}")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    records = run(ExperimentSpec.parse({**SPEC, "rounds": ROUNDS, "clients": CLIENTS, "seed": 7}).canonical())
    page.evaluate(
        """() => {
          window.seen = {};
          const look = () => {
            const found = window.fedarena.charts.accuracy.data.find(line => line.label.startsWith("FedAvg"));
            if (found) window.seen[found.y.length] ??= Date.now();
            requestAnimationFrame(look);
          };
          look();
        }"""
    )
    committed = {}
    for record in records[4 : 4 + rounds]:
        advance(database, growing, record)
        committed[record.round] = 1000 * time.time()
        time.sleep(0.25)
    page.wait_for_function("n => window.seen[n]", arg=3 + rounds)
    seen = {int(number): float(at) for number, at in page.evaluate("window.seen").items()}
    # a frame may show two new rounds at once
    delays = sorted(
        min(then for shown, then in seen.items() if shown >= number) - at for number, at in committed.items()
    )
    if delays[0] < 0:
        raise SystemExit(f"a round was painted {-delays[0]:.0f} ms before it was stored: this measures something else")
    return delays


def measure(product: Product, database: Database, ids: list[str], repeats: int, stored: int) -> None:
    """Print the table."""
    call = Caller(product, httpx.Client(base_url=product.url, timeout=60, headers={"accept": "*/*"}), 3 * repeats)
    curves = f"/api/compare/curves?ids={','.join(ids)}&points=2000"
    compare = f"/compare?ids={','.join(ids)}"
    runs = f"{COMPARED} runs × {ROUNDS} rounds × {CLIENTS} clients"
    print("| | measured | aim |\n|---|---|---|")
    row(f"first data call of a comparison, {runs}", call.once(curves), "ms")
    took, cpu = call(curves)
    row(f"data call of a comparison, {runs}", took, "ms", 60, f" (CPU {cpu:.0f} ms)")
    took, cpu = call(compare)
    row("HTML of that page with its data", took, "ms", None, f" (CPU {cpu:.0f} ms)")
    for title, narrowed in NARROWED.items():
        for sort in Sort:
            took, cpu = call(f"/api/experiments?{narrowed}&sort={sort}&limit=50")
            row(f"list of {stored:,}, filtered ({title}), by {sort}", took, "ms", 100, f" (CPU {cpu:.0f} ms)")
        took, cpu = call(f"/experiments?{narrowed}&sort=best")
        row(f"HTML of the list, filtered ({title}), by best", took, "ms", 100, f" (CPU {cpu:.0f} ms)")
    call.client.close()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.program(), args=chromium.OPTIONS)
        took, weight, count = cold(browser, product.url, compare, PAINTED, COMPARED, repeats)
        row(f"cold compare page until it is painted, {runs}", took, "ms", 1000)
        row("compare page with gzip", weight / 1000, "kB", None, f" in {count} requests")
        narrowed = NARROWED["few match"]
        took, weight, count = cold(browser, product.url, f"/experiments?{narrowed}&sort=best", ROWS, None, repeats)
        row("cold list page, filtered, until its rows are there", took, "ms")
        _, weight, count = cold(browser, product.url, "/experiments", ROWS, None, 1)
        row("list page with gzip", weight / 1000, "kB", 100, f" in {count} requests")
        page = browser.new_page(base_url=product.url)
        delays = produced_to_painted(page, database, ids[:2], 40)
        title = f"round committed until it is painted, {len(delays)} rounds"
        row(f"{title}, median", statistics.median(delays), "ms")
        row(f"{title}, 95th percentile", delays[int(0.95 * (len(delays) - 1))], "ms", 500)
        browser.close()


def load() -> str:
    return ", ".join(f"{number:.1f}" for number in os.getloadavg())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    before = load()
    with TemporaryDirectory(prefix="fa-") as folder:
        home = Path(folder) / "home"
        settings = Settings(home=home, starter=False)
        settings.prepare_home()
        database = Database(settings.database)
        migrate(database)
        ids = fill(database, options.experiments)
        with serve(home, FEDARENA_STARTER="false") as product:
            measure(product, database, ids, options.repeats, options.experiments)
        database.close()
    print(f"\nLoad of the last 1, 5 and 15 minutes on {os.cpu_count()} cores: {before} before, {load()} after.")


if __name__ == "__main__":
    main()
