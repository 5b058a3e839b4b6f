"""Measures the dashboard on a store with 10,000 experiments, in a real Chromium: `make bench`.

Twenty of the experiments have 500 rounds of 100 clients each; they are the comparison. Times are medians over repeats.
"""

import argparse
import gzip
import statistics
import sys
import time
from collections.abc import Callable
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
from app.store.migrate import migrate  # noqa: E402
from app.store.states import State  # noqa: E402
from app.store.tables import Experiment  # noqa: E402
from engine.algorithms import REGISTRY  # noqa: E402
from engine.spec import ExperimentSpec  # noqa: E402
from tests.browser.filled import SPEC, advance, put, run  # noqa: E402
from tests.browser.product import serve  # noqa: E402
from tests.conftest import CHROMIUM_OPTIONS, _chromium  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COMPARED, ROUNDS, CLIENTS = 20, 500, 100
PAINTED = (
    "n => { const c = window.fedarena?.charts?.accuracy; return c && c.data.length >= n ? performance.now() : 0; }"
)


def fill(database: Database, count: int) -> tuple[list[str], str]:
    """The ids of the compared experiments, and of one that is still running."""
    methods = sorted(REGISTRY)
    plain = {name: ExperimentSpec.parse({**SPEC, "algorithm": {"name": name}}) for name in methods}
    rows = []
    for place in range(count - COMPARED - 1):
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
    ids = [
        put(database, algorithm={"name": methods[place]}, rounds=ROUNDS, clients=CLIENTS) for place in range(COMPARED)
    ]
    growing = put(database, upto=3, rounds=ROUNDS, clients=CLIENTS, seed=7)
    return ids, growing


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def fetched(client: httpx.Client, path: str) -> Callable[[], object]:
    return lambda: client.get(path).raise_for_status().content


def cold(browser: "Browser", base: str, path: str, ready: str, argument: Any, repeats: int) -> tuple[float, int, int]:
    """Milliseconds from the request to the picture in a browser without a cache; bytes with gzip; requests."""
    times, weights, counts = [], [], []
    for _ in range(repeats):
        context = browser.new_context(base_url=base, viewport={"width": 1440, "height": 900})
        page = context.new_page()
        answers: list[Any] = []
        page.on("response", lambda answer, kept=answers: kept.append(answer))
        page.goto(path, wait_until="commit")
        page.wait_for_function(ready, arg=argument)
        times.append(float(page.evaluate("() => new Promise(r => requestAnimationFrame(() => r(performance.now())))")))
        read = [answer.body() for answer in answers if "/api/events" not in answer.url]
        weights.append(sum(len(gzip.compress(body)) for body in read))
        counts.append(len(read))
        context.close()
    return statistics.median(times), int(statistics.median(weights)), int(statistics.median(counts))


def produced_to_painted(page: "Page", database: Database, growing: str, rounds: int) -> list[float]:
    """Milliseconds from the commit of a round to the frame that shows it."""
    spec = ExperimentSpec.parse({**SPEC, "rounds": ROUNDS, "clients": CLIENTS, "seed": 7}).canonical()
    records = run(spec)
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
    return sorted(seen[number] - at for number, at in committed.items() if number in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="fa-") as folder:
        home = Path(folder) / "home"
        settings = Settings(home=home, starter=False)
        settings.prepare_home()
        database = Database(settings.database)
        migrate(database)
        start = time.perf_counter()
        ids, growing = fill(database, options.experiments)
        print(f"filled with {options.experiments} experiments in {time.perf_counter() - start:.0f} s")
        with serve(home, FEDARENA_STARTER="false") as product, sync_playwright() as playwright:
            names = ",".join(ids)
            client = httpx.Client(base_url=product.url, timeout=60, headers={"accept": "*/*"})
            pages = {
                "data call of the comparison": f"/api/compare/curves?ids={names}&points=2000",
                "compare page, HTML alone": f"/compare?ids={names}",
                "list, filtered and sorted, REST": "/api/experiments?search=fedarc&state=finished&limit=50",
            }
            for title, path in pages.items():
                print(f"{title}: {milliseconds(fetched(client, path), 3 * options.repeats):.0f} ms")
            browser = playwright.chromium.launch(executable_path=_chromium(), args=CHROMIUM_OPTIONS)
            took, weight, count = cold(
                browser, product.url, f"/compare?ids={names}", PAINTED, COMPARED, options.repeats
            )
            print(f"cold compare page, {COMPARED} runs of {ROUNDS} rounds, until it is painted: {took:.0f} ms")
            print(f"weight of the compare page with gzip: {weight / 1000:.0f} kB in {count} requests")
            rows = "() => document.querySelectorAll('#experiments tbody tr').length > 0"
            took, *_ = cold(
                browser, product.url, "/experiments?search=fedarc&state=finished&sort=best", rows, None, options.repeats
            )
            print(f"cold list page of {options.experiments}, filtered, until its rows are there: {took:.0f} ms")
            page = browser.new_page(base_url=product.url)
            page.goto(f"/compare?ids={growing},{ids[0]},{ids[1]}")
            page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
            delays = produced_to_painted(page, database, growing, 40)
            at_95 = delays[int(0.95 * (len(delays) - 1))]
            middle = statistics.median(delays)
            print(f"round produced to painted: median {middle:.0f} ms, p95 {at_95:.0f} ms over {len(delays)} rounds")
            browser.close()
            client.close()
        database.close()


if __name__ == "__main__":
    main()
