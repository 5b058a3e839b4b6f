"""CompFL with a server, as a token walk and as gossip: identities, messages, prices and numbers by hand."""

from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.catalogue import check
from engine.kit import training
from engine.kit.contract import Client, ClientDataset, Upload
from engine.kit.flops import forward_flops
from engine.kit.peer_to_peer import Arrival, Gossip, TokenWalk, connected_graph, metropolis_weights, participants_graph
from engine.kit.tensors import copy_tensors, shares, split_groups, weighted_mean
from engine.methods.compfl import (
    CompFL,
    Stored,
    alignment,
    class_means,
    distillation,
    prototype_head,
    soft_target,
    teacher_weights,
)
from engine.models import SplitModel, build, count
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.methods.byhand import TRAINING, alike, batches, descend, everything, trainable, unit

OFF: dict[str, Any] = {"name": "compfl", "align": False, "greedy": False, "kd": False, "adaptation": False}
PEERS = ("token-walk", "gossip")
ASCENDING = ("tiny-cnn", "tiny-bn", "tiny-mlp")  # at 1×16×16: 2144, 2312 (+48 buffers) and 2608 scalars in the body
LARGEST, MIDDLE, SMALLEST = 0, 2, 1  # clients that own them


def compfl(**params: Any) -> dict[str, Any]:
    return {"name": "compfl", **params}


class Stage:
    """A run whose clients can be loaded one by one."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self.run = Run(spec)
        self.run.federation.build()
        assert isinstance(self.run.algorithm, CompFL)
        self.method: CompFL = self.run.algorithm

    def client(self, client_id: int, round: int = 1) -> Client:
        return self.run.federation.load(client_id, round)

    def work(self, client_id: int, round: int = 1) -> tuple[Client, Upload]:
        client = self.client(client_id, round)
        payload = self.method.local_update(client, self.method.download(self.run.server, client))
        return client, Upload(client_id, len(client.train), self.method.group(client), payload)


def scalars(run: Run, expert: str) -> int:
    return sum(count(build(expert, run.setup.shape, run.setup.classes, run.setup.feature_dim).body))


def essence(spec: ExperimentSpec) -> list[tuple[float | None, dict[str, float]]]:
    return [(record.loss, record.client_accuracy) for record in records_of(spec)]


def equal(first: Any, second: Any) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# identities


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_components_and_step_one_it_is_fedper_bit_for_bit(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    first, second = Run(small_spec(OFF, evaluation=evaluation)), Run(small_spec("fedper", evaluation=evaluation))
    for ours, theirs in zip(first.rounds(), second.rounds(), strict=True):
        assert {**ours.without_times(), "traces": {}} == {**theirs.without_times(), "traces": {}}
        for architecture, body in second.server.groups.items():
            assert equal(first.server.groups[architecture], body)
        for client in second.federation.states.ids():
            ours_kept, kept = first.federation.states.get(client), second.federation.states.get(client)
            assert equal({name: ours_kept[name] for name in kept}, kept)


@pytest.mark.parametrize(
    ("weightless", "switched_off"),
    [
        ({"epsilon": 0}, {"greedy": False}),
        ({"align_weight": 0}, {"align": False}),
        ({"kd_weight": 0}, {"kd": False}),
        ({"warmup": 3}, {"kd": False}),
    ],
)
def test_a_component_with_weight_zero_is_off(
    weightless: dict[str, Any], switched_off: dict[str, Any], small_spec: SpecMaker
) -> None:
    base = {"warmup": 0}
    first = records_of(small_spec(compfl(**{**base, **weightless})))
    assert same_results(first, records_of(small_spec(compfl(**base, **switched_off))))


# numbers by hand


def test_the_prototype_head_is_a_nearest_class_mean_classifier_in_which_missing_classes_never_win() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    labels = torch.tensor([0, 0, 2])
    means = class_means(features, labels, 4)
    assert means.tolist() == [[2, 0], [0, 0], [0, 4], [0, 0]]
    weight, bias = prototype_head(means, torch.tensor([True, False, True, False]))
    assert weight.tolist() == [[2, 0], [0, 0], [0, 4], [0, 0]]
    assert bias.tolist() == [-2, -8, -8, -8]  # -½·2², -½·4², and the least of them where there is no sample
    near_zero = torch.tensor([0.1, 0.1])
    assert (weight @ near_zero + bias).argmax() == 0


def test_teachers_are_weighted_by_their_stretched_accuracy() -> None:
    total = 1 + exp(1) + exp(2)
    assert teacher_weights([0.5, 0.7, 0.9], 0.5, "min_max") == pytest.approx(
        [1 / total, exp(1) / total, exp(2) / total]
    )
    assert teacher_weights([0.5, 0.9], 0.1, "min_max") == pytest.approx([1 / (1 + exp(10)), 1 / (1 + exp(-10))])


def test_one_teacher_weighs_one_and_equal_teachers_weigh_the_same() -> None:
    assert teacher_weights([0.3], 0.1, "min_max") == [1.0]
    assert teacher_weights([0.3, 0.3, 0.3, 0.3], 0.1, "min_max") == [0.25] * 4


def test_as_a_fraction_the_accuracy_enters_as_it_is() -> None:
    difference = exp(0.2 / 0.4)
    assert teacher_weights([0.4, 0.6], 0.4, "fraction") == pytest.approx(
        [1 / (1 + difference), difference / (1 + difference)]
    )


def test_the_target_is_half_the_truth_and_half_the_teachers() -> None:
    predictions = [torch.tensor([[0.6, 0.4]]), torch.tensor([[0.2, 0.8]])]
    target = soft_target(torch.tensor([0]), predictions, [0.75, 0.25])
    assert target[0].tolist() == pytest.approx([0.75, 0.25])


def test_the_distillation_loss_in_both_directions() -> None:
    logits, target = torch.zeros(2, 2), torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    forward = (0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5)) / 2  # the second sample adds nothing to the mean
    reverse = (0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25)) / 2
    assert distillation(logits, target, "forward").item() == pytest.approx(forward)
    assert distillation(logits, target, "reverse").item() == pytest.approx(reverse)


def test_the_reverse_direction_stays_finite_where_the_target_is_zero() -> None:
    loss = distillation(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), "reverse")
    assert loss.item() == pytest.approx(0.5 * log(0.5) + 0.5 * log(0.5 / 1e-8))


def test_the_alignment_is_the_squared_distance_to_the_anchor_of_the_class() -> None:
    z, anchors = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    assert alignment(z, anchors, "mean").item() == (0 + 4 + 9 + 16) / 4
    assert alignment(z, anchors, "sum").item() == (4 + 25) / 2


# selection and messages


def test_experts_are_ordered_by_the_size_of_their_body(small_spec: SpecMaker) -> None:
    run = Run(small_spec("compfl"))
    assert isinstance(run.algorithm, CompFL)
    assert run.algorithm.experts == ASCENDING
    assert [scalars(run, expert) for expert in ASCENDING] == [2144, 2312 + 48, 2608]


def test_the_expert_is_drawn_as_equation_eight_says(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec("compfl"))
    frequency = dict.fromkeys(ASCENDING, 0.0)
    client = stage.client(LARGEST)
    for client.round in range(4000):
        frequency[stage.method.group(client)] += 1 / 4000
    assert frequency == pytest.approx({"tiny-cnn": 0.1, "tiny-bn": 0.1, "tiny-mlp": 0.8}, abs=0.015)


def test_a_client_with_the_smallest_expert_always_trains_it(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(epsilon=1)))
    client = stage.client(SMALLEST)
    for client.round in range(50):
        assert stage.method.group(client) == "tiny-cnn"


def test_a_message_holds_the_selected_expert_up_and_what_is_needed_down(small_spec: SpecMaker) -> None:
    run = Run(small_spec(compfl(warmup=2, epsilon=0.8), rounds=4, participation=1.0))
    helped = 0
    for record in list(run.rounds())[1:]:
        up = down = 0
        for k in record.cohort:
            own = ASCENDING.index(run.setup.architectures[k])
            selected = int(record.traces["expert"][str(k)]) - 1
            helped += selected != own
            up += scalars(run, ASCENDING[selected])
            needed = range(own + 1) if record.round > 2 else {own, selected}
            down += sum(scalars(run, ASCENDING[expert]) for expert in needed)
        assert (record.scalars_up, record.scalars_down) == (up, down)
    assert helped > 0


def test_the_server_averages_each_expert_over_those_who_trained_it(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(epsilon=1)))
    uploads = [stage.work(k)[1] for k in range(6)]
    trained = {upload.group for upload in uploads}
    assert any(upload.group != stage.run.setup.architectures[upload.client] for upload in uploads)
    server = stage.method.aggregate(stage.run.server, uploads, 1)
    for expert in ASCENDING:
        mine = [upload for upload in uploads if upload.group == expert]
        expected = (
            weighted_mean([upload.payload for upload in mine], shares([upload.num_samples for upload in mine]))
            if expert in trained
            else stage.run.server.groups[expert]
        )
        assert equal(server.groups[expert], expected)


def test_distillation_starts_after_the_warm_up(small_spec: SpecMaker) -> None:
    records = records_of(small_spec(compfl(warmup=2), participation=1.0))
    assert ["teacher_weights" in record.traces for record in records] == [False, False, False, True]
    for k, weights in records[3].traces["teacher_weights"].items():
        assert sum(weights) == pytest.approx(1)
        assert weights[int(records[3].traces["expert"][k]) - 1] == 0  # the expert in training is no teacher


@pytest.mark.parametrize(
    ("option", "selected", "expected"),
    [
        ("others", "tiny-mlp", ["tiny-cnn", "tiny-bn"]),
        ("others", "tiny-cnn", ["tiny-bn", "tiny-mlp"]),
        ("strictly_smaller", "tiny-mlp", ["tiny-cnn", "tiny-bn"]),
        ("strictly_smaller", "tiny-cnn", ["tiny-bn"]),
        ("all_held", "tiny-bn", ["tiny-cnn", "tiny-bn", "tiny-mlp"]),
    ],
)
def test_the_teachers_are_those_of_the_option(
    option: str, selected: str, expected: list[str], small_spec: SpecMaker
) -> None:
    stage = Stage(small_spec(compfl(teachers=option)))
    assert stage.method._teachers(stage.client(LARGEST), selected, ASCENDING) == expected


# local work


def test_step_one_writes_the_prototypes_of_the_received_body_into_the_head(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(head_lr=0)))
    client = stage.client(LARGEST)
    with torch.no_grad():
        images, labels = client.train.batch(torch.arange(len(client.train)))
        features = client.model.eval().body(images)
    for label in client.train.classes():
        anchors = stage.method._adapt(client, client.model, client.train, anchors=True, visit=0)
        expected = features[labels == label].mean(0)
        assert torch.allclose(anchors[label], expected, atol=1e-6)
        assert torch.equal(client.model.state_dict()["head.weight"][label], anchors[label])


def test_prototypes_by_angle_have_length_one_in_the_head(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(head_lr=0, cosine=True)))
    client = stage.client(LARGEST)
    stage.method._adapt(client, client.model, client.train, anchors=False, visit=0)
    lengths = client.model.state_dict()["head.weight"].norm(dim=1)
    owned = client.train.classes()
    assert lengths[owned].tolist() == pytest.approx([1.0] * len(owned))
    assert client.model.state_dict()["head.bias"].tolist() == pytest.approx([-0.5] * 4)


def test_the_own_head_may_be_kept_while_others_start_from_prototypes(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(head_lr=0, own_head_init="keep")))
    client = stage.client(LARGEST)
    smaller = stage.method._expert(client, "tiny-cnn")
    before = [copy_tensors(model.head) for model in (client.model, smaller)]
    for model in (client.model, smaller):
        stage.method._adapt(client, model, client.train, anchors=False, visit=0)
    assert equal(copy_tensors(client.model.head), before[0])
    assert not equal(copy_tensors(smaller.head), before[1])


def test_who_trained_a_smaller_expert_is_tested_with_the_fresh_own_body_and_the_head_of_step_one(
    small_spec: SpecMaker,
) -> None:
    stage = Stage(small_spec(compfl(epsilon=1, head_lr=0)))
    round = next(r for r in range(1, 50) if stage.method.group(stage.client(LARGEST, r)) == "tiny-cnn")
    client, upload = stage.work(LARGEST, round)
    assert equal(copy_tensors(client.model.body), stage.run.server.groups["tiny-mlp"])
    assert not equal(upload.payload, stage.run.server.groups["tiny-cnn"])
    after_work = copy_tensors(client.model.head)
    stage.method._adapt(client, client.model, client.train, anchors=False, visit=0)
    assert equal(after_work, copy_tensors(client.model.head))


def test_experts_of_one_architecture_start_equal_wherever_they_are(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec("compfl"))
    smaller = stage.method._expert(stage.client(LARGEST), "tiny-cnn")
    assert equal(copy_tensors(smaller), copy_tensors(stage.client(SMALLEST).model))


def test_a_client_keeps_all_its_heads_and_no_body(small_spec: SpecMaker) -> None:
    run = Run(small_spec(compfl(warmup=0), participation=1.0))
    list(run.rounds())
    heads = {"model.head", "parts.tiny-cnn.head", "parts.tiny-bn.head"}
    expected = {f"{head}.{name}" for head in heads for name in ("weight", "bias")}
    assert run.federation.states.get(LARGEST).keys() == expected


def test_heads_persist_over_rounds_of_absence(small_spec: SpecMaker) -> None:
    run = Run(small_spec(compfl(warmup=0), rounds=6, participation=0.34))
    kept: dict[int, dict[str, Tensor]] = {}
    for record in run.rounds():
        for k, state in kept.items():
            assert equal(run.federation.states.get(k), state) == (k not in record.cohort)
        kept = {k: copy_tensors(run.federation.states.get(k)) for k in run.federation.states.ids()}


def test_the_hold_out_is_a_tenth_of_every_class_that_nothing_else_uses(small_spec: SpecMaker) -> None:
    dataset = {"name": "synthetic", "classes": 4, "samples_per_class": 200, "channels": 1, "size": 16}
    stage = Stage(small_spec(compfl(accuracy_on="holdout"), dataset=dataset))
    client = stage.client(0)
    train, validation = stage.method._samples(client)
    assert len(validation) == len(client.train) // 10
    assert not set(train.index.tolist()) & set(validation.index.tolist())
    assert len(train) + len(validation) == len(client.train)
    assert validation.classes() == client.train.classes()


def by_hand(stage: Stage, client: Client, selected: str, λ: float, μ: float) -> dict[str, Any]:
    """Steps 1, 2 and 4 as the paper prints them; returns every expert as local work must leave it."""
    held = {name: trainable(stage.method._expert(client, name)) for name in ASCENDING}
    x_all, y_all = everything(client)
    anchors, accuracies = {}, {}
    for name, expert in held.items():
        expert.eval()
        with torch.no_grad():
            features = expert.body(x_all)
        classes = sorted(set(y_all.tolist()))
        anchors[name] = torch.zeros(4, 16)
        for c in classes:
            anchors[name][c] = features[y_all == c].double().mean(0)
        expert.head.weight.data = anchors[name].clone()
        least = min(-0.5 * float(anchors[name][c] @ anchors[name][c]) for c in classes)
        bias = [-0.5 * float(anchors[name][c] @ anchors[name][c]) if c in classes else least for c in range(4)]
        expert.head.bias.data = torch.tensor(bias)
        head = unit(expert.head, lr=0.1, momentum=0.5, decay=0.0005)
        for x, y in batches(client, epochs=1):
            descend(cross_entropy(expert.head(expert.body(x).detach()), y), head)
        if name != selected:
            accuracies[name] = float((expert(x_all).argmax(1) == y_all).double().mean())
    low, high = min(accuracies.values()), max(accuracies.values())
    raised = {name: exp((a - low) / ((high - low) or 1.0) / 0.1) for name, a in accuracies.items()}
    s = {name: value / sum(raised.values()) for name, value in raised.items()}
    student = held[selected].train()
    whole = unit(student)
    for x, y in batches(client):
        z = student.body(x)
        p = student.head(z).softmax(1)
        with torch.no_grad():
            ensemble = torch.stack([s[name] * held[name](x).softmax(1) for name in s]).sum(0)
            q = 0.5 * torch.eye(4)[y] + 0.5 * ensemble
        distances = (z - anchors[selected][y]) ** 2
        divergence = (q * (q.clamp_min(1e-30).log() - p.log())).sum(1)
        descend(cross_entropy(student.head(z), y) + λ * distances.mean() + μ * divergence.mean(), whole)
    return held


@pytest.mark.parametrize("selected", ASCENDING)
def test_local_work_is_that_of_the_paper(selected: str, small_spec: SpecMaker) -> None:
    params = compfl(warmup=0, epsilon=1, align_weight=0.7, kd_weight=1.5)
    stage = Stage(small_spec(params, training=TRAINING))
    round = next(r for r in range(1, 50) if stage.method.group(stage.client(LARGEST, r)) == selected)
    expected = by_hand(stage, stage.client(LARGEST, round), selected, 0.7, 1.5)
    client, upload = stage.work(LARGEST, round)
    for name, expert in expected.items():
        assert alike(stage.method._expert(client, name), expert)
    assert equal(upload.payload, copy_tensors(stage.method._expert(client, selected).body))


@pytest.mark.parametrize("mode", ["independent", "permuted"])
def test_names_of_its_own_for_the_classes_cost_a_client_nothing(mode: str, small_spec: SpecMaker) -> None:
    """No head travels and step 1 builds each from the client's own samples, so only the order of its rows differs."""
    partition = {"name": "balanced", "classes_per_client": 4, "local_size": 24}
    ways = [{**partition, "labels": labels} for labels in ("unified", mode)]
    runs = [Run(small_spec(compfl(warmup=0), partition=way, rounds=1, participation=1.0)) for way in ways]
    assert all(share.label_map is not None for share in runs[1].partition.shares)
    ours, theirs = (list(run.rounds())[1] for run in runs)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert ours.client_accuracy == theirs.client_accuracy
    for expert in ASCENDING:
        for name, tensor in runs[0].server.groups[expert].items():
            other = runs[1].server.groups[expert][name]
            assert torch.allclose(tensor.double(), other.double(), rtol=1e-3, atol=1e-5)
    first, second = (run.federation.states.get(LARGEST)["model.head.weight"] for run in runs)
    assert not torch.allclose(first, second, rtol=1e-3, atol=1e-5)


# prices


@pytest.mark.parametrize(
    "params",
    [
        {"warmup": 0},
        {"warmup": 9},
        {"warmup": 0, "teachers": "all_held"},
        {"warmup": 0, "own_head_init": "keep"},
        {"warmup": 0, "adaptation": False},
        {"warmup": 0, "adaptation": False, "align": False},
    ],
    ids=str,
)
def test_local_work_costs_what_the_formula_says(params: dict[str, Any], small_spec: SpecMaker) -> None:
    run = Run(small_spec(compfl(epsilon=0.9, **params), rounds=1, participation=1.0))
    record = list(run.rounds())[1]
    distils, adapts = params["warmup"] == 0, params.get("adaptation", True)
    body, head = {}, 2 * 16 * 4
    for expert in ASCENDING:
        model = build(expert, run.setup.shape, run.setup.classes, run.setup.feature_dim).eval()
        body[expert] = forward_flops(model.body, torch.zeros(1, *run.setup.shape))
    expected = 0
    for k in record.cohort:
        own = run.setup.architectures[k]
        held = ASCENDING[: ASCENDING.index(own) + 1]
        selected = ASCENDING[int(record.traces["expert"][str(k)]) - 1]
        fresh = held if distils else [e for e in held if e in {own, selected}]
        teachers = [e for e in held if e != selected or params.get("teachers") == "all_held"] if distils else []
        anchored = [selected] if params.get("align", True) else []
        initialised = [e for e in fresh if adapts and not (e == own and params.get("own_head_init") == "keep")]
        per_sample = sum(body[e] for e in {*initialised, *anchored})  # prototypes
        per_sample += sum(body[e] + 3 * head for e in fresh) if adapts else 0  # the head's epoch
        per_sample += sum(body[e] + head for e in teachers)  # step 2
        epoch = 3 * (body[selected] + head) + sum(body[e] + head for e in teachers)
        expected += run.setup.num_samples[k] * (per_sample + 2 * epoch)
    assert record.client_flops == expected


# options


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"align": False},
        {"greedy": False},
        {"kd": False},
        {"adaptation": False},
        {"epsilon": 0.9},
        {"tau": 5.0},
        {"align_weight": 0.5},
        {"kd_weight": 0.5},
        {"head_lr": 0.05},
        {"head_momentum": 0.0},
        {"head_weight_decay": 0.1},
        {"own_head_init": "keep"},
        {"cosine": True},
        {"teachers": "strictly_smaller"},
        {"teachers": "all_held"},
        {"accuracy_scale": "fraction"},
        {"accuracy_on": "holdout"},
        {"kl": "reverse"},
        {"align_reduction": "sum"},
    ]
    results = []
    for variant in variants:
        run = Run(small_spec(compfl(**{"warmup": 0, "epsilon": 0.5, **variant}), rounds=2, participation=1.0))
        list(run.rounds())
        results.append(tuple(float(t.double().abs().sum()) for b in run.server.groups.values() for t in b.values()))
    assert len(set(results)) == len(variants)


@pytest.mark.parametrize(
    ("topology", "variants"),
    [
        ("token-walk", [{}, {"hops": 2}, {"walk": "metropolis"}, {"visit_training": "always"}, {"greedy": False}]),
        ("gossip", [{}, {"rounds_per_expert": 1}, {"kd": False}, {"align": False}]),
    ],
)
def test_every_option_of_a_topology_changes_the_result(
    topology: str, variants: list[dict[str, Any]], small_spec: SpecMaker
) -> None:
    base, rounds = {"warmup": 0, "edge_probability": 0.5}, 2 if topology == "token-walk" else 4
    specs = [
        small_spec(compfl(**{**base, **variant}), topology=topology, participation=1.0, rounds=rounds)
        for variant in (*variants, {"edge_probability": 1.0})
    ]
    assert len({str(essence(spec)) for spec in specs}) == len(specs)


# token walk


def test_a_token_walk_of_one_node_is_standalone_bit_for_bit(small_spec: SpecMaker) -> None:
    one = {"clients": 1, "partition": {"name": "iid"}}
    walk, alone = Run(small_spec(OFF, topology="token-walk", **one)), Run(small_spec(**one))
    for ours, theirs in zip(walk.rounds(), alone.rounds(), strict=True):
        assert (ours.loss, ours.client_accuracy) == (theirs.loss, theirs.client_accuracy)
        assert ours.scalars_up == 0  # nowhere to go
        for name, tensor in (alone.federation.states.get(0) if theirs.round else {}).items():
            assert torch.equal(walk.federation.states.get(0)[name], tensor)


def test_every_token_hops_as_often_as_the_cohort_is_large_and_every_hop_is_one_message(small_spec: SpecMaker) -> None:
    run = Run(small_spec("compfl", topology="token-walk"))
    for record in list(run.rounds())[1:]:
        visits = torch.tensor(list(record.traces["visits"].values())).sum(0)
        assert visits.tolist() == [3, 3, 3]
        assert record.scalars_up == 3 * sum(scalars(run, expert) for expert in ASCENDING)
        assert record.scalars_down == 0


def test_a_refused_metropolis_move_costs_no_message(small_spec: SpecMaker) -> None:
    params = compfl(walk="metropolis", edge_probability=0.4, hops=20)
    run = Run(small_spec(params, topology="token-walk", rounds=1))
    record = list(run.rounds())[1]
    assert 0 < record.scalars_up < 20 * sum(scalars(run, expert) for expert in ASCENDING)


def test_a_metropolis_walk_visits_a_star_evenly_and_a_uniform_one_its_centre(small_spec: SpecMaker) -> None:
    run = Run(small_spec("compfl", topology="token-walk"))
    walk = run.peers
    assert isinstance(walk, TokenWalk)
    walk.graph = nx.star_graph(4)
    draws = torch.Generator().manual_seed(0)
    share = {}
    for walk.walk in ("uniform", "metropolis"):
        place, at_centre = 0, 0
        for _ in range(4000):
            place = walk._next(place, draws)
            at_centre += place == 0
        share[walk.walk] = at_centre / 4000
    assert share == pytest.approx({"uniform": 0.5, "metropolis": 0.2}, abs=0.03)


def arrival(stage: Stage, expert: str, visit: int = 0) -> Arrival:
    return Arrival(expert, {name: tensor + 0.01 for name, tensor in stage.run.server.groups[expert].items()}, visit)


def test_a_holder_that_declines_stores_the_copy_and_passes_it_on_untouched(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(greedy=False), topology="token-walk"))
    client, token = stage.client(LARGEST), arrival(stage, "tiny-cnn")
    departing = split_groups(stage.method.host(client, [token]))
    assert equal(departing["tiny-cnn"], token.body)
    assert equal(copy_tensors(stage.method._expert(client, "tiny-cnn").body), token.body)
    assert client.part("stored", Stored).experts.tolist() == [1, 0, 0]
    assert client.meter.flops == 0


def test_a_token_too_large_for_its_holder_passes_untouched(small_spec: SpecMaker) -> None:
    run = Run(small_spec(compfl(greedy=False), topology="token-walk", clients=3, participation=1.0))
    iterator = run.rounds()
    next(iterator)
    for record in iterator:
        for k, (*_, largest) in record.traces["visits"].items():
            if largest and int(k) != LARGEST:
                assert record.traces["expert"].get(k) != 3
    assert "parts.stored.experts" in run.federation.states.get(LARGEST)


def test_tokens_at_one_client_in_one_hop_are_taught_by_the_copies_stored_before(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(warmup=0, visit_training="always"), topology="token-walk"))

    def departing(*experts: str) -> dict[str, dict[str, Tensor]]:
        client = stage.client(MIDDLE)
        client.part("stored", Stored).experts[:2] = 1
        return split_groups(stage.method.host(client, [arrival(stage, expert) for expert in experts]))

    both = departing("tiny-cnn", "tiny-bn")
    assert equal(both["tiny-cnn"], departing("tiny-cnn")["tiny-cnn"])
    assert equal(both["tiny-bn"], departing("tiny-bn")["tiny-bn"])


def test_an_expert_teaches_only_once_a_copy_is_stored(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(compfl(warmup=0, greedy=False), topology="token-walk"))
    client = stage.client(LARGEST)
    stage.method.host(client, [arrival(stage, "tiny-mlp")])
    assert "teacher_weights" not in client.traces
    stage.method.host(client, [arrival(stage, "tiny-bn")])
    stage.method.host(client, [arrival(stage, "tiny-mlp", visit=1)])
    assert client.traces["teacher_weights"] == [0, 1, 0]


def test_a_second_visit_in_a_round_goes_on_with_other_batches(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec(OFF, topology="token-walk"))
    first = stage.method.host(stage.client(LARGEST), [arrival(stage, "tiny-mlp")])
    second = stage.method.host(stage.client(LARGEST), [arrival(stage, "tiny-mlp", visit=1)])
    assert not equal(first, second)


def test_the_epoch_of_step_one_has_the_number_of_the_visit_s_first(
    small_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []
    stage = Stage(small_spec(compfl(visit_training="always"), topology="token-walk", training={"epochs": 3}))
    client, batches = stage.client(LARGEST), training.shuffled_batches

    def recorded(client: Client, train: ClientDataset, epochs: range) -> Iterator[tuple[Tensor, Tensor]]:
        drawn.append((epochs.start, len(epochs)))
        return batches(client, train, epochs)

    monkeypatch.setattr(training, "shuffled_batches", recorded)
    for visit in range(3):
        stage.method.host(client, [arrival(stage, "tiny-mlp", visit=visit)])
    assert drawn == [(0, 1), (0, 3), (3, 1), (3, 3), (6, 1), (6, 3)]


def test_a_teacher_that_is_replaced_in_the_same_hop_leaves_its_head_as_it_was(small_spec: SpecMaker) -> None:
    """The token that trains is taught by the copy stored before; the other token is declined and keeps its old head."""
    stage = Stage(small_spec(compfl(warmup=0, greedy=False), topology="token-walk"))
    client = stage.client(LARGEST)
    client.part("stored", Stored).experts[:2] = 1
    own = client.part("tiny-bn", SplitModel).head
    before = copy_tensors(own)
    stage.method.host(client, [arrival(stage, "tiny-bn"), arrival(stage, "tiny-mlp")])
    assert "teacher_weights" in client.traces
    assert equal(copy_tensors(own), before)


def test_a_holder_trains_tokens_as_often_as_equation_eight_selects_them(small_spec: SpecMaker) -> None:
    stage = Stage(small_spec("compfl", topology="token-walk"))
    client = stage.client(LARGEST)
    for expert, probability in (("tiny-mlp", 0.8), ("tiny-cnn", 0.1)):
        trained = sum(stage.method._trains(client, Arrival(expert, {}, visit)) for visit in range(3000))
        assert trained / 3000 == pytest.approx(probability, abs=0.02)


# gossip


def test_gossip_on_the_complete_graph_is_a_uniform_fedper_round(small_spec: SpecMaker) -> None:
    same: dict[str, Any] = {"clients": 4, "partition": {"name": "iid"}, "models": {"family": "tiny-bn"}}
    same |= {"participation": 1.0, "rounds": 1}
    gossip, server = Run(small_spec(OFF, topology="gossip", **same)), Run(small_spec("fedper", **same))
    ours, theirs = list(gossip.rounds())[1], list(server.rounds())[1]
    assert len(set(gossip.setup.num_samples)) == 1
    assert ours.loss == theirs.loss
    for k in range(4):
        for name, expected in server.server.groups["tiny-bn"].items():
            assert torch.allclose(gossip.federation.states.get(k)[f"model.body.{name}"], expected, rtol=1e-5, atol=1e-5)
        head = server.federation.states.get(k)["model.head.weight"]
        assert torch.equal(gossip.federation.states.get(k)["model.head.weight"], head)


def test_the_largest_expert_is_trained_first_and_only_by_those_who_can_hold_it(small_spec: SpecMaker) -> None:
    records = records_of(small_spec("compfl", topology="gossip", participation=1.0, rounds=6))[1:]
    assert [record.cohort for record in records] == 2 * [[0, 3]] + 2 * [[0, 2, 3, 5]] + 2 * [[0, 1, 2, 3, 4, 5]]
    assert [set(record.traces["expert"].values()) for record in records] == [{3}, {3}, {2}, {2}, {1}, {1}]


@pytest.mark.parametrize(
    ("rounds", "per_expert", "expected"),
    [
        (3, None, [(3, 1), (2, 1), (1, 1)]),
        (7, None, [(3, 1), (3, 2), (3, 3), (2, 1), (2, 2), (1, 1), (1, 2)]),
        (5, 1, [(3, 1), (2, 1), (1, 1), (1, 2), (1, 3)]),
    ],
)
def test_rounds_are_shared_out_among_the_experts(
    rounds: int, per_expert: int | None, expected: list[tuple[int, int]], small_spec: SpecMaker
) -> None:
    params = compfl(rounds_per_expert=per_expert)
    gossip = Run(small_spec(params, topology="gossip", participation=1.0, rounds=rounds)).peers
    assert isinstance(gossip, Gossip)
    schedule = [gossip.schedule(number) for number in range(1, rounds + 1)]
    assert [(ASCENDING.index(expert) + 1, age) for expert, age in schedule] == expected


def test_the_warm_up_counts_anew_for_every_expert_and_larger_ones_teach(small_spec: SpecMaker) -> None:
    spec = small_spec(compfl(warmup=1), topology="gossip", participation=1.0, rounds=6)
    records = records_of(spec)[1:]
    assert ["teacher_weights" in record.traces for record in records] == [False, False, False, True, False, True]
    weights = records[3].traces["teacher_weights"]
    assert weights == {"0": [0, 0, 1], "3": [0, 0, 1]}  # the owners of the middle one have no larger expert


def test_gossip_sends_one_copy_to_every_neighbour(small_spec: SpecMaker) -> None:
    run = Run(small_spec("compfl", topology="gossip", participation=1.0))
    records = list(run.rounds())[1:]
    participants = [2, 4, 6]
    for record, m, expert in zip(records, participants, reversed(ASCENDING), strict=True):
        assert record.scalars_up == m * (m - 1) * scalars(run, expert)
        assert record.scalars_down == 0


def test_metropolis_weights_of_a_path_by_hand() -> None:
    path = nx.path_graph(3)
    assert metropolis_weights(path, 0) == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert metropolis_weights(path, 1) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


def test_participants_that_are_connected_need_no_relay() -> None:
    mesh = participants_graph(nx.cycle_graph(4), [0, 1, 2])
    assert sorted(mesh.edges(data="transmissions")) == [(0, 1, 1), (1, 2, 1)]


def test_participants_that_are_not_connected_are_joined_through_the_others() -> None:
    mesh = participants_graph(nx.path_graph(6), [0, 1, 3, 5])
    assert sorted(mesh.edges(data="transmissions")) == [(0, 1, 1), (1, 3, 2), (3, 5, 2)]
    assert dict(mesh.degree) == {0: 1, 1: 2, 3: 2, 5: 1}
    longer = participants_graph(nx.path_graph(4), [0, 3])
    assert list(longer.edges(data="transmissions")) == [(0, 3, 3)]


def test_a_relayed_message_is_counted_for_each_of_its_transmissions(small_spec: SpecMaker) -> None:
    run = Run(small_spec("compfl", topology="gossip", participation=1.0, rounds=3))
    assert isinstance(run.peers, Gossip)
    run.peers.meshes["tiny-mlp"] = participants_graph(nx.path_graph(6), [0, 3])
    record = list(run.rounds())[1]
    assert record.scalars_up == 2 * 3 * scalars(run, "tiny-mlp")


# both


@pytest.mark.parametrize("p", [1.0, 0.6, 0.3])
def test_the_graph_is_connected_and_belongs_to_the_seed(p: float) -> None:
    graph = connected_graph(7, 12, p)
    assert nx.is_connected(graph)
    assert nx.utils.graphs_equal(graph, connected_graph(7, 12, p))
    assert p == 1.0 or not nx.utils.graphs_equal(graph, connected_graph(8, 12, p))


@pytest.mark.parametrize("topology", PEERS)
@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_a_server_all_clients_are_tested_in_every_round(
    topology: str, protocol: str, small_spec: SpecMaker
) -> None:
    spec = small_spec("compfl", topology=topology, participation=1.0, evaluation={"protocol": protocol})
    for record in records_of(spec)[1:]:
        assert sorted(record.client_accuracy) == [str(k) for k in range(6)]


@pytest.mark.parametrize("topology", ["server", *PEERS])
def test_threads_and_a_resume_do_not_change_a_bit(topology: str, small_spec: SpecMaker, tmp_path: Path) -> None:
    params = compfl(warmup=1, epsilon=0.6, edge_probability=0.6)
    spec = small_spec(params, topology=topology, participation=1.0, rounds=5)
    undisturbed = records_of(spec)
    assert same_results(undisturbed, records_of(spec, threads=2))
    checkpoints, records = Checkpoints(tmp_path), []
    for record, _ in rounds_with_checkpoints(Run(spec), checkpoints, every=1):
        records.append(record)
        if record.round == 3:
            break
    snapshot = Checkpoints(tmp_path, writer="1").newest(spec.fingerprint())
    assert snapshot is not None
    assert same_results([*records, *records_of(spec, resume_from=snapshot, threads=2)], undisturbed)


# what it refuses


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"algorithm": "fedper", "topology": "gossip"}, "topology", "FedPer runs with 'server', but got 'gossip'"),
        ({"topology": "gossip"}, "algorithm.name", "set participation to 1"),
        ({"topology": "gossip", "participation": 1.0, "rounds": 2}, "algorithm.name", "2 rounds are too few"),
        (
            {"algorithm": compfl(edge_probability=0.01), "topology": "token-walk"},
            "algorithm.name",
            "edge probability 0.01",
        ),
        (
            {"models": {"family": "res34-htc-img-4"}, "dataset": {"name": "synthetic", "size": 32}},
            "algorithm.name",
            "deeper head",
        ),
    ],
)
def test_a_setup_it_cannot_run_is_refused_with_the_reason(
    changes: dict[str, Any], field: str, words: str, small_spec: SpecMaker
) -> None:
    with pytest.raises(SpecError) as caught:
        check(small_spec(**{"algorithm": "compfl", **changes}), None)
    [problem] = caught.value.problems
    assert problem.field == field
    assert words in problem.message


@pytest.mark.parametrize("topology", ["server", *PEERS])
def test_all_three_topologies_are_accepted(topology: str, small_spec: SpecMaker) -> None:
    check(small_spec("compfl", topology=topology, participation=1.0), None)
