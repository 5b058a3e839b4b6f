"""Methods that cannot work with the models of an experiment: refused at the door, and a row of their own in a sweep."""

from typing import Any

import httpx
import pytest

from app.store.database import Database
from tests.services import claim, spec_with

COLOUR = {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 3, "size": 32}
LINEAR_HEADS = "shares one linear head, but the head of {} has more layers: use a family whose heads are linear"
RES34_HEADS = "resnet34-mlp512, resnet34-mlp256, resnet34-mlp128"
ONE_WIDTH = "set models.feature_dim or use another family"
SHARE_A_HEAD = ["lg-fedavg", "fedgen", "fedgh"]
COMPARE_FEATURES = ["fedproto", "fedtgp", "pfedafm", "fedarc"]

REFUSED = [
    *((method, "res34-htc-img-4", LINEAR_HEADS.format(RES34_HEADS)) for method in SHARE_A_HEAD),
    *((method, "htm-img-10", LINEAR_HEADS.format("vit-b-16, vit-b-32")) for method in SHARE_A_HEAD),
    *((method, "compfl-2", ONE_WIDTH) for method in COMPARE_FEATURES),
]
APPLICABLE = [
    *((method, {"family": "compfl-2"}) for method in SHARE_A_HEAD),  # linear heads of two shapes: two groups
    *((method, {"family": "compfl-2"}) for method in ("fd", "fedkd", "fedmrl", "fedavg")),  # any widths
    *((method, {"family": "res34-htc-img-4"}) for method in COMPARE_FEATURES),  # any heads on one width
    *((method, {"family": "compfl-fmnist-2", "feature_dim": 128}) for method in COMPARE_FEATURES),
]


def named(method: str, models: dict[str, Any]) -> dict[str, Any]:
    return spec_with(algorithm={"name": method}, models=models, dataset=COLOUR, clients=10)


@pytest.mark.parametrize(("method", "family", "reason"), REFUSED)
def test_it_is_refused_with_the_reason_and_nothing_is_queued(
    method: str, family: str, reason: str, client: httpx.Client, store: Database
) -> None:
    answer = client.post("/api/experiments", json=named(method, {"family": family}))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("algorithm.name", method)
    assert reason in error["message"]
    assert claim(store) is None


@pytest.mark.parametrize(("method", "models"), APPLICABLE)
def test_it_is_accepted_where_it_can_work(method: str, models: dict[str, Any], client: httpx.Client) -> None:
    assert client.post("/api/check", json=named(method, models)).status_code == 200


@pytest.mark.parametrize("family", ["res34-htc-img-4", "htm-img-10", "compfl-2"])
def test_in_a_sweep_it_is_a_row_that_never_runs(family: str, client: httpx.Client, store: Database) -> None:
    reasons = {method: reason for method, where, reason in REFUSED if where == family}
    base = {key: value for key, value in named("", {"family": family}).items() if key not in {"name", "seed"}}
    body = {"base": base, "grid": {"algorithm.name": [*reasons, "fedavg"]}, "seeds": [1]}
    answer = client.post("/api/sweeps", json=body)
    assert answer.status_code == 201, answer.text
    *rows, fedavg = client.get(f"/api/sweeps/{answer.json()['id']}").json()["cells"]
    for row, (method, reason) in zip(rows, reasons.items(), strict=True):
        [run] = row["runs"]
        assert (row["values"], run["state"]) == ({"algorithm.name": method}, "not_applicable")
        assert reason in run["reason"]
    held = claim(store)
    assert held is not None
    assert [held.experiment] == [run["experiment"] for run in fedavg["runs"]]
    assert claim(store) is None
