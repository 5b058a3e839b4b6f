"""The HTML pages: what the server sends before any script runs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.comparison.curves import NAMES
from app.comparison.palette import palette
from app.config import Settings
from app.main import create_app
from app.pages.assets import STATIC
from app.pages.machine import shown_settings
from app.pages.rendering import TEMPLATES
from app.pages.routes import MOST_COMPARED
from app.store import experiments, lifecycle, queue, rounds, workers
from app.store.states import State
from app.studies import costs
from app.tex import LETTERS
from engine.records import NO_CONVERGENCE, RoundRecord
from engine.spec.experiment import ExperimentSpec
from tests.engine.data.layouts import pixels, write_idx

SPEC: dict[str, Any] = {
    "algorithm": {"name": "fedavg"},
    "dataset": {"name": "digits"},
    "partition": {"name": "iid"},
    "models": {"family": "tiny-cnn"},
    "rounds": 2,
}
NASTY = "</script><script>alert('1')</script>\u2028&amp;"


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return create_app(Settings(home=tmp_path / "home", starter=False))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1", headers={"accept": "text/html"}) as client:
        yield client


def store(app: FastAPI, **changes: Any) -> str:
    spec = ExperimentSpec.parse({**SPEC, **changes})
    with app.state.database.write() as session:
        return experiments.submit(session, spec.canonical(), spec.fingerprint()).id


def store_round(app: FastAPI, accuracy: float) -> None:
    """Round 0 of the first experiment that waits."""
    counts = dict.fromkeys(
        ("scalars_up", "scalars_down", "bytes_up", "bytes_down", "client_flops", "server_flops", "eval_flops"), 1
    )
    times = dict.fromkeys(("seconds", "client_seconds", "server_seconds"), 0.5)
    record = RoundRecord(
        round=0, accuracy=accuracy, loss=None, cohort=[0], client_accuracy={"0": accuracy}, **counts, **times
    )
    with app.state.database.write() as session:
        claim = queue.claim(session, "worker", 60)
        assert claim is not None
        rounds.commit_round(session, claim, record, 60)


def page_data(html: str, name: str = "page-data") -> Any:
    block = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)
    assert block is not None
    return json.loads(block[1])


def test_the_overview_knows_what_runs_waits_and_who_works(app: FastAPI, client: TestClient) -> None:
    first, second = store(app, name="first"), store(app, name="second")
    store_round(app, 0.5)
    with app.state.database.write() as session:
        workers.register(session, name="w", host="here", pid=1, device="cpu", slots=2)
    data = page_data(client.get("/").text)
    assert [item["id"] for item in data["running"]] == [first]
    assert [item["id"] for item in data["queued"]] == [second]
    assert data["curves"][first]["accuracy"] == [0.5]
    assert data["counts"] == {"running": 1, "queued": 1}
    assert [worker["name"] for worker in data["workers"]] == ["w"]
    assert data["slots"] == 2
    assert client.get("/overview.json").json()["expected"] == {first: None, second: None}


def test_a_failure_comes_first_with_its_reason(app: FastAPI, client: TestClient) -> None:
    store(app)
    with app.state.database.write() as session:
        claim = queue.claim(session, "worker", 60)
        assert claim is not None
        lifecycle.fail(session, claim, "out of luck", "a long traceback")
    data = client.get("/overview.json").json()
    assert [item["error"]["reason"] for item in data["failed"]] == ["out of luck"]
    assert data["failed_today"] == 1
    assert "a long traceback" not in client.get("/").text


def test_the_list_comes_with_its_first_rows(app: FastAPI, client: TestClient) -> None:
    older, newer = store(app, name="older"), store(app, name="newer")
    data = page_data(client.get("/experiments").text)
    assert [item["id"] for item in data["items"]] == [newer, older]
    assert data["total"] == 2
    assert data["seq"] >= max(item["seq"] for item in data["items"])


def test_the_list_obeys_the_filters_of_the_address(app: FastAPI, client: TestClient) -> None:
    store(app, name="apple")
    pear = store(app, name="pear")
    assert [item["id"] for item in page_data(client.get("/experiments?search=pear").text)["items"]] == [pear]
    assert page_data(client.get("/experiments?state=finished").text)["items"] == []


def test_the_list_is_sorted_and_narrowed_by_the_server(app: FastAPI, client: TestClient) -> None:
    few, many = store(app, clients=2, tags=["night"]), store(app, clients=30, algorithm={"name": "standalone"})
    shown = page_data(client.get("/experiments?sort=clients&order=up").text)
    assert [item["id"] for item in shown["items"]] == [few, many]
    assert shown["choices"] == {"algorithms": ["fedavg", "standalone"], "datasets": ["digits"], "tags": ["night"]}
    for narrow, found in (("tag=night", few), ("algorithm=standalone", many)):
        assert [item["id"] for item in page_data(client.get(f"/experiments?{narrow}").text)["items"]] == [found]
    assert client.get("/experiments?sort=colour").status_code == 422


def test_a_state_that_does_not_exist_is_explained(client: TestClient) -> None:
    answer = client.get("/experiments?state=lost")
    assert answer.status_code == 422
    assert "queued" in answer.text


def test_an_experiment_comes_with_its_rounds_and_its_spec_in_order(app: FastAPI, client: TestClient) -> None:
    experiment = store(app)
    store_round(app, 0.25)
    data = page_data(client.get(f"/experiments/{experiment}").text)
    assert [record["accuracy"] for record in data["rounds"]] == [0.25]
    assert list(data["experiment"]["spec"]) == list(ExperimentSpec.parse(SPEC).canonical())


def test_an_unknown_experiment_is_a_page_with_status_404(client: TestClient) -> None:
    answer = client.get("/experiments/nothing")
    assert answer.status_code == 404
    assert "There is no experiment “nothing”" in answer.text


def test_a_comparison_names_what_it_could_not_find(app: FastAPI, client: TestClient) -> None:
    experiment = store(app)
    store_round(app, 0.5)
    data = page_data(client.get(f"/compare?ids={experiment},gone,{experiment}").text)
    assert [item["id"] for item in data["experiments"]] == [experiment]
    assert data["missing"] == ["gone"]
    assert set(data["curves"][experiment]) == {*NAMES, "thinned"}
    assert data["curves"][experiment]["accuracy"] == [0.5]


def test_a_comparison_has_an_upper_limit(client: TestClient) -> None:
    answer = client.get(f"/compare?ids={','.join(map(str, range(MOST_COMPARED + 1)))}")
    assert answer.status_code == 422
    assert str(MOST_COMPARED) in answer.text


def test_a_new_experiment_can_start_from_another(app: FastAPI, client: TestClient) -> None:
    experiment = store(app, seed=7)
    assert page_data(client.get(f"/new?from={experiment}").text)["spec"]["seed"] == 7
    assert client.get("/new?from=gone").status_code == 404


def test_the_form_knows_every_method_of_the_catalogue(client: TestClient) -> None:
    known = client.get("/api/catalog").json()["algorithms"]
    shown = page_data(client.get("/new").text)["catalogue"]["algorithms"]
    assert [item["id"] for item in shown] == [item["id"] for item in known]


def test_the_queue_counts_what_runs_and_waits(app: FastAPI, client: TestClient) -> None:
    store(app)
    store(app)
    store_round(app, 0.5)
    assert client.get("/queue.json").json() == {"running": 1, "queued": 1}


def test_text_from_a_spec_cannot_leave_its_place(app: FastAPI, client: TestClient) -> None:
    experiment = store(app, name=NASTY, tags=["<i>tag</i>"], notes=NASTY)
    for path in ("/experiments", f"/experiments/{experiment}", f"/compare?ids={experiment}", f"/new?from={experiment}"):
        html = client.get(path).text
        assert "alert('1')" not in html
        assert "<i>" not in html
    assert page_data(client.get(f"/experiments/{experiment}").text)["experiment"]["name"] == NASTY


def test_pages_are_not_kept_by_the_browser_and_scripts_are_asked_for_each_time(client: TestClient) -> None:
    assert client.get("/experiments").headers["cache-control"] == "no-store"
    script = client.get("/static/js/live.js")
    assert script.headers["cache-control"] == "no-cache"
    again = client.get("/static/js/live.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304


def test_pages_scripts_and_answers_are_compressed_for_whoever_asks(app: FastAPI, client: TestClient) -> None:
    store(app)
    for path in ("/experiments", "/static/js/live.js", "/api/experiments"):
        packed = client.get(path, headers={"accept-encoding": "gzip"})
        plain = client.get(path, headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip", path
        assert "content-encoding" not in plain.headers, path
        assert packed.text == plain.text, path


def test_every_file_a_template_names_is_served(client: TestClient) -> None:
    named = {
        name
        for template in TEMPLATES.glob("*.html")
        for name in re.findall(r'(?:href|src)="(/static/[^"{}]+)"', template.read_text(encoding="utf-8"))
    }
    assert named
    assert [name for name in sorted(named) if client.get(name).status_code != 200] == []


def test_every_module_a_script_imports_exists() -> None:
    missing = [
        f"{script.name}: {name}"
        for script in (STATIC / "js").rglob("*.js")
        for name in re.findall(r'from "(\.[^"]+)"', script.read_text(encoding="utf-8"))
        if not (script.parent / name).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("path", ["/", "/experiments", "/compare", "/new", "/settings"])
def test_a_page_names_its_modules_and_all_that_they_import(client: TestClient, path: str) -> None:
    page = client.get(path)
    named = re.findall("<([^>]+)>; rel=modulepreload", page.headers["link"])
    assert set(re.findall(r'<script type="module" src="([^"]+)"', page.text)) <= set(named)
    for name in named:
        imported = re.findall(r'^(?:import .*|\} )from "([^"]+)"', client.get(name).text, re.MULTILINE)
        assert {urljoin(name, part) for part in imported} <= set(named), name


def test_templates_hold_no_inline_script_style_or_unescaped_text() -> None:
    forbidden = re.compile(r"""<script>|<style|\sstyle=|\son\w+=|\|\s*safe\b|javascript:""")
    found = [
        f"{template.name}: {hit}"
        for template in TEMPLATES.glob("*.html")
        for hit in forbidden.findall(template.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_scripts_never_turn_text_into_markup() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    found = [
        f"{script.name}: {hit}"
        for script in (STATIC / "js").rglob("*.js")
        for hit in forbidden.findall(script.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_nothing_is_loaded_from_another_host() -> None:
    own = [*TEMPLATES.glob("*.html"), *(STATIC / "js").rglob("*.js"), *(STATIC / "css").glob("*.css")]
    texts = {path.name: path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "") for path in own}
    assert [name for name, text in texts.items() if re.search(r"https?://\w", text)] == []


@pytest.mark.parametrize("path", ["/", "/experiments", "/compare", "/new", "/settings", "/experiments/nothing"])
def test_every_page_says_what_browser_and_server_both_know(client: TestClient, path: str) -> None:
    told = page_data(client.get(path, headers={"accept": "text/html"}).text, "vocabulary")
    assert [(state["id"], state["ended"]) for state in told["states"]] == [(s, s.is_finished()) for s in State]
    assert {key: place["title"] for key, place in told["palette"]["methods"].items()} == {
        method["id"]: method["title"] for method in client.get("/api/catalog").json()["algorithms"]
    }
    assert told["latex"] == LETTERS
    assert told["no_convergence"] == NO_CONVERGENCE
    assert told["part_titles"]["dataset"] == "data set"


def test_the_scripts_have_no_list_of_states_methods_or_letters_of_their_own() -> None:
    """The vocabulary of the page is the one source."""
    words = re.compile(r'"(?:queued|failed|cancelled|diverged)", "|"(?:fedproto|scaffold)"|"α"')
    found = [
        f"{script.name}: {hit}"
        for script in (STATIC / "js").rglob("*.js")
        for hit in words.findall(script.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_method_is_listed_and_has_a_page_with_its_equations(client: TestClient) -> None:
    listed = client.get("/methods").text
    for method in client.get("/api/catalog").json()["algorithms"]:
        assert f'href="/methods/{method["id"]}"' in listed
        page = client.get(f"/methods/{method['id']}")
        assert page.status_code == 200
        assert "<math>" in page.text
    assert client.get("/methods/nothing").status_code == 404


def test_a_method_shows_what_was_measured_and_what_is_published(app: FastAPI, client: TestClient) -> None:
    experiment = store(app, algorithm={"name": "pfedafm"}, name="mine")
    store_round(app, 0.25)
    with app.state.database.write() as session:
        row = experiments.get(session, experiment)
        assert row is not None
        row.best_accuracy, row.best_round = 0.875, 2
    html = client.get("/methods/pfedafm").text
    assert f'href="/experiments/{experiment}">mine</a>' in html
    assert "87.5" in html
    assert 'id="pfedafm/table-2/pfedafm/cifar10/cnn-1/n10/accuracy"' in html


def test_the_cost_of_a_method_comes_with_its_page(client: TestClient) -> None:
    listed = page_data(client.get("/methods").text)["costs"]
    assert (listed["standalone"]["round"]["bytes_up"], listed["fedavg"]["round"]["bytes_up"]) == (0, 59_869_392)
    assert page_data(client.get("/methods/fedavg").text)["costs"] == {"fedavg": listed["fedavg"]}


def test_a_method_from_elsewhere_has_its_pages_before_its_cost_and_its_colour_are_written_down(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: cost for name, cost in costs.written().items() if name != "ditto"}
    (tmp_path / "costs.json").write_text(json.dumps(known))
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    monkeypatch.setitem(palette(), "methods", {})
    costs.written.cache_clear()
    try:
        listed, page = client.get("/methods"), client.get("/methods/ditto")
    finally:
        costs.written.cache_clear()
    assert (listed.status_code, page.status_code) == (200, 200)
    assert page_data(listed.text)["costs"]["ditto"] == {"reason": "its cost was never measured"}
    assert page_data(listed.text)["costs"]["fedavg"] == known["fedavg"]


def test_a_method_that_is_written_wrongly_gets_the_one_that_was_meant(client: TestClient) -> None:
    def message(name: str) -> str:
        page: str = client.get(f"/methods/{name}", headers={"accept": "text/html"}).text
        return page.partition("<main")[2]

    assert "Did you mean pfedafm" in message("pfedamf")
    assert "scaffold" not in message("pfedamf")
    assert "scaffold" in message("nothing")


def test_settings_hide_passwords_and_say_where_a_value_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDARENA_LOG_LEVEL", "warning")
    settings = Settings(home=tmp_path, broker_url="redis://me:letmein@host/0")
    shown = {row["variable"]: row for row in shown_settings(settings)}
    assert (shown["FEDARENA_LOG_LEVEL"]["value"], shown["FEDARENA_LOG_LEVEL"]["source"]) == ("warning", "environment")
    assert shown["FEDARENA_BROKER_URL"]["value"] == "redis://me:hidden@host/0"
    assert (shown["FEDARENA_HOME"]["source"], shown["FEDARENA_PORT"]["source"]) == ("command line", "default")


def test_a_missing_data_set_comes_with_the_command_that_fetches_it(client: TestClient) -> None:
    assert "<code>fedarena data get cifar10</code>" in client.get("/datasets").text


def test_a_data_set_that_is_not_complete_says_how_many_images_are_there(client: TestClient, app: FastAPI) -> None:
    write_idx(app.state.services.settings.data_root / "mnist", pixels(3, channels=1), pixels(2, channels=1))
    page = client.get("/datasets").text
    assert "Incomplete</span>" in page
    assert "5 of 70,000" in page


def test_a_worker_is_shown_with_what_it_works_on(app: FastAPI, client: TestClient) -> None:
    experiment = store(app, name="busy")
    with app.state.database.write() as session:
        workers.register(session, name="worker", host="here", pid=1, device="cpu", slots=1)
    store_round(app, 0.5)
    [row] = page_data(client.get("/workers").text)["workers"]
    assert row["experiments"] == [{"id": experiment, "name": "busy", "round": 0, "of": 2}]
    assert client.get("/workers.json").json()["workers"] == [row]
    assert client.get("/settings").status_code == 200


def test_a_sweep_is_shown_with_its_document_and_can_be_copied(app: FastAPI, client: TestClient) -> None:
    document = {"name": NASTY, "base": SPEC, "grid": {"rounds": [1, 2]}, "seeds": [1, 2]}
    key = client.post("/api/sweeps", json=document).json()["id"]
    page = client.get(f"/sweeps/{key}").text
    assert "<script>alert" not in page
    assert page_data(page)["sweep"]["counts"] == {"queued": 4}
    assert page_data(client.get("/sweeps").text)["items"][0]["name"] == NASTY
    copied = page_data(client.get(f"/sweeps/new?from={key}").text)["yaml"]
    assert yaml.safe_load(copied) == document
    assert client.get("/sweeps/nothing").status_code == 404
    assert client.get("/sweeps/new?from=nothing").status_code == 404
