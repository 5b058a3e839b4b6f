"""FedProto, and what FedTGP shares with it: identities, messages, prices and the pull to the prototypes by hand."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.test_fd import STILL, client_and_run, held, sent_by
from tests.engine.methods.test_proposed import DIGITS, essence, prices

PROTOTYPE_METHODS = ["fedproto", "fedtgp"]


@pytest.fixture(params=PROTOTYPE_METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_the_pull_it_is_standalone_bit_for_bit(method: str, protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    spec = small_spec({"name": method, "weight": 0}, evaluation=evaluation)
    assert essence(spec) == essence(small_spec(evaluation=evaluation))


def test_round_one_has_no_prototypes_and_is_standalone(method: str, small_spec: SpecMaker) -> None:
    changed, alone = essence(small_spec(method)), essence(small_spec())
    assert changed[1] == alone[1]
    assert changed[2:] != alone[2:]


def test_features_of_different_width_are_refused(method: str) -> None:
    spec = ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}, "models": {"family": "compfl-2"}})
    assert "feature_dim" in str(Run(spec).algorithm.why_not())


def test_the_pull_is_what_the_equation_says(method: str, small_spec: SpecMaker) -> None:
    """One batch with everything in it and a learning rate of 0: the loss can be written down."""
    algorithm, client, _ = client_and_run(small_spec({"name": method, "weight": 3.0}, training=STILL))
    known, _ = client.train.classes()
    prototype = torch.linspace(-1, 1, 16)[None]
    images, y = client.train.batch(torch.arange(len(client.train)))
    with torch.no_grad():
        z = client.model.train().body(images)
        expected = cross_entropy(client.model.head(z), y)
        expected += 3.0 * (z - prototype)[y == known].square().sum() / (len(y) * 16)
    algorithm.local_update(client, {"classes": torch.tensor([known]), "means": prototype})
    assert client.losses == pytest.approx([expected.item()], rel=1e-5)


def test_prototypes_come_from_the_trained_body_in_eval_mode(method: str, small_spec: SpecMaker) -> None:
    """A public code takes them from the weights before training."""
    algorithm, _, run = client_and_run(small_spec(method))
    client = run.federation.load(2, 1)  # its network has batch norm
    assert client.architecture == "tiny-bn"
    sent = algorithm.local_update(client, {})
    images, y = client.train.batch(torch.arange(len(client.train)))
    with torch.no_grad():
        z = client.model.eval().body(images)
    assert sent["classes"].tolist() == client.train.classes()
    for c, mean in zip(sent["classes"], sent["means"], strict=True):
        assert torch.allclose(mean, z[y == c].mean(0), atol=1e-6)


def test_prototypes_ignore_augmentation() -> None:
    """The pass after training sees the images themselves, so its result depends on the weights alone."""
    spec = {**DIGITS, "algorithm": {"name": "fedproto"}, "dataset": {"name": "digits", "transform": "a"}}
    spec["training"] = {**STILL, "augment": True}
    algorithm, client, run = client_and_run(ExperimentSpec.parse(spec))
    first = algorithm.local_update(client, {})
    second = algorithm.local_update(run.federation.load(0, 2), {})
    assert torch.equal(first["means"], second["means"])


def test_a_client_ships_one_vector_per_class_and_pays_for_one_more_pass(method: str) -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}}))
    record = list(run.rounds())[1]
    [k] = record.cohort
    n, body, head, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
    classes = len(run.federation.fresh(k, 1).train.classes())
    assert (record.scalars_up, record.scalars_down) == (classes * 500, 0)
    assert record.client_flops == n * (3 * (body + head) + body)


def test_fedproto_sends_down_the_classes_known_so_far(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedproto"))
    rounds = run.rounds()
    next(rounds)
    known = 0
    for record in rounds:
        assert record.scalars_down == len(record.cohort) * known * 16
        known = len(run.server.groups["all"]["classes"])


def test_features_met_in_training_cost_no_pass() -> None:
    spec = {**DIGITS, "algorithm": {"name": "fedproto", "source": "online"}}
    run = Run(ExperimentSpec.parse(spec))
    record = list(run.rounds())[1]
    [k] = record.cohort
    n, body, head, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
    assert record.client_flops == n * 3 * (body + head)


@pytest.mark.parametrize(("source", "times"), [("post", 1), ("online", 2), ("online_last", 1)])
def test_a_source_counts_every_sample_as_often_as_it_says(source: str, times: int, small_spec: SpecMaker) -> None:
    algorithm, client, _ = client_and_run(small_spec({"name": "fedproto", "source": source}))
    sent = algorithm.local_update(client, {})
    own = [int((client.train.labels == c).sum()) for c in client.train.classes()]
    assert sent["counts"].tolist() == [times * number for number in own]


def test_the_server_weighs_senders_alike_or_by_their_samples(small_spec: SpecMaker) -> None:
    uploads = [sent_by(0, [1], [4.0]), sent_by(1, [1], [8.0])]
    uploads[1].payload["counts"][0] = 3
    for weights, mean in (("uniform", 6.0), ("size", 7.0)):
        algorithm, _, run = client_and_run(small_spec({"name": "fedproto", "weights": weights}))
        assert held(run, algorithm.aggregate(run.server, uploads, 1), 0) == {1: mean}


@pytest.mark.parametrize(("forget", "kept"), [(False, {0: 2.0, 1: 3.0}), (True, {1: 3.0})])
def test_a_class_that_nobody_sent_is_kept_unless_asked_otherwise(
    forget: bool, kept: dict[int, float], small_spec: SpecMaker
) -> None:
    algorithm, _, run = client_and_run(small_spec({"name": "fedproto", "forget_missing": forget}))
    first = algorithm.aggregate(run.server, [sent_by(0, [0, 1], [2.0, 4.0])], 1)
    assert held(run, algorithm.aggregate(first, [sent_by(1, [1], [3.0])], 2), 0) == kept


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"weight": 5.0},
        {"source": "online"},
        {"source": "online_last"},
        {"weights": "size"},
        {"forget_missing": True},
        {"readout": "proto"},
        {"readout": "proto", "candidates": "own"},
    ]
    partition = {"name": "dirichlet", "beta": 0.3}  # clients with unequal counts of a class
    results = [
        str(essence(small_spec({"name": "fedproto", **variant}, partition=partition, rounds=6, participation=0.34)))
        for variant in variants
    ]
    assert len(set(results)) == len(variants)


def test_reading_out_prototypes_waits_until_there_are_some(method: str, small_spec: SpecMaker) -> None:
    """After its local work a client answers with the table it received, and in round 1 it received none."""
    first, *others = records_of(small_spec({"name": method, "readout": "proto"}))[1:]
    assert first.accuracy is None
    assert first.client_accuracy == {}
    assert all(record.accuracy is not None for record in others)


def test_all_clients_read_out_the_newest_prototypes_under_b(method: str, small_spec: SpecMaker) -> None:
    spec = small_spec({"name": method, "readout": "proto"}, evaluation={"protocol": "B"})
    opening, *others = records_of(spec)
    assert opening.accuracy is None
    assert all(len(record.client_accuracy) == 6 for record in others)


def test_own_candidates_never_answer_with_a_foreign_class(small_spec: SpecMaker) -> None:
    algorithm, client, _ = client_and_run(small_spec({"name": "fedproto", "readout": "proto", "candidates": "own"}))
    everyone = {"classes": torch.arange(4), "means": torch.randn(4, 16, generator=torch.Generator().manual_seed(0))}
    algorithm.prepare(client, everyone)
    predictor = algorithm.predictor(client)
    images, _ = client.test.batch(torch.arange(len(client.test)))
    assert set(predictor(images).argmax(1).tolist()) <= set(client.train.classes())
    foreign = [c for c in range(4) if c not in client.train.classes()]
    table = {name: tensor[foreign] for name, tensor in everyone.items()}
    algorithm.prepare(client, table)
    assert algorithm.predictor(client) is None


def test_the_preset_of_family_b_has_its_own_values() -> None:
    spec = ExperimentSpec.parse(
        {
            "preset": "B",
            "algorithm": {"name": "fedproto"},
            "dataset": {"name": "digits"},
            "partition": {"name": "iid"},
            "models": {"family": "cnn-1-5"},
        }
    )
    assert (spec.algorithm.weight, spec.algorithm.readout) == (10.0, "proto")  # type: ignore[attr-defined]
