"""The document of a sweep: what it asks for, in which order, and what is refused."""

import re
from typing import Any

import pytest

from app.store.deliveries import USUAL_EVENTS
from app.sweeps import MOST_EXPERIMENTS, SweepPlan, SweepSpec, label, make_plan
from engine.spec.problems import MOST_PROBLEMS, SpecError, read_document
from tests.services import ROOT, SPEC

BASE = {key: value for key, value in SPEC.items() if key not in {"name", "seed"}}


def sweep(**fields: Any) -> SweepSpec:
    return SweepSpec.parse({"base": BASE, **fields})


def plan(**fields: Any) -> SweepPlan:
    return make_plan(sweep(**fields), None)


def problems(**fields: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        sweep(**fields)
    return {problem.field: problem.message for problem in caught.value.problems}


def refusals(**fields: Any) -> dict[str, str]:
    return {item.problem.field: item.problem.message for item in plan(**fields).refused}


def test_a_grid_is_every_combination_with_every_seed_and_first_seeds_come_first() -> None:
    found = plan(grid={"training.lr": [0.1, 0.01], "rounds": [1, 2, 3]}, seeds=[5, 6])
    assert len(found.points) == 2 * 3 * 2
    assert [point.seed for point in found.points] == [5] * 6 + [6] * 6
    assert [found.cells[point.cell] for point in found.points[:2]] == [
        {"training.lr": 0.1, "rounds": 1},
        {"training.lr": 0.1, "rounds": 2},
    ]
    last = found.points[-1].spec
    assert (last.training.lr, last.rounds, last.seed) == (0.01, 3, 6)


def test_zip_goes_side_by_side_and_multiplies_with_grid_and_list() -> None:
    found = plan(
        grid={"rounds": [1, 2]},
        zip={"training.lr": [0.1, 0.2], "training.batch_size": [8, 16]},
        list=[{"clients": 2}, {"clients": 3, "participation": 0.5}],
    )
    assert len(found.points) == 2 * 2 * 2
    assert {(p.spec.training.lr, p.spec.training.batch_size) for p in found.points} == {(0.1, 8), (0.2, 16)}
    assert {(p.spec.clients, p.spec.participation) for p in found.points} == {(2, 1.0), (3, 0.5)}


def test_a_whole_object_brings_a_method_with_its_own_parameters() -> None:
    found = plan(grid={"algorithm": [{"name": "fedavg"}, {"name": "fedprox", "mu": 0.5}]})
    assert [point.spec.algorithm.name for point in found.points] == ["fedavg", "fedprox"]
    assert found.points[1].spec.canonical()["algorithm"]["mu"] == 0.5
    assert found.points[1].spec.name == "fedprox, mu 0.5, seed 42"


def test_a_parameter_that_the_swept_method_does_not_have_is_refused_with_its_path() -> None:
    base = {**BASE, "algorithm": {"name": "fedprox", "mu": 0.5}}
    refused = make_plan(
        SweepSpec.parse({"base": base, "grid": {"algorithm.name": ["fedprox", "fedavg"]}}), None
    ).refused
    assert [(item.problem.field, item.experiments, item.example) for item in refused] == [("algorithm.mu", 1, "fedavg")]


def test_one_wrong_value_refuses_the_whole_sweep_and_says_in_how_many_experiments() -> None:
    found = plan(grid={"training.lr": [0.1, -1]}, seeds={"from": 1, "count": 3})
    [item] = found.refused
    assert (item.problem.field, item.problem.value, item.experiments) == ("training.lr", -1, 3)
    assert (found.experiments, len(found.cells), len(found.points)) == (6, 2, 3)
    with pytest.raises(SpecError, match=r"training.lr: .*\(in lr -1 and 2 more\)"):
        found.or_raise()


def test_a_method_that_cannot_work_with_the_models_is_listed_not_refused() -> None:
    found = plan(
        grid={"algorithm.name": ["fedavg", "pfedafm"], "models.family": ["tiny-3", "compfl-2"]},
        list=[{"dataset.size": 32, "dataset.channels": 3}],
    )
    assert found.refused == ()
    reasons = {(p.spec.algorithm.name, p.spec.models.family): p.reason for p in found.points}
    assert [key for key, reason in reasons.items() if reason] == [("pfedafm", "compfl-2")]
    assert "needs one width" in str(reasons["pfedafm", "compfl-2"])


def test_an_unsupported_topology_is_not_applicable() -> None:
    found = plan(grid={"topology": ["server", "gossip"]})
    assert found.refused == ()
    assert found.points[0].reason is None
    assert "runs with 'server', but got 'gossip'" in (found.points[1].reason or "")


def test_missing_data_is_an_error_and_not_a_missing_application() -> None:
    found = plan(grid={"dataset": [{"name": "cifar10"}, BASE["dataset"]]})
    assert [item.problem.field for item in found.refused] == ["dataset.name"]
    assert (found.experiments, [point.spec.dataset.name for point in found.points]) == (2, ["synthetic"])


def test_exclude_leaves_out_what_matches_all_its_fields() -> None:
    found = plan(
        grid={"algorithm": [{"name": "fedavg"}, {"name": "fedprox", "mu": 1}], "training.lr": [0.1, 0.2]},
        exclude=[{"algorithm": {"name": "fedprox"}, "training.lr": 0.2}, {"seed": 43, "algorithm.name": "fedavg"}],
        seeds=[42, 43],
    )
    assert found.excluded == 4
    assert [(label(found.cells[p.cell]), p.seed) for p in found.points] == [
        ("fedavg, lr 0.1", 42),
        ("fedavg, lr 0.2", 42),
        ("fedprox, mu 1, lr 0.1", 42),
        ("fedprox, mu 1, lr 0.1", 43),
    ]


def test_an_exclusion_that_matches_nothing_is_refused() -> None:
    assert refusals(grid={"rounds": [1, 2]}, exclude=[{"rounds": 7}]) == {
        "exclude.0": "matches none of the sweep's experiments"
    }


def test_two_cells_with_the_same_experiment_are_refused() -> None:
    messages = refusals(list=[{"algorithm": {"name": "fedprox"}}, {"algorithm": {"name": "fedprox", "mu": 0.01}}])
    assert messages == {"": "gives the same experiments as fedprox; leave one of them out"}
    again = plan(list=[{"rounds": 2}, {"rounds": 2, "clients": 2}])
    assert [item.problem.message for item in again.refused] == [
        "gives the same experiments as rounds 2; leave one of them out"
    ]
    assert (again.experiments, len(again.points)) == (2, 1)


def test_a_grid_of_a_thousand_million_points_is_refused_before_it_is_expanded() -> None:
    grid = {f"training.x{number}": list(range(10)) for number in range(9)}
    assert f"may hold {MOST_EXPERIMENTS} experiments, but this one asks for" in problems(grid=grid)["grid"]


def test_a_product_too_long_to_be_written_is_refused_like_any_other() -> None:
    grid = {f"training.x{number}": list(range(1000)) for number in range(100)}
    assert f"may hold {MOST_EXPERIMENTS} experiments, but this one asks for 1000 × 1000" in problems(grid=grid)["grid"]


@pytest.mark.parametrize(
    "fields",
    [
        {"grid": {f"training.x{number}": list(range(100)) for number in range(2200)}},
        {"zip": {f"training.x{number}": [1, 2] for number in range(101)}},
        {"list": [{f"training.x{number}": 1} for number in range(101)]},
    ],
)
def test_more_fields_than_a_sweep_may_vary_are_refused(fields: dict[str, Any]) -> None:
    assert re.fullmatch(r"a sweep may vary 100 fields, but this one varies \d+", problems(**fields)[""])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "\ud800"}, "name"),
        ({"base": {"rounds": ["\udfff"]}}, "base.rounds.0"),
        ({"base": {"\ud800": 1}}, "base"),
    ],
)
def test_half_a_surrogate_pair_is_refused(fields: dict[str, Any], field: str) -> None:
    assert "text that UTF-8 can carry" in problems(**fields)[field]


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"base": {**BASE, "seed": 1}}, "base.seed", "lists its seeds under seeds"),
        ({"base": {**BASE, "name": "x"}}, "base.name", "belongs to the sweep itself"),
        ({"zip": {"rounds": [1, 2], "clients": [2]}}, "zip", "rounds has 2, clients has 1"),
        ({"grid": {"rounds": [1]}, "list": [{"rounds": 2}]}, "list.rounds", "swept twice"),
        ({"grid": {"algorithm": [{"name": "fedavg"}], "algorithm.mu": [1]}}, "algorithm.mu", "not both"),
        ({"grid": {"seed": [1, 2]}}, "grid.seed", "cannot be swept"),
        ({"grid": {"rounds": [2, 2]}}, "grid.rounds", "each value may stand once"),
        ({"grid": {"rounds": []}}, "grid.rounds", "at least 1 item"),
        ({"seeds": [1, 1]}, "seeds", "each seed may stand once"),
        ({"seeds": [True]}, "seeds.0", "must be a valid integer, but got True"),
        ({"seeds": ["010"]}, "seeds.0", "must be a valid integer, but got '010'"),
        ({"seeds": {"from": 1}}, "seeds", "{from: 42, count: 3}"),
        ({"seeds": {"from": 1, "count": 10**9}}, "seeds", "count must be 1 to 2000"),
        ({"stop": {"min_gain": 0.1}}, "stop", "needs a target or a patience"),
        ({"window": "22:00"}, "window", "22:00-08:00"),
        ({"start_after": "2027-01-31T22:00:00"}, "start_after", "timezone"),
        ({"grids": {}}, "grids", "a sweep has no field 'grids'"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_field(fields: dict[str, Any], field: str, message: str) -> None:
    found = problems(**fields)
    assert message in found[field], found


def test_a_path_through_a_plain_value_is_refused() -> None:
    base = {**BASE, "training": 5}
    found = make_plan(SweepSpec.parse({"base": base, "grid": {"training.lr": [0.1]}}), None)
    assert [item.problem.field for item in found.refused] == ["base.training"]
    assert (found.experiments, len(found.cells), found.points) == (1, 1, ())


def test_yaml_reads_times_as_texts_and_exponents_as_numbers() -> None:
    text = (
        "window: 22:00-06:00\nday: 2027-01-31\nclock: 22:00\nlr: [1e-3, .5, 10, 0x10, 1_000, 010, 0]\nyes: [true, null]"
    )
    assert read_document(text) == {
        "window": "22:00-06:00",
        "day": "2027-01-31",
        "clock": "22:00",
        "lr": [0.001, 0.5, 10, "0x10", "1_000", "010", 0],
        True: [True, None],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("[" * 40 + "]" * 40, "32 levels"),
        ("a: [1", "not readable as YAML"),
        ("- 1", "must be an object"),
        ("base: {1: 2}", "must be texts"),
        ("base: {rounds: !!float .nan}", r"YAML tags \(!!float\) are not read"),
        ("base: {}\ngrid: {rounds: [1]}\ngrid: {clients: [2]}", "the field 'grid' is given twice"),
        ("base: {}\ngrid:\n  rounds: [1]\n  rounds: [2]", "the field 'rounds' is given twice"),
        ('{"base": {}, "base": {}}', "the field 'base' is given twice"),
        ("a: !!python/object/apply:os.system [ls]", "not readable as YAML"),
        ("a: !!bool xyz", r"YAML tags \(!!bool\) are not read"),
        ("a: " + "9" * 5000, "not readable as YAML"),
        ("a: [" + "1," * 30_000 + "]", "30000 values"),
        ("a: [" + "{b: 1}," * 20_000 + "]", "30000 values"),
    ],
)
def test_dangerous_or_broken_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_plan(SweepSpec.from_text(text), None).or_raise()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_values_that_json_cannot_carry_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="finite number"):
        SweepSpec.parse({"base": {"rounds": value}})


def test_a_sweep_wrong_in_many_ways_tells_the_first_and_how_many_more() -> None:
    found = sweep(grid={"training.lr": [-1 - number for number in range(30)]})
    plan = make_plan(found, None)
    assert len(plan.refused) == MOST_PROBLEMS + 1
    assert plan.refused[-1].problem.message == "and 10 more problems"


def test_the_document_can_be_submitted_again_as_it_was_kept() -> None:
    first = sweep(
        name="lr",
        grid={"training.lr": [0.1, 0.2]},
        seeds={"from": 3, "count": 2},
        stop={"target": 0.9},
        window="22:00-06:00",
        start_after="2027-01-31T22:00:00Z",
        webhook="https://example.org/hook",
    )
    again = SweepSpec.parse(first.document())
    assert again == first
    assert first.queue_plan.columns() == {
        "priority": 0,
        "start_after": 1801432800.0,
        "window_from": 1320,
        "window_to": 360,
        "stop": {"target": 0.9},
    }


def test_a_webhook_is_told_of_every_end_unless_it_names_events() -> None:
    webhook = sweep(webhook="https://example.org/hook").webhook
    assert webhook is not None
    assert webhook.events == USUAL_EVENTS


@pytest.mark.parametrize(
    ("report", "field", "words"),
    [
        ({}, "report", "must say target, choose or both"),
        ({"choose": {"over": []}}, "report.choose.over", "at least 1"),
        ({"choose": {"over": ["training.momentum"]}}, "report.choose.over.0", "must be a swept field"),
        (
            {"choose": {"over": ["seed"]}},
            "report.choose.over.0",
            "(of this sweep: algorithm.name, training.lr, clients)",
        ),
        ({"choose": {"over": ["training.lr", "algorithm.name"]}}, "report.choose.over.1", "methods are compared"),
        ({"choose": {"over": ["clients"]}}, "report.choose.over.0", "what settings are tested on must be equal"),
        ({"choose": {"over": ["training.lr", "training.lr"]}}, "report.choose.over.1", "may stand once"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_with_its_place(report: dict[str, Any], field: str, words: str) -> None:
    grid = {"algorithm.name": ["fedavg", "standalone"], "training.lr": [0.1, 0.2], "clients": [2, 4]}
    with pytest.raises(SpecError) as refused:
        sweep(grid=grid, report=report)
    (problem,) = refused.value.problems
    assert (problem.field, words in problem.message) == (field, True), problem.message


def test_a_choice_needs_no_target() -> None:
    report = sweep(grid={"training.lr": [0.1, 0.2]}, report={"choose": {"over": ["training.lr"]}}).report
    assert report is not None
    assert (report.target, report.choose and report.choose.over) == (None, ("training.lr",))


def test_every_sweep_of_the_documentation_can_be_read() -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    texts = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "results").glob("*.yaml")]
    whole = [text for text in texts if re.search(r"^base:", text, re.MULTILINE)]
    assert len(whole) >= 4
    for text in whole:
        sweep = SweepSpec.from_text(text)
        missing = {item.problem.field for item in make_plan(sweep, None).refused}
        assert missing <= {"dataset.name"}, text  # published data need not be here


def test_every_field_of_the_document_is_explained() -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    names = [field.alias or name for name, field in SweepSpec.model_fields.items()]
    assert [name for name in names if f"| `{name}` |" not in page] == []
