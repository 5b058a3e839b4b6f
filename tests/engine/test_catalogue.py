"""What the web sees of the engine."""

from typing import Any

import pytest

from engine.catalogue import catalogue, check, preview_partition
from engine.methods import REGISTRY
from engine.models import FAMILIES
from engine.spec.problems import SpecError
from tests.engine.conftest import SpecMaker


def test_it_lists_every_method_family_partition_and_data_set() -> None:
    listed = catalogue(None)
    assert [entry["id"] for entry in listed["algorithms"]] == list(REGISTRY)
    assert [entry["id"] for entry in listed["models"]] == list(FAMILIES)
    assert {"pathological", "iid", "imported"} <= {entry["id"] for entry in listed["partitions"]}
    available = {entry["id"]: entry["available"] for entry in listed["datasets"]}
    assert available["digits"]
    assert not available["cifar10"]


def test_a_method_comes_with_its_source_and_its_traces() -> None:
    listed = {entry["id"]: entry for entry in catalogue(None)["algorithms"]}
    fedkd = listed["fedkd"]
    assert (fedkd["venue"], fedkd["year"]) == ("Nature Communications", 2022)
    assert fedkd["paper"] == "Communication-efficient federated learning via knowledge distillation"
    assert listed["standalone"]["year"] is None
    assert [trace["name"] for trace in fedkd["traces"]] == ["svd_flops", "recalibrated"]
    assert fedkd["traces"][0] == {"name": "svd_flops", "title": "FLOPs of the SVD", "unit": "FLOPs"}


def test_parameter_counts_are_those_of_the_papers() -> None:
    [family] = [entry for entry in catalogue(None)["models"] if entry["id"] == "cnn-1-5"]
    assert [member["parameters"] for member in family["members"]] == [2621558, 1815142, 1320558, 1060358, 670058]


def test_a_spec_that_can_run_passes(small_spec: SpecMaker) -> None:
    check(small_spec("fedarc"), None)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"dataset": {"name": "cifar10"}}, "dataset.name", "the data set cifar10 is missing"),
        ({"partition": {"name": "pathological", "classes_per_client": 9}}, "partition.classes_per_client", "9"),
        ({"topology": "gossip"}, "topology", "gossip"),
        ({"models": {"family": "cnn-1"}, "dataset": {"name": "synthetic", "size": 8}}, "models.family", "8×8"),
        ({"models": {"family": "tiny-bn"}, "clients": 70, "partition": {"name": "iid"}}, "partition", "batch norm"),
    ],
)
def test_a_spec_that_cannot_run_here_is_refused_with_the_reason(
    changes: dict[str, Any], field: str, words: str, small_spec: SpecMaker
) -> None:
    with pytest.raises(SpecError) as caught:
        check(small_spec(**changes), None)
    [problem] = caught.value.problems
    assert problem.field == field
    assert words in problem.message


def test_the_preview_counts_every_client_and_class(small_spec: SpecMaker) -> None:
    preview = preview_partition(small_spec(), None)
    assert len(preview["counts"]) == 6
    assert all(sum(count > 0 for count in row) == 2 for row in preview["counts"])
    assert len(preview["fingerprint"]) == 64
