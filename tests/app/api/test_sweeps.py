"""Sweeps over HTTP: dry run, submission, table, steering."""

import csv
import io
import json
import re
from typing import Any

import httpx
import pytest
import yaml

from app.api import sweeps
from app.store.database import Database
from app.store.pace import HANDOVER
from engine.records import NO_CONVERGENCE
from tests.app.store.test_sweeps import run_all
from tests.browser.filled import put
from tests.services import SPEC, record

BASE = {key: value for key, value in SPEC.items() if key not in {"name", "seed"}}
ONCE = 0.25 + HANDOVER
"""Seconds of an opening and a start, as `run_all` makes them up."""


def document(name: str, **fields: Any) -> dict[str, Any]:
    """The name is part of the data set's seed, so that tests of one server do not reuse each other's experiments."""
    seed = sum(map(ord, name)) * 1000 + len(name)
    base = {**BASE, "dataset": {**BASE["dataset"], "seed": seed}}
    return {"name": name, "base": base, "grid": {"rounds": [1, 2]}, "seeds": [1, 2], **fields}


def posted(client: httpx.Client, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    answer = client.post("/api/sweeps", json=body, **options)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def errors(answer: httpx.Response) -> dict[str, str]:
    return {item["field"]: item["message"] for item in answer.json()["errors"]}


def test_yaml_and_json_make_the_same_sweep(client: httpx.Client) -> None:
    body = document("formats")
    text = yaml.safe_dump(body)
    answer = client.post("/api/sweeps", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201
    first = answer.json()
    assert answer.headers["Location"] == f"/api/sweeps/{first['id']}"
    assert (first["experiments"], first["counts"], first["paths"]) == (4, {"queued": 4}, ["rounds"])
    second = posted(client, body)
    assert second["document"] == first["document"]
    assert second["reused"] == 4


def test_yaml_is_taken_by_the_routes_of_sweeps_alone(client: httpx.Client) -> None:
    answer = client.post("/api/experiments", content="a: 1", headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 415


def test_a_dry_run_counts_and_explains_without_storing_anything(client: httpx.Client) -> None:
    before = client.get("/api/sweeps").json()["items"]
    body = document(
        "dry", grid={"topology": ["server", "gossip"], "rounds": [1, 2]}, exclude=[{"rounds": 2, "seed": 2}]
    )
    found = client.post("/api/sweeps/check", json=body).json()
    assert (found["ok"], found["cells"], found["experiments"], found["excluded"], found["to_run"]) == (True, 4, 6, 2, 3)
    assert [(item["cell"], item["experiments"]) for item in found["not_applicable"]] == [
        ("topology gossip, rounds 1", 2),
        ("topology gossip, rounds 2", 1),
    ]
    assert found["cost"]["unknown_seconds"] == 3
    assert found["cost"]["text"] == "no measurement yet"
    assert client.get("/api/sweeps").json()["items"] == before


def test_a_dry_run_shows_what_exists_and_what_the_rest_costs(client: httpx.Client, store: Database) -> None:
    posted(client, document("known", grid={"rounds": [1]}))
    run_all(store)
    found = client.post("/api/sweeps/check", json=document("known", grid={"rounds": [1, 20]})).json()
    assert (found["reused"], found["to_run"]) == ({"finished": 2}, 2)
    assert found["cost"]["seconds"] == pytest.approx(2 * (20 * 0.25 + ONCE))
    assert found["cost"]["bytes"] == 2 * (20 + 1) * 120
    assert (found["cost"]["text"], found["cost"]["days"]) == ("about 11 s", None)


@pytest.mark.parametrize(
    ("window", "days", "text"),
    [
        ("22:00-06:00", 1, "about 5 min within its window on 1 day"),
        ("23:59-00:01", 3, "about 5 min within its window on 3 days"),
    ],
)
def test_a_dry_run_tells_on_how_many_days_the_window_must_open(
    client: httpx.Client, store: Database, window: str, days: int, text: str
) -> None:
    name = f"nightly {days}"
    posted(client, document(name, grid={"rounds": [1]}))
    run_all(store)
    body = document(name, grid={"rounds": [1, 600]}, window=window)
    cost = client.post("/api/sweeps/check", json=body).json()["cost"]
    assert (cost["days"], cost["text"]) == (days, text)
    assert cost["seconds"] == pytest.approx(2 * (600 * 0.25 + ONCE))


def test_a_dry_run_rehearses_what_was_never_measured_when_it_is_asked_to(client: httpx.Client) -> None:
    body = document("rehearsed", grid={"training.batch_size": [4, 8]}, seeds=[1, 2, 3])
    cost = client.post("/api/sweeps/check", json=body, params={"rehearse": True}).json()["cost"]
    spec = {**body["base"], "training": {**BASE["training"], "batch_size": 4}, "seed": 1}
    alone = client.post("/api/estimate", json=spec).json()["estimate"]
    assert (cost["rehearsed"], cost["unknown_seconds"], cost["unknown_bytes"], cost["unknown_flops"]) == (6, 0, 0, 0)
    assert cost["bytes"] == 6 * SPEC["rounds"] * (alone["round"]["bytes_up"] + alone["round"]["bytes_down"])
    assert cost["flops"] == 6 * SPEC["rounds"] * alone["round"]["client_flops"]
    assert cost["seconds"] > 0
    assert cost["text"].startswith("roughly ")


def test_one_wrong_cell_refuses_the_whole_sweep(client: httpx.Client) -> None:
    body = document("wrong", grid={"training.lr": [0.1, -1]})
    checked = client.post("/api/sweeps/check", json=body).json()
    assert (checked["ok"], checked["refused"][0]["field"], checked["refused"][0]["experiments"]) == (
        False,
        "training.lr",
        2,
    )
    assert (checked["experiments"], checked["cells"], checked["to_run"]) == (4, 2, 2)
    answer = client.post("/api/sweeps", json=body)
    assert answer.status_code == 422
    assert "(in lr -1 and 1 more)" in errors(answer)["training.lr"]
    assert [item for item in client.get("/api/sweeps").json()["items"] if item["name"] == "wrong"] == []


def test_an_endless_grid_is_refused(client: httpx.Client) -> None:
    grid = {f"training.x{number}": list(range(10)) for number in range(9)}
    answer = client.post("/api/sweeps/check", json=document("endless", grid=grid))
    assert answer.status_code == 422
    assert "= 2000000000" in errors(answer)["grid"]


def plan_of(client: httpx.Client, view: dict[str, Any]) -> dict[str, Any]:
    """The plan of the sweep's first experiment."""
    found: dict[str, Any] = client.get(f"/api/experiments/{view['cells'][0]['runs'][0]['experiment']}").json()
    return {name: found[name] for name in ("priority", "start_after", "window")}


def test_a_plan_beside_the_document_stands_above_it(client: httpx.Client) -> None:
    plan: dict[str, str | int] = {
        "priority": 7,
        "start_after": "2999-01-31T22:00:00Z",
        "window": "20:00-04:00",
        "zone": "+02:00",
    }
    body = document("planned", priority=1, window="22:00-06:00")
    assert client.post("/api/sweeps/check", json=body, params=plan).json()["ok"]
    view = posted(client, body, params=plan)
    assert plan_of(client, view) == {
        "priority": 7,
        "start_after": "2999-01-31T22:00:00.000Z",
        "window": {"from": "18:00", "to": "02:00", "zone": "UTC"},
    }
    assert view["document"]["window"] == {"from": "20:00", "to": "04:00", "zone": "+02:00"}
    assert posted(client, view["document"])["reused"] == 4, "the stored document says the same"


@pytest.mark.parametrize(
    ("window", "hour"),
    [
        ("22:00-06:00", "20:00"),
        ({"from": "22:00", "to": "06:00"}, "20:00"),
        ({"from": "22:00", "to": "06:00", "zone": "UTC"}, "22:00"),
    ],
)
def test_a_zone_beside_the_document_is_for_a_window_that_names_none(
    client: httpx.Client, window: Any, hour: str
) -> None:
    view = posted(client, document("zones", window=window, reuse=False), params={"zone": "+02:00"})
    assert plan_of(client, view)["window"]["from"] == hour


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"priority": 101}, "priority"),
        ({"window": "late"}, "window"),
        ({"window": "1:00-2:00", "zone": "x"}, "window.zone"),
    ],
)
def test_a_bad_plan_beside_the_document_is_refused_with_its_name(
    client: httpx.Client, plan: dict[str, Any], field: str
) -> None:
    answer = client.post("/api/sweeps", json=document("unplanned"), params=plan)
    assert (answer.status_code, list(errors(answer))) == (422, [field])


@pytest.mark.parametrize("path", ["/api/sweeps", "/api/sweeps/check", "/api/experiments"])
@pytest.mark.parametrize("text", [r'{"name": "\ud800", "base": {}}', r'{"\ud800": 1}', r'{"tags": [{"a": "\udc00"}]}'])
def test_text_that_no_answer_could_repeat_is_refused_all_the_same(client: httpx.Client, path: str, text: str) -> None:
    answer = client.post(path, content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert "\\u" in answer.text


def test_a_repeated_key_makes_one_sweep(client: httpx.Client) -> None:
    body, headers = document("once"), {"Idempotency-Key": "sweep-once"}
    first = client.post("/api/sweeps", json=body, headers=headers)
    again = client.post("/api/sweeps", json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    other = client.post("/api/sweeps", json={**body, "notes": "changed"}, headers=headers)
    assert (other.status_code, list(errors(other))) == (422, ["Idempotency-Key"])


def test_the_table_is_ready_for_a_paper(client: httpx.Client, store: Database) -> None:
    body = document(
        "table",
        grid={"algorithm": [{"name": "fedavg"}, {"name": "fedprox", "mu": 0.5}]},
        report={"target": 0.5},
    )
    key = posted(client, body)["id"]
    run_all(store)
    rows = list(csv.DictReader(io.StringIO(client.get(f"/api/sweeps/{key}/table.csv").text)))
    assert [json.loads(row["algorithm"])["name"] for row in rows] == ["fedavg", "fedprox"]
    assert (float(rows[0]["best_accuracy_mean"]), rows[0]["seeds"], rows[0]["rounds_to_target_mean"]) == (
        0.515,
        "2",
        "1.0",
    )
    markdown = client.get(f"/api/sweeps/{key}/table.md").text.splitlines()
    costs = "Rounds to 50 % | MB to 50 % | TFLOP to 50 % | MB spent to 50 % | TFLOP spent to 50 %"
    assert markdown[0] == f"| Method | Seeds | Best (%) | Final (%) | {costs} |"
    assert markdown[3].startswith("| FedProx (mu 0.5) | 2 | **51.50 ± 0.71** |")
    latex = client.get(f"/api/sweeps/{key}/table.tex").text
    assert "\\toprule" in latex
    assert "  FedAvg & 2 & \\textbf{51.50 $\\pm$ 0.71}" in latex
    assert "Rounds to 50 \\%" in latex


def test_the_table_marks_what_did_not_converge_and_says_what_that_means(client: httpx.Client, store: Database) -> None:
    body = document("unlearned", grid={"algorithm.name": ["fedavg", "fedper", "fedbabu"]}, seeds=[1, 2])
    body["base"]["rounds"] = 3
    for name, shares in {"fedavg": (0.2, 0.2), "fedper": (0.49, 0.2), "fedbabu": (0.5, 0.49)}.items():
        for seed, share in zip((1, 2), shares, strict=True):
            levels(store, body["base"], name, 0.3, 0.5, 0.4, seed=seed, majority_share=share)
    key = posted(client, body)["id"]
    view = client.get(f"/api/sweeps/{key}").json()
    assert [[run["no_convergence"] for run in cell["runs"]] for cell in view["cells"]] == [
        [False, False],
        [True, False],
        [True, True],
    ]
    rows = csv.DictReader(io.StringIO(client.get(f"/api/sweeps/{key}/table.csv").text))
    assert [row["no_convergence"] for row in rows] == ["0", "1", "2"]
    *_, first, second, third, _, note = client.get(f"/api/sweeps/{key}/table.md").text.splitlines()
    assert [line.split(" | ")[2].strip("*") for line in (first, second, third)] == [
        "50.00 ± 0.00",
        "50.00 ± 0.00 † (1 of 2)",
        "50.00 ± 0.00 †",
    ]
    assert note == f"† {NO_CONVERGENCE}."
    latex = client.get(f"/api/sweeps/{key}/table.tex").text
    assert "50.00 $\\pm$ 0.00 \\dag{} (1 of 2)" in latex
    assert latex.splitlines()[-1].startswith("\\par\\smallskip{\\footnotesize \\dag{} no convergence: ")


def test_the_table_of_chosen_settings_names_both_choices(client: httpx.Client, store: Database) -> None:
    body = document(
        "chosen",
        grid={"algorithm.name": ["fedavg", "standalone"], "training.lr": [0.1, 0.2]},
        report={"target": 0.5, "choose": {"over": ["training.lr"]}},
    )
    body["base"] |= {"partition": {"name": "iid", "split": "80-10-10"}, "rounds": 2}
    for name, lr, tests, validations in (
        ("fedavg", 0.1, (0.5, 0.7), (0.6, 0.5)),
        ("fedavg", 0.2, (0.6, 0.8), (0.3, 0.4)),
        ("standalone", 0.1, (0.3, 0.2), (0.3, 0.2)),
    ):
        for seed in (1, 2):
            more = 0.01 * (seed - 1)
            history = [record(0, None)] + [
                record(number, test + more, validation_accuracy=validation)
                for number, test, validation in zip((1, 2), tests, validations, strict=True)
            ]
            training = {**body["base"]["training"], "lr": lr}
            put(store, history, **{**body["base"], "algorithm": {"name": name}, "training": training, "seed": seed})
    view = posted(client, body)
    key = view["id"]
    assert [(group["values"], group["finished"], group["cells"]) for group in view["choices"]["groups"]] == [
        ({"algorithm.name": "fedavg"}, 2, 2),
        ({"algorithm.name": "standalone"}, 1, 2),
    ]
    rows = list(csv.DictReader(io.StringIO(client.get(f"/api/sweeps/{key}/table.csv").text)))
    assert [row["on_validation.training.lr"] for row in rows] == ["0.1", "0.1"]
    assert float(rows[0]["on_validation.validation_mean"]) == 0.6
    assert float(rows[0]["on_validation.accuracy_mean"]) == pytest.approx(0.505)
    assert (rows[0]["on_test.training.lr"], rows[0]["on_test.seeds"]) == ("0.2", "2")
    assert float(rows[0]["on_test.accuracy_mean"]) == pytest.approx(0.805)
    markdown = client.get(f"/api/sweeps/{key}/table.md").text.splitlines()
    heads = "Chosen on validation | Validation (%) | Test (%) | Chosen on test | Test (%)"
    assert markdown[0] == f"| Method | Finished | {heads} |"
    assert markdown[2] == "| FedAvg | 2 of 2 | lr 0.1 | 60.00 ± 0.00 | 50.50 ± 0.71 | lr 0.2 | 80.50 ± 0.71 |"
    latex = client.get(f"/api/sweeps/{key}/table.tex")
    assert "  Standalone & 1 of 2 & lr 0.1 & 30.00" in latex.text
    assert latex.headers["content-disposition"].endswith('-choices.tex"')
    cells = client.get(f"/api/sweeps/{key}/table.md", params={"rows": "cells"}).text.splitlines()
    assert cells[0].startswith("| Method | lr | Seeds | Best (%) | Final (%) | Rounds to 50 %")
    assert len(cells) == 6


def test_without_a_validation_part_the_table_says_why_nothing_was_chosen_on_it(
    client: httpx.Client, store: Database
) -> None:
    key = posted(client, document("unvalidated", report={"choose": {"over": ["rounds"]}}))["id"]
    run_all(store)
    (line,) = client.get(f"/api/sweeps/{key}/table.md").text.splitlines()[2:]
    why = "– (the split stratified-80-20 has no validation part) | – | –"
    assert line == f"| 2 of 2 | {why} | rounds 1 | 51.50 ± 0.71 |"


def test_chosen_settings_of_a_sweep_that_asks_for_none_are_refused(client: httpx.Client) -> None:
    view = posted(client, document("no choice"))
    assert view["choices"] is None
    answer = client.get(f"/api/sweeps/{view['id']}/table.csv", params={"rows": "choices"})
    assert (answer.status_code, list(errors(answer))) == (422, ["rows"])


def test_a_choice_over_what_is_not_swept_is_refused(client: httpx.Client) -> None:
    answer = client.post("/api/sweeps/check", json=document("lost", report={"choose": {"over": ["training.lr"]}}))
    assert answer.status_code == 422
    assert "must be a swept field" in errors(answer)["report.choose.over.0"]


def levels(store: Database, base: dict[str, Any], name: str, *accuracies: float, **changes: Any) -> None:
    """A finished experiment that a sweep with this base reuses, by the accuracy of its rounds."""
    history = [record(0, None), *(record(n + 1, accuracy) for n, accuracy in enumerate(accuracies))]
    put(store, history, **{**base, "algorithm": {"name": name}, "seed": 1, **changes})


def bold(client: httpx.Client, body: dict[str, Any]) -> list[list[str]]:
    """The bold cells of each row of the sweep's table, the same in Markdown and LaTeX."""
    key = posted(client, {**body, "seeds": [1]})["id"]
    view = client.get(f"/api/sweeps/{key}").json()
    assert view["counts"] == {"finished": view["experiments"]}
    markdown = client.get(f"/api/sweeps/{key}/table.md").text.splitlines()[2:]
    latex = [line for line in client.get(f"/api/sweeps/{key}/table.tex").text.splitlines() if "&" in line][1:]
    found = [re.findall(r"\*\*(.*?)\*\*", line) for line in markdown]
    assert found == [re.findall(r"\\textbf\{(.*?)\}", line) for line in latex]
    return found


def test_the_table_marks_the_best_under_equal_conditions(client: httpx.Client, store: Database) -> None:
    base = {**document("conditions")["base"], "rounds": 2}
    for share, one, other in ((1.0, 0.9, 0.8), (0.5, 0.6, 0.7)):
        levels(store, base, "fedavg", 0.5, one, participation=share)
        levels(store, base, "fedprox", other, 0.5, participation=share)
    grid = {"algorithm.name": ["fedavg", "fedprox"], "participation": [1.0, 0.5]}
    assert bold(client, {"base": base, "grid": grid}) == [["90.00"], [], [], ["70.00"]]


def test_under_protocol_c_the_table_marks_the_best_final_round(client: httpx.Client, store: Database) -> None:
    base = {**document("final")["base"], "rounds": 2, "evaluation": {"protocol": "C"}}
    levels(store, base, "fedavg", 0.9, 0.5)
    levels(store, base, "fedprox", 0.7, 0.6)
    assert bold(client, {"base": base, "grid": {"algorithm.name": ["fedavg", "fedprox"]}}) == [[], ["60.00"]]


@pytest.mark.parametrize(
    "zipped",
    [
        {"algorithm.name": ["fedavg", "fedprox", "fedavg"], "participation": [1.0, 1.0, 0.5]},
        {"algorithm.name": ["fedavg", "fedprox"], "evaluation.protocol": ["A", "C"]},
    ],
)
def test_a_table_of_what_cannot_be_compared_marks_nothing(
    client: httpx.Client, store: Database, zipped: dict[str, list[Any]]
) -> None:
    base = {**document("unfair")["base"], "rounds": 2}
    for place, name in enumerate(zipped["algorithm.name"]):
        protocol = zipped.get("evaluation.protocol", ["A"] * 3)[place]
        share = zipped.get("participation", [1.0] * 3)[place]
        levels(store, base, name, 0.5, 0.6, participation=share, evaluation={"protocol": protocol})
    found = bold(client, {"base": base, "zip": zipped})
    assert found == [[]] * len(zipped["algorithm.name"])


def test_cancel_retry_and_delete(client: httpx.Client, store: Database) -> None:
    key = posted(client, document("steer"))["id"]
    assert client.delete(f"/api/sweeps/{key}").status_code == 409
    assert client.post(f"/api/sweeps/{key}/cancel").json()["counts"] == {"cancelled": 4}
    again = client.post(f"/api/sweeps/{key}/retry").json()
    assert (again["counts"], again["experiments"]) == ({"queued": 4}, 4)
    run_all(store)
    assert client.get(f"/api/sweeps/{key}").json()["state"] == "finished"
    assert client.delete(f"/api/sweeps/{key}").status_code == 204
    assert client.get(f"/api/sweeps/{key}").status_code == 404


def test_pause_resume_and_another_place_in_the_queue(client: httpx.Client, store: Database) -> None:
    view = posted(client, document("hold"))
    key = view["id"]
    [first, *_] = [run["experiment"] for cell in view["cells"] for run in cell["runs"]]
    client.post(f"/api/experiments/{first}/cancel")
    paused = client.post(f"/api/sweeps/{key}/pause").json()
    assert (paused["state"], paused["counts"]) == ("paused", {"paused": 3, "cancelled": 1})
    moved = client.patch(f"/api/sweeps/{key}/queue", json={"priority": 9, "window": {"from": "22:00", "to": "06:00"}})
    assert moved.status_code == 200
    plans = [client.get(f"/api/experiments/{run['experiment']}").json() for run in moved.json()["cells"][1]["runs"]]
    assert [(plan["priority"], plan["window"]["from"]) for plan in plans] == [(9, "22:00")] * 2
    assert client.get(f"/api/experiments/{first}").json()["priority"] == 0, "it has ended"
    assert errors(client.patch(f"/api/sweeps/{key}/queue", json={"priority": 101})).keys() == {"priority"}
    resumed = client.post(f"/api/sweeps/{key}/resume").json()
    assert resumed["counts"] == {"queued": 3, "cancelled": 1}


def test_the_retry_of_one_cell_leaves_the_others(client: httpx.Client) -> None:
    key = posted(client, document("one cell"))["id"]
    client.post(f"/api/sweeps/{key}/cancel")
    view = client.post(f"/api/sweeps/{key}/retry", params={"cell": 1}).json()
    assert [[run["state"] for run in cell["runs"]] for cell in view["cells"]] == [["cancelled"] * 2, ["queued"] * 2]


@pytest.mark.parametrize("action", ["cancel", "pause", "resume", "retry"])
def test_a_sweep_that_does_not_exist_cannot_be_steered(client: httpx.Client, action: str) -> None:
    answer = client.post(f"/api/sweeps/01AAAAAAAAAAAAAAAAAAAAAAAA/{action}")
    assert (answer.status_code, list(errors(answer))) == (404, ["id"])


def test_a_retry_makes_reused_experiments_anew_that_were_deleted(client: httpx.Client, store: Database) -> None:
    body = document("borrowed", priority=4)
    first = posted(client, body)
    second = posted(client, body)
    assert second["reused"] == 4
    client.post(f"/api/sweeps/{first['id']}/cancel")
    for cell in first["cells"]:
        for run in cell["runs"]:
            assert client.delete(f"/api/experiments/{run['experiment']}").status_code == 200
    key = second["id"]
    lost = client.get(f"/api/sweeps/{key}").json()
    assert (lost["state"], lost["experiments"], lost["counts"]) == ("cancelled", 4, {"cancelled": 4})
    assert client.post(f"/api/sweeps/{key}/retry", params={"cell": 1}).json()["counts"] == {"queued": 2, "cancelled": 2}
    again = client.post(f"/api/sweeps/{key}/retry").json()
    assert (again["counts"], again["reused"]) == ({"queued": 4}, 4)
    run = again["cells"][0]["runs"][0]["experiment"]
    assert client.get(f"/api/experiments/{run}").json()["priority"] == 4
    run_all(store)
    assert client.get(f"/api/sweeps/{key}").json()["state"] == "finished"


def test_a_webhook_is_refused_while_they_are_switched_off(client: httpx.Client) -> None:
    body = document("hook", webhook="https://example.org/hook")
    assert "FEDARENA_WEBHOOKS=true" in errors(client.post("/api/sweeps", json=body))["webhook.url"]
    checked = client.post("/api/sweeps/check", json=body).json()
    assert (checked["ok"], checked["refused"][0]["field"]) == (False, "webhook.url")


def test_so_many_sweeps_may_wait_and_no_more(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"Idempotency-Key": "waiting"}
    first = posted(client, document("waiting"), headers=key)
    monkeypatch.setattr(sweeps, "MOST_WAITING", 1)
    before = len(client.get("/api/experiments", params={"limit": 500}).json()["items"])
    answer = client.post("/api/sweeps", json=document("one too many"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "600")
    assert "at most 1 sweeps may wait or run" in answer.json()["errors"][0]["message"]
    assert len(client.get("/api/experiments", params={"limit": 500}).json()["items"]) == before
    assert posted(client, document("waiting"), headers=key)["id"] == first["id"], "it is there already"
