"""The pages around an experiment, on a store that was filled by hand: nothing is trained here."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from app import events as events_module
from app.config import Settings
from app.pages import routes
from app.store import changes, lifecycle, logs, rounds, steering, workers
from app.store.database import Database
from app.store.overview import QUEUE_SHOWN
from app.store.plan import Plan, StopRule, Window
from tests.browser.axe import violations
from tests.browser.conftest import OpenPage, Pages
from tests.browser.product import Product, eventually
from tests.services import claim, look, record, serving, short_folder, submit

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

pytestmark = pytest.mark.browser

CLIENTS = 4
LEASE_SECONDS = 3600.0
"""Of what only seems to run here, told to the server too: a lease that no worker can have taken counts as run out."""


def played(number: int) -> Any:
    """A round in which client k reaches (number + k) / 20, with what a method may report."""
    accuracies = {str(k): (number + k) / 20 for k in range(CLIENTS)}
    traces = {"alpha_mean": {str(k): 1 - number / 10 for k in range(CLIENTS)}, "weights": {"0": [0.25, 0.75]}}
    mean = sum(accuracies.values()) / CLIENTS
    return record(
        number,
        mean if number else None,
        client_accuracy=accuracies if number else {},
        cohort=list(range(CLIENTS)),
        traces=traces if number else {},
    )


class Night:
    """A server without a worker, and its store."""

    def __init__(self, product: Product, store: Database) -> None:
        self.product, self.store = product, store
        self.finished = self.put("a finished one", 3, upto=3, tags=["night"])
        self.failed = self.put("a failed one", 9, upto=1)
        with store.write() as session:
            lifecycle.fail(session, self.claim, "the well ran dry", "Traceback: nothing")
        self.running = self.put("a running one", 9, upto=2)
        self.queued = [submit(store, name=f"waiting {n}", algorithm={"name": "standalone"}) for n in (1, 2)]
        with store.write() as session:
            workers.register(session, name="w1", host="here", pid=7, device="cpu", slots=1)
        self.work()

    def work(self) -> None:
        """A sign of life of the worker, which is silent a minute later."""
        report = {"memory_free": 3 * 2**30, "memory_total": 24 * 2**30, "rounds_per_minute": 7.5}
        with self.store.write() as session:
            workers.seen(session, "w1", report)

    def put(self, name: str, total: int, *, upto: int, tags: tuple[str, ...] | list[str] = ()) -> str:
        made = submit(
            self.store, name=name, rounds=total, clients=CLIENTS, tags=list(tags), models={"family": "tiny-3"}
        )
        with self.store.write() as session:
            steering.change_plan(session, made, {"priority": 60})  # before those that wait
        held = claim(self.store, "w1", LEASE_SECONDS)
        assert held is not None
        assert held.experiment == made
        self.claim = held
        for number in range(upto + 1):
            self.advance(number)
        return made

    def advance(self, number: int) -> None:
        with self.store.write() as session:
            rounds.commit_round(session, self.claim, played(number), LEASE_SECONDS)


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    with short_folder() as home:
        settings = Settings(home=home, starter=False, lease_seconds=LEASE_SECONDS)
        with serving(settings) as address:
            store = Database(settings.database)
            yield Night(Product(address), store)
            store.close()


@pytest.fixture
def open_page(pages: Pages, night: Night) -> Iterator[OpenPage]:
    with pages.watched(night.product) as open_at:
        yield open_at


def overflows(page: "Page") -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def every_page(night: Night) -> tuple[str, ...]:
    one = f"/experiments/{night.finished}"
    waits = f"/experiments/{night.queued[0]}"
    compare = f"/compare?ids={night.finished},{night.failed}"
    lists = ("/", "/experiments", "/sweeps", "/compare", compare, "/methods", "/datasets", "/workers", "/settings")
    return (*lists, one, waits, "/new", "/sweeps/new", "/methods/compfl", "/methods/fedarc", "/experiments/unknown")


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_every_page_is_accessible(night: Night, open_page: OpenPage, theme: str, width: int) -> None:
    wrong = []
    page = open_page("/sweeps", color_scheme=theme, ignore=("404",))
    page.set_viewport_size({"width": width, "height": 900})
    for path in every_page(night):
        page.goto(path)
        page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
        wrong += [f"{path}: {violation}" for violation in violations(page)]
    assert wrong == []


def test_no_page_scrolls_sideways_down_to_the_width_of_a_phone(night: Night, open_page: OpenPage) -> None:
    wrong = []
    page = open_page("/sweeps", ignore=("404",))
    for path in every_page(night):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(path)
        page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
        for width in (1280, 1024, 390, 320):
            page.set_viewport_size({"width": width, "height": 844})
            wrong += [f"{path} at {width}"] if overflows(page) else []
    assert wrong == []


def test_a_command_and_a_price_are_not_cut_off_on_a_phone(open_page: OpenPage) -> None:
    page = open_page("/datasets")
    page.set_viewport_size({"width": 390, "height": 844})
    inside = "element => element.getBoundingClientRect().right <= innerWidth"
    assert page.get_by_text("fedarena data get mnist").first.evaluate(inside)
    page.goto("/new")
    page.wait_for_selector("#cost-bytes")
    assert [figure.evaluate(inside) for figure in page.locator(".strip-figures dd").all()] == [True] * 4


def test_a_worker_tells_what_it_has_and_does(night: Night, open_page: OpenPage) -> None:
    page = open_page("/workers")
    heads = page.locator("#workers thead th").all_inner_texts()
    cells = page.locator("#workers tbody tr").first.locator("th, td").all_inner_texts()
    told = dict(zip(heads, cells, strict=True))
    assert (told["Memory free"], told["Rounds per minute"]) == ("3.00 GiB of 24.0 GiB", "7.5")
    assert "a running one" in told["Works on"]


def test_the_end_of_the_queue_counts_experiments_that_are_not_shown(pages: Pages) -> None:
    with short_folder() as home:
        settings = Settings(home=home, starter=False)
        with serving(settings) as address:
            store = Database(settings.database)
            submit(store, rounds=3)
            held = claim(store)
            assert held is not None
            for number in range(4):
                with store.write() as session:
                    rounds.commit_round(session, held, record(number, seconds=2.0 if number else 0.0), 60)
            for _ in range(QUEUE_SHOWN + 30):
                submit(store, rounds=900)  # half an hour each
            with store.write() as session:
                workers.register(session, name="w1", host="here", pid=7, device="cpu", slots=2)
            store.close()
            with pages.watched(Product(address)) as open_at:
                page = open_at("/")
                assert page.locator("#queued tbody tr").count() == QUEUE_SHOWN
                assert page.locator('[data-figure="end"] .figure-detail').inner_text() == "in about 20 h"


def test_the_overview_follows_a_running_experiment_to_its_end(night: Night, open_page: OpenPage) -> None:
    page = open_page("/")
    assert "the well ran dry" in page.inner_text("#failed")
    assert [text.split("\t")[1] for text in page.locator("#queued tbody tr").all_inner_texts()] == [
        "waiting 1",
        "waiting 2",
    ]
    row = page.locator(f'#running li[data-id="{night.running}"]')
    assert "2 / 9" in row.inner_text()
    for number in range(3, 9):
        night.advance(number)
    page.wait_for_function(
        "id => document.querySelector(`li[data-id='${id}']`)?.innerText.includes('8 / 9')", arg=night.running
    )
    assert row.locator(".accuracy").inner_text() == f"{100 * (8 + 1.5) / 20:.1f} %"
    night.advance(9)
    page.locator(f'#finished tr[data-id="{night.running}"]').wait_for()
    assert row.count() == 0


LIVE = "import('/static/js/live.js').then(({live}) => %s)"


def test_a_page_about_an_old_experiment_knows_how_far_the_others_are(
    night: Night, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PING_SECONDS", 0.05)
    page = open_page(f"/experiments/{night.finished}")
    night.product.client.patch(f"/api/experiments/{night.failed}", json={"notes": "seen"}).raise_for_status()
    with night.store.read() as session:
        reached = changes.current(session)
    eventually(lambda: page.evaluate(LIVE % "live.last") == reached, "the number of the newest change")


def test_a_connection_that_fell_silent_is_made_anew(night: Night, open_page: OpenPage) -> None:
    page = open_page("/workers")
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
    with page.expect_request("**/api/events?**"):
        page.evaluate(LIVE % "live.heard -= 3_600_000")  # as after a night in which the computer slept
    page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")


def test_a_round_leaves_the_focus_and_a_click_on_the_overview_alone(night: Night, open_page: OpenPage) -> None:
    running = night.put("another one", 9, upto=2)
    for path, where in (("/", "#running"), ("/workers", "#workers")):
        page = open_page(path)
        link = page.locator(f'{where} a[href="/experiments/{running}"]')
        link.focus()
        link.evaluate("link => { window.link = link; }")
        reached = look(night.store, running).next_round
        night.advance(reached)
        page.get_by_text(f"{reached} / 9").wait_for()
        assert page.evaluate("document.activeElement === window.link && link.isConnected")
    for number in range(5, 10):
        night.advance(number)


def test_a_worker_is_silent_by_the_clock_of_the_server(night: Night, open_page: OpenPage) -> None:
    night.work()
    page = open_page("/methods")
    page.add_init_script("if (location.hash === '#wrong-clock') Date.now = () => 4_000_000_000_000")
    for path in ("/", "/workers"):
        page.goto(f"{path}#wrong-clock")
        row = page.locator("#workers tbody tr").first
        assert "just now" in row.inner_text()
        assert "silent" not in row.inner_text()


def note(asked: list[str], request: "Request") -> None:
    asked.append(request.url)


def test_a_hidden_page_asks_for_nothing(night: Night, open_page: OpenPage) -> None:
    for path, data in (("/", "/overview.json"), ("/workers", "/workers.json")):
        page = open_page(path)
        page.wait_for_function("() => document.querySelector('#live').dataset.state === 'live'")
        asked: list[str] = []
        page.on("request", partial(note, asked))
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
        page.evaluate(hide % "true")
        page.evaluate(LIVE % "live.onState(() => setTimeout(() => { window.later = true; }, 500))")
        night.product.client.patch(f"/api/experiments/{night.failed}", json={"notes": path}).raise_for_status()
        page.wait_for_function("() => window.later")  # set after the page would have asked
        assert [url for url in asked if url.endswith(data)] == []
        page.evaluate(hide % "false")
        with page.expect_request(f"**{data}"):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_form_and_the_text_are_one_spec(night: Night, open_page: OpenPage) -> None:
    page = open_page("/new?algorithm=fedprox", ignore=("422",))
    ready = '#verdict[data-state="good"]'
    page.wait_for_selector(ready)
    page.get_by_label("clients", exact=False).first.fill("6")
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('of 6 clients')")
    assert "clients: 6" in page.input_value("#spec")
    page.fill("#spec", page.input_value("#spec").replace("clients: 6", "clients: 5"))
    page.wait_for_function("() => document.querySelector('#field-clients').value === '5'")
    page.wait_for_function("() => document.querySelector('#partition-map').heatmap.heat?.values.length === 5")
    spec = night.product.client.post("/api/check", json={**example(page), "name": None}).json()["spec"]
    counts = night.product.client.post("/api/partition", json=spec).json()["counts"]
    assert page.evaluate("document.querySelector('#partition-map').heatmap.heat.values") == counts
    page.locator("#partition-map summary").click()
    page.wait_for_function("() => document.querySelectorAll('#partition-map tbody tr').length === 5")
    page.wait_for_function("() => document.querySelector('#cost-bytes')?.textContent.endsWith('B')")
    assert "roughly" in page.inner_text("#queue-it") or "about" in page.inner_text("#queue-it")
    page.fill("#field-participation", "1.5")
    page.wait_for_selector('#verdict[data-state="bad"]')
    assert "1.5" in page.inner_text("#field-participation-error")
    page.fill("#field-participation", "1")
    page.wait_for_selector(ready)
    page.select_option("#preset", "B")
    page.wait_for_function("() => document.querySelector('#spec').value.includes('rounds: 1000')")
    page.get_by_label("curl").check()
    page.wait_for_selector(ready)
    assert page.inner_text("#expanded").startswith("curl -X POST")


def example(page: "Page") -> Any:
    script = "text => import('/static/vendor/js-yaml/js-yaml.esm.min.mjs').then(({load}) => load(text))"
    return page.evaluate(script, page.input_value("#spec"))


def test_the_list_is_narrowed_grouped_and_labelled(night: Night, open_page: OpenPage) -> None:
    page = open_page("/experiments?sort=name&order=up")
    names = page.locator("#experiments tbody .name-link")
    assert names.all_inner_texts() == sorted(names.all_inner_texts())
    page.select_option("#algorithm-filter", "standalone")
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 2")
    assert "algorithm=standalone" in page.url
    page.locator("#select-all").check()
    page.fill("#tag-input", "later")
    page.get_by_role("button", name="Add tag").click()
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody .tag').length === 2")
    assert [look(night.store, key).tags for key in night.queued] == [["later"], ["later"]]
    page.get_by_role("button", name="Cancel 2").click()
    page.wait_for_function("() => document.querySelectorAll('.chip[data-state=cancelled]').length === 2")
    page.select_option("#algorithm-filter", "")
    page.locator("#group").check()
    page.wait_for_function("() => document.querySelectorAll('#experiments tr.group').length === 2")
    page.locator("#columns summary").click()
    page.get_by_label("Seed").check()
    page.reload()
    assert page.locator('th[data-column="seed"]').count() == 1


def test_an_experiment_shows_its_clients_groups_and_traces(night: Night, open_page: OpenPage) -> None:
    page = open_page(f"/experiments/{night.finished}")
    assert page.locator("#spread .box").count() == 3
    heat = page.evaluate("document.querySelector('#client-rounds').heatmap.heat.values")
    assert heat == [[(number + k) / 20 for number in (1, 2, 3)] for k in range(CLIENTS)]
    charts = page.evaluate("Object.fromEntries(Object.entries(fedarena.charts).map(([k, c]) => [k, c.data]))")
    assert charts["trace-alpha_mean"][0]["y"] == pytest.approx([0.9, 0.8, 0.7])
    assert [line["y"] for line in charts["trace-weights"]] == [[0.25] * 3, [0.75] * 3]
    assert len(charts["groups"]) == 3
    page.locator("#partition-map").scroll_into_view_if_needed()
    page.wait_for_function(f"() => document.querySelector('#partition-map').heatmap.heat?.values.length === {CLIENTS}")
    page.locator("#labels summary").click()
    page.fill("#label-name", "renamed")
    page.fill("#label-tags", "night, best")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_function("() => document.querySelector('h1').textContent === 'renamed'")
    assert look(night.store, night.finished).tags == ["night", "best"]


def test_a_page_of_too_many_clients_says_which_rounds_it_shows_them_for(
    night: Night, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_CLIENT_VALUES", 2 * CLIENTS)
    page = open_page(f"/experiments/{night.finished}")
    assert "show 2 of the 3 rounds" in page.inner_text("#detailed")
    charts = page.evaluate("Object.fromEntries(Object.entries(fedarena.charts).map(([k, c]) => [k, c.data[0]]))")
    assert charts["accuracy"]["y"][1:] == [played(number).accuracy for number in (1, 2, 3)]
    assert charts["clients"]["y"] == [(3 + k) / 20 for k in range(CLIENTS)]
    assert page.evaluate("document.querySelector('#client-rounds').heatmap.heat.values[0]") == [1 / 20, 3 / 20]


def test_a_method_has_formulas_and_a_price(open_page: OpenPage) -> None:
    page = open_page("/methods/fedavg")
    assert page.locator(".equations math").count() >= 3
    page.wait_for_function("() => /B$/.test(document.querySelector('[data-cost=up]').textContent)")


def test_experiments_are_steered_from_the_list(night: Night, open_page: OpenPage) -> None:
    key = submit(night.store, name="to be steered", algorithm={"name": "standalone"})
    page = open_page("/experiments?search=steered")
    chip = page.locator(f'tr[data-id="{key}"] .chip')
    page.locator(f'tr[data-id="{key}"] input[type=checkbox]').check()
    for button, state in (("Pause 1", "paused"), ("Resume 1", "queued"), ("Cancel 1", "cancelled")):
        page.get_by_role("button", name=button, exact=True).click()
        page.wait_for_selector(f'tr[data-id="{key}"] .chip[data-state="{state}"]')
    assert chip.inner_text().strip() == "Cancelled"
    page.get_by_role("button", name="Retry 1", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 2")
    page.get_by_role("button", name="Delete 1", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 1")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 2")
    assert look(night.store, key).deleted_at is None


def test_a_deletion_can_be_undone_wherever_it_was_made(night: Night, open_page: OpenPage) -> None:
    keys = [submit(night.store, name=f"to be deleted {n}", algorithm={"name": "standalone"}) for n in range(3)]
    for key in keys:
        with night.store.write() as session:
            lifecycle.cancel(session, key)
    page = open_page(f"/experiments/{keys[0]}", ignore=("409",))
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_url("**/experiments")
    page.get_by_role("button", name="Undo").click()
    page.locator(f'tr[data-id="{keys[0]}"]').wait_for()
    page.goto("/experiments?search=deleted")
    page.locator("#select-all").check()
    refusal = {"errors": [{"field": "", "message": "not now", "value": None}]}
    page.route(f"**/api/experiments/{keys[1]}", lambda route: route.fulfill(status=409, json=refusal))
    page.get_by_role("button", name="Delete 3", exact=True).click()
    page.get_by_text("1 of 3 refused: not now").wait_for()
    assert "2 deleted" in page.inner_text("#notices")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.querySelectorAll('#experiments tbody tr').length === 3")
    assert [look(night.store, key).deleted_at for key in keys] == [None] * 3


def test_an_experiment_page_pauses_it_and_shows_its_log(night: Night, open_page: OpenPage) -> None:
    key = submit(night.store, name="runs for the log")
    with night.store.write() as session:
        steering.change_plan(session, key, {"priority": 50})
    held = claim(night.store, "w1", LEASE_SECONDS)
    assert held is not None
    assert held.experiment == key
    with night.store.write() as session:
        assert logs.append(session, held, [logs.Line(0.0, "info", "<b>said</b>")])
    page = open_page(f"/experiments/{key}")
    page.get_by_text("Worker log").click()
    page.wait_for_function("() => document.querySelector('#log-lines').textContent.includes('<b>said</b>')")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    assert look(night.store, key).pause
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()


def test_an_experiment_says_why_it_waits_and_what_ended_it_early(night: Night, open_page: OpenPage) -> None:
    key = submit(night.store, name="with a story")
    plan = {"priority": 70, "start_after": datetime(2100, 1, 1, tzinfo=UTC), "window": Window.parse("22:00-06:00")}
    with night.store.write() as session:
        steering.change_plan(session, key, Plan(**plan).columns())
    page = open_page(f"/experiments/{key}")
    story = page.locator("#story")
    assert "Starts after 2100-01-01" in story.inner_text()
    assert "Runs only from 22:00 to 06:00 UTC · Priority 70" in story.inner_text()
    with night.store.write() as session:
        steering.pause(session, key, "the room is too warm")
    page.get_by_text("Paused: the room is too warm").wait_for()
    with night.store.write() as session:
        steering.resume(session, key)
        always = Plan(priority=70, stop=StopRule(target=0.1))
        steering.change_plan(session, key, always.columns())
    held = claim(night.store, "w1", LEASE_SECONDS)
    assert held is not None
    assert held.experiment == key
    for number in (0, 1):
        with night.store.write() as session:
            rounds.commit_round(session, held, played(number), LEASE_SECONDS)
    page.get_by_text("Ended early: accuracy 0.1250 reached the target 0.1 in round 1").wait_for()
    page.goto(f"/experiments/{night.finished}")
    assert page.locator("#story").is_hidden()


def test_fields_of_the_form_are_swept_and_queued_as_one_sweep(night: Night, open_page: OpenPage) -> None:
    page = open_page("/new?algorithm=fedavg", ignore=("422",), color_scheme="dark")
    ready = '#verdict[data-state="good"]'
    page.wait_for_selector(ready)
    page.get_by_role("button", name="sweep Method").press("Enter")
    page.get_by_label("FedProx", exact=True).check()
    page.locator("summary", has_text="FedProx: as by default").click()
    page.locator("#method-1-mu").fill("0.5")
    page.get_by_role("button", name="sweep lr").press("Enter")
    page.keyboard.type(", 99")
    page.locator('[data-path="training.lr"] .field-error').wait_for()
    assert "99" in page.inner_text('[data-path="training.lr"] .field-error')
    assert page.locator("#queue-it").is_disabled()
    page.keyboard.press("Control+A")
    page.keyboard.type("0.01, 0.1, 0.2")
    page.get_by_role("button", name="sweep run seed").press("Enter")
    page.wait_for_function("() => document.querySelector('#queue-it').textContent.startsWith('Queue 18 experiments (')")
    assert "18 experiments in 6 cells" in page.inner_text("#verdict")
    assert violations(page) == []
    page.reload()
    page.wait_for_selector(ready)
    assert page.input_value("#field-training-lr-values") == "0.01, 0.1, 0.2"
    assert example(page)["grid"]["algorithm"] == [{"name": "fedavg"}, {"name": "fedprox", "mu": 0.5}]
    page.get_by_role("link", name="Open as a sweep").click()
    page.wait_for_url("**/sweeps/new#*")
    page.wait_for_selector(ready)
    assert violations(page) == []
    page.get_by_role("link", name="Open in the form").click()
    page.wait_for_selector(ready)
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/sweeps/0*")
    assert page.locator("#cells .seed").count() == 18
    assert violations(page) == []
    key = page.url.rsplit("/", 1)[1]
    assert night.product.get(f"/api/sweeps/{key}")["experiments"] == 18
    page.locator("#cells a.seed").first.click()
    page.wait_for_url("**/experiments/0*")
    page.locator("#story").get_by_role("link", name="my-first-sweep").click()
    page.wait_for_url(f"**/sweeps/{key}")
    night.product.client.post(f"/api/sweeps/{key}/cancel", json={})
