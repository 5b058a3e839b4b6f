"""FD: identities, messages, prices and the distillation term by hand."""

from typing import Any

import pytest
import torch

from engine.kit.contract import ServerState, Upload
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.test_proposed import DIGITS, essence, prices


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_the_term_it_is_standalone_bit_for_bit(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    fd = small_spec({"name": "fd", "weight": 0}, evaluation=evaluation)
    assert essence(fd) == essence(small_spec(evaluation=evaluation))


def test_round_one_has_no_table_and_is_standalone(small_spec: SpecMaker) -> None:
    fd, alone = essence(small_spec("fd")), essence(small_spec())
    assert fd[1] == alone[1]
    assert fd[2:] != alone[2:]


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"weight": 5}, {"target": "raw"}, {"leave_one_out": True}]
    results = [str(essence(small_spec({"name": "fd", **variant}, participation=1.0))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_messages_are_as_long_as_the_classes_known() -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": "fd"}, "participation": 0.2, "rounds": 3}))
    rounds = run.rounds()
    next(rounds)
    known = 0
    for record in rounds:
        owned = [len(run.federation.fresh(k, 1).train.classes()) for k in record.cohort]
        assert record.scalars_up == sum(owned) * 10
        assert record.scalars_down == len(record.cohort) * known * 10
        known = len(run.server.groups["all"]["classes"])


def test_logits_cost_nothing_more_than_training() -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": "fd"}}))
    record = list(run.rounds())[1]
    [k] = record.cohort
    n, body, head, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
    assert record.client_flops == n * 3 * (body + head)


def client_and_run(spec: ExperimentSpec) -> tuple[Any, Any, Run]:
    run = Run(spec)
    next(run.rounds())
    return run.algorithm, run.federation.load(0, 1), run


STILL: dict[str, Any] = {"epochs": 1, "batch_size": 1000, "lr": 0.0, "momentum": 0.0, "weight_decay": 0.0, "clip": None}


@pytest.mark.parametrize("target", ["softmax", "raw"])
def test_the_loss_is_what_the_equation_says(target: str, small_spec: SpecMaker) -> None:
    """One batch with everything in it and a learning rate of 0: the loss can be written down."""
    spec = small_spec({"name": "fd", "weight": 2.0, "target": target}, training=STILL)
    algorithm, client, _ = client_and_run(spec)
    known, _ = client.train.classes()
    g = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    images, y = client.train.batch(torch.arange(len(client.train)))
    with torch.no_grad():
        log_p = client.model.train()(images).log_softmax(1)
    p = g.softmax(1) if target == "softmax" else g
    own = -log_p[torch.arange(len(y)), y].mean()
    distilled = -(p * log_p).sum(1)[y == known].sum() / len(y)
    algorithm.local_update(client, {"classes": torch.tensor([known]), "means": g})
    assert client.losses == pytest.approx([(own + 2.0 * distilled).item()], rel=1e-5)


def test_a_client_sends_the_mean_logits_of_its_own_classes(small_spec: SpecMaker) -> None:
    algorithm, client, _ = client_and_run(small_spec("fd", training=STILL))
    images, y = client.train.batch(torch.arange(len(client.train)))
    with torch.no_grad():
        logits = client.model.train()(images)
    sent = algorithm.local_update(client, {})
    assert sent["classes"].tolist() == client.train.classes()
    for c, mean in zip(sent["classes"], sent["means"], strict=True):
        assert torch.allclose(mean, logits[y == c].mean(0), atol=1e-5)


def test_logits_are_averaged_over_all_steps_of_the_round(small_spec: SpecMaker) -> None:
    """Two epochs count every sample twice."""
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05}
    algorithm, client, _ = client_and_run(small_spec("fd", training=training))
    sent = algorithm.local_update(client, {})
    assert sent["counts"].tolist() == [2 * int((client.train.labels == c).sum()) for c in client.train.classes()]


def sent_by(client: int, classes: list[int], values: list[float]) -> Upload:
    means = torch.tensor(values)[:, None].repeat(1, 4)
    counts = torch.ones(len(classes), dtype=torch.int64)
    return Upload(client, 5, "all", {"classes": torch.tensor(classes), "means": means, "counts": counts})


def held(run: Run, server: ServerState, client: int) -> dict[int, float]:
    received = run.algorithm.download(server, run.federation.load(client, 2))
    return dict(zip(received["classes"].tolist(), received["means"][:, 0].tolist(), strict=True))


def test_the_table_keeps_classes_that_nobody_sent(small_spec: SpecMaker) -> None:
    algorithm, _, run = client_and_run(small_spec("fd"))
    first = algorithm.aggregate(run.server, [sent_by(0, [0, 1], [2.0, 4.0]), sent_by(1, [1], [8.0])], 1)
    assert held(run, first, 0) == {0: 2.0, 1: 6.0}
    second = algorithm.aggregate(first, [sent_by(2, [1, 3], [1.0, 5.0])], 2)
    assert held(run, second, 0) == {0: 2.0, 1: 1.0, 3: 5.0}


def test_leave_one_out_gives_everyone_the_mean_of_the_others(small_spec: SpecMaker) -> None:
    algorithm, _, run = client_and_run(small_spec({"name": "fd", "leave_one_out": True}))
    first = algorithm.aggregate(run.server, [sent_by(0, [0, 1], [2.0, 4.0]), sent_by(1, [1], [8.0])], 1)
    assert held(run, first, 0) == {1: 8.0}
    assert held(run, first, 1) == {0: 2.0, 1: 4.0}
    assert held(run, first, 2) == {0: 2.0, 1: 6.0}
    second = algorithm.aggregate(first, [sent_by(1, [1], [5.0])], 2)
    assert held(run, second, 0) == {1: 5.0}
    assert held(run, second, 1) == {0: 2.0}


def test_leave_one_out_with_one_client_has_nothing_to_distil(small_spec: SpecMaker) -> None:
    alone = {"clients": 1, "partition": {"name": "iid"}}
    assert essence(small_spec({"name": "fd", "leave_one_out": True}, **alone)) == essence(small_spec(**alone))
    assert all(
        record.scalars_down == 0 for record in records_of(small_spec({"name": "fd", "leave_one_out": True}, **alone))
    )
