"""The routes of a comparison answer with what the store holds, and refuse what cannot be compared."""

import math
from statistics import fmean, stdev

import httpx
import pytest

from app.comparison import curves
from app.store import experiments
from app.store.database import Database
from engine.records import RoundRecord, cost_to_target
from engine.spec.experiment import ExperimentSpec
from tests.browser.filled import SPEC, put, run
from tests.services import record


@pytest.fixture
def pair(store: Database) -> dict[str, list[str]]:
    """Two methods with three seeds each."""
    return {
        method: [put(store, algorithm={"name": method}, seed=seed, rounds=12) for seed in (42, 43, 44)]
        for method in ("fedarc", "fedavg")
    }


def ids(pair: dict[str, list[str]]) -> str:
    return ",".join(key for keys in pair.values() for key in keys)


def history(client: httpx.Client, key: str) -> list[RoundRecord]:
    found = client.get(f"/api/experiments/{key}/rounds").json()["rounds"]
    return [RoundRecord(**item) for item in found]


def test_curves_sum_the_costs_up(client: httpx.Client, pair: dict[str, list[str]]) -> None:
    key = pair["fedavg"][0]
    answer = client.get("/api/compare/curves", params={"ids": key}).json()["experiments"][key]
    records = history(client, key)
    assert answer["accuracy"] == [item.accuracy for item in records]
    assert answer["bytes"][-1] == sum(item.bytes_up + item.bytes_down for item in records)
    assert answer["flops"][-1] == sum(item.client_flops for item in records)
    assert answer["flops_each"][-1] == pytest.approx(sum(r.client_flops / len(r.cohort) for r in records if r.cohort))
    assert answer["thinned"] is False


def test_a_long_curve_is_thinned_without_losing_its_peaks(client: httpx.Client, store: Database) -> None:
    values = [0.5 + 0.3 * math.sin(number / 40) for number in range(601)]
    values[311], values[417] = 0.99, 0.01
    history = [record(n, None if n == 0 else values[n], cohort=[0, 1] if n else []) for n in range(601)]
    keys = [put(store, history, clients=2, rounds=600, seed=seed) for seed in (1, 2)]
    answer = client.get("/api/compare/curves", params={"ids": ",".join(keys), "points": 100}).json()["experiments"]
    one, other = (answer[key] for key in keys)
    assert 40 <= len(one["round"]) <= 100
    assert one["round"] == other["round"]
    assert {0, 311, 417, 600} <= set(one["round"])
    assert one["bytes"][-1] == 120 * 601
    assert one["thinned"] is True
    whole = client.get("/api/compare/curves", params={"ids": keys[0]}).json()["experiments"][keys[0]]
    assert len(whole["round"]) == 601


def test_curves_of_different_settings_keep_the_same_rounds_so_that_any_of_them_can_be_averaged(
    client: httpx.Client, store: Database
) -> None:
    """Peaks of one are no peaks of the other; a short one is drawn as finely as a long one."""
    waves = {
        0.01: [0.5 + 0.3 * math.sin(n / 7) for n in range(601)],
        0.1: [0.5 + 0.3 * math.cos(n / 11) for n in range(601)],
        0.2: [0.2 + n / 200 for n in range(61)],
    }
    keys = []
    for lr, wave in waves.items():
        history = [record(n, wave[n] if n else None, cohort=[0, 1] if n else []) for n in range(len(wave))]
        training = {**SPEC["training"], "lr": lr}
        keys.append(put(store, history, clients=2, rounds=len(wave) - 1, training=training))
    answer = client.get("/api/compare/curves", params={"ids": ",".join(keys), "points": 200}).json()["experiments"]
    one, other, short = (answer[key]["round"] for key in keys)
    assert one == other
    assert short == [number for number in one if number <= 60]
    assert 100 <= len(one) <= 200
    assert len(short) > 20
    for wave in (waves[0.01], waves[0.1]):
        assert {wave.index(max(wave[1:])), wave.index(min(wave[1:]))} <= set(one)


def test_the_cost_to_a_target_is_the_one_of_the_records(client: httpx.Client, pair: dict[str, list[str]]) -> None:
    key = pair["fedarc"][1]
    answer = client.get("/api/compare/target", params={"ids": key, "target": 0.6}).json()["experiments"][key]
    expected = cost_to_target(history(client, key), 0.6)
    assert expected.rounds is not None
    assert answer == expected.model_dump()


@pytest.mark.parametrize("at", ["best", "last", "each"])
def test_clients_are_shown_at_the_moment_asked_for(client: httpx.Client, pair: dict[str, list[str]], at: str) -> None:
    key = pair["fedavg"][2]
    answer = client.get("/api/compare/clients", params={"ids": key, "at": at}).json()["experiments"][key]
    records = history(client, key)
    chosen = max(records[1:], key=lambda item: item.accuracy or 0) if at == "best" else records[-1]
    assert answer["accuracy"] == chosen.client_accuracy
    assert answer["round"] == (None if at == "each" else chosen.round)


def test_each_clients_last_test_goes_back_as_far_as_it_must(client: httpx.Client, store: Database) -> None:
    rounds = [
        record(0, None, cohort=[], client_accuracy={}),
        record(1, 0.3, client_accuracy={"0": 0.1, "1": 0.3}),
        record(2, 0.5, client_accuracy={"0": 0.5}),
    ]
    key = put(store, rounds, clients=2, rounds=2)
    answer = client.get("/api/compare/clients", params={"ids": key, "at": "each"}).json()["experiments"][key]
    assert answer["accuracy"] == {"0": 0.5, "1": 0.3}


def test_two_methods_are_tested_over_their_clients_and_seeds(client: httpx.Client, pair: dict[str, list[str]]) -> None:
    answer = client.get("/api/compare/significance", params={"ids": ids(pair)}).json()
    assert answer["groups"] == {"FedARC": pair["fedarc"], "FedAvg": pair["fedavg"]}
    (found,) = answer["pairs"]
    assert (found["first"], found["second"]) == ("FedARC", "FedAvg")
    ends = {key: history(client, key)[-1] for keys in pair.values() for key in keys}
    clients = [
        ends[a].client_accuracy[k] - ends[b].client_accuracy[k]
        for a, b in zip(pair["fedarc"], pair["fedavg"], strict=True)
        for k in ends[a].client_accuracy
    ]
    assert found["clients"]["n"] == 30
    assert found["clients"]["wins"] == sum(value > 0 for value in clients)
    assert found["clients"]["mean_difference"] == pytest.approx(fmean(clients))
    assert found["clients"]["p"] < 0.001
    level = [(ends[a].accuracy or 0) - (ends[b].accuracy or 0) for a, b in zip(*pair.values(), strict=True)]
    assert found["seeds"]["d_z"] == pytest.approx(fmean(level) / stdev(level))


def test_experiments_can_be_grouped_by_a_chosen_field(client: httpx.Client, store: Database) -> None:
    training = SPEC["training"]
    keys = [
        put(store, rounds=3, training={**training, "lr": lr, "batch_size": size}, seed=size)
        for lr in (0.01, 0.1)
        for size in (16, 32)
    ]
    answer = client.get("/api/compare/significance", params={"ids": ",".join(keys), "by": "training.lr"}).json()
    assert answer["groups"] == {"FedAvg · lr 0.01": keys[:2], "FedAvg · lr 0.1": keys[2:]}


def test_labels_name_the_part_whose_name_differs(client: httpx.Client, store: Database) -> None:
    keys = [
        put(store, rounds=2, partition={"name": "iid"}),
        put(store, rounds=2),
        put(store, rounds=2, partition={"name": "pathological", "classes_per_client": 3}),
    ]
    for by, told in (
        ("partition.name", ["partition iid", "partition pathological"]),
        ("partition.classes_per_client", ["classes per client –", "classes per client 2", "classes per client 3"]),
    ):
        answer = client.get("/api/compare/significance", params={"ids": ",".join(keys), "by": by}).json()
        assert list(answer["groups"]) == [f"FedAvg · {text}" for text in told]


def test_a_reference_that_is_no_group_is_refused_with_the_groups(
    client: httpx.Client, pair: dict[str, list[str]]
) -> None:
    answer = client.get("/api/compare/significance", params={"ids": ids(pair), "reference": "FedSGD"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "reference"
    assert "FedARC, FedAvg" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("kind", "start"), [("pdf", b"%PDF-"), ("svg", b"<?xml"), ("pgf", b"% \\usepackage{pgfplots}")]
)
def test_a_figure_is_drawn_in_the_methods_own_colours(
    client: httpx.Client, pair: dict[str, list[str]], kind: str, start: bytes
) -> None:
    options: dict[str, str | float] = {"ids": ids(pair), "x": "bytes", "target": 0.6, "log_x": True, "smooth": 3}
    answer = client.get(f"/api/compare/figure.{kind}", params=options)
    assert answer.status_code == 200
    assert answer.content.startswith(start)
    assert f"compare-accuracy-by-bytes.{kind}" in answer.headers["content-disposition"]
    if kind != "pdf":
        text = answer.text.lower()
        assert all(word in text for word in ("fedarc", "fedavg", "a3680d", "2c63f8"))
    assert answer.content == client.get(f"/api/compare/figure.{kind}", params=options).content


def test_a_method_that_sends_nothing_is_a_level_in_a_figure_over_bytes(store: Database) -> None:
    key = put(store, algorithm={"name": "standalone"}, rounds=5)
    other = put(store, rounds=5)
    with store.read() as session:
        rows = list(experiments.get_many(session, [key, other]).values())
        level, line = curves.mean_curves(session, rows, x="bytes", y="accuracy")
    assert level.level
    assert level.x == [0.0, line.x[-1]]
    end = run(ExperimentSpec.parse({**SPEC, "algorithm": {"name": "standalone"}, "rounds": 5}).canonical())[-1]
    assert level.y == [end.accuracy, end.accuracy]


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("curves?ids=", 422, "ids"),
        ("curves?ids=01ARZ3NDEKTSV4RRFFQ69G5FAV", 404, "id"),
        ("curves?ids=a&points=3", 422, "points"),
        ("target?ids=a&target=80", 422, "target"),
        ("clients?ids=a&at=noon", 422, "at"),
        ("figure.gif?ids=a", 422, "kind"),
        ("significance?ids=" + ",".join(f"{n:026d}" for n in range(201)), 422, "ids"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_its_field(
    client: httpx.Client, path: str, status: int, field: str
) -> None:
    answer = client.get(f"/api/compare/{path}")
    assert answer.status_code == status
    assert answer.json()["errors"][0]["field"] == field
