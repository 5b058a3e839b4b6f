"""FedRoD: balanced softmax for the shared model, a private head for the rest."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from engine.data.partition import ClientShare
from engine.kit.tensors import live_tensors
from engine.methods.fedrod import RESIDUAL, log_counts
from engine.runtime.run import Run
from engine.testing import same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import ALONE, finished, local_work, own, prices, same_servers

ONE_STEP: dict[str, Any] = {
    "models": {"family": "tiny-mlp"},
    "training": {"epochs": 1, "batch_size": 1000, "lr": 0.5, "momentum": 0, "weight_decay": 0, "clip": None},
}


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_with_gamma_zero_the_generic_branch_is_fedavg(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    generic = small_spec({"name": "fedrod", "gamma": 0}, evaluation=evaluation)
    assert same_servers(generic, small_spec("fedavg", evaluation=evaluation))


def test_with_one_sample_of_every_class_the_generic_branch_is_fedavg(small_spec: SpecMaker) -> None:
    def first_of_every_class(run: Run) -> Run:
        def few(share: ClientShare) -> ClientShare:
            labels = run.dataset.labels[share.train]
            return replace(share, train=share.train[[int((labels == c).nonzero()[0]) for c in range(4)]])

        run.federation.shares = [few(share) for share in run.partition.shares]
        return run

    iid = {"partition": {"name": "iid"}}
    balanced = first_of_every_class(Run(small_spec("fedrod", **iid)))
    plain = first_of_every_class(Run(small_spec("fedavg", **iid)))
    for _ in zip(balanced.rounds(), plain.rounds(), strict=True):
        assert all(same(balanced.server.groups[group], plain.server.groups[group]) for group in plain.server.groups)


def test_the_balanced_branch_is_not_fedavg(small_spec: SpecMaker) -> None:
    assert not same_servers(small_spec("fedrod"), small_spec("fedavg"))


def test_a_class_without_samples_has_a_finite_logarithm() -> None:
    assert log_counts(torch.tensor([1.0, 20.0, 0.0])).tolist() == pytest.approx([0, math.log(20), math.log(1e-8)])


def test_balanced_softmax_by_hand() -> None:
    """Equal logits, counts 3 and 1: the balanced probability of a class is its share of the samples."""
    loss = cross_entropy(torch.zeros(1, 2) + log_counts(torch.tensor([3.0, 1.0])), torch.tensor([1]))
    assert loss.item() == pytest.approx(-math.log(1 / 4))


def test_one_step_moves_both_heads_by_their_own_gradient(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedrod", **ONE_STEP))
    for work in local_work(run):
        before = run.setup.model(work.client.architecture)
        images, labels = work.client.train.batch(torch.arange(len(work.client.train)))
        z = before.body(images).detach()
        counts = torch.tensor([float((labels == c).sum()) for c in range(4)]).clamp(min=1e-8)
        generic = torch.softmax(before.head(z).detach() + counts.log(), 1)
        personal = torch.softmax(2 * before.head(z).detach(), 1)  # ψ starts as a copy of φ
        target = torch.nn.functional.one_hot(labels, 4)
        start, head, residual = map(live_tensors, (before.head, work.client.model.head, work.client.parts[RESIDUAL]))
        step = 0.5 / len(labels)
        assert torch.allclose(head["bias"], start["bias"] - step * (generic - target).sum(0), atol=1e-6)
        assert torch.allclose(residual["bias"], start["bias"] - step * (personal - target).sum(0), atol=1e-6)
        assert torch.allclose(residual["weight"], start["weight"] - step * (personal - target).T @ z, atol=1e-6)


def test_the_private_loss_does_not_reach_the_shared_model(small_spec: SpecMaker) -> None:
    """Two clients that differ only in their private head send the same."""
    run = Run(small_spec("fedrod"))
    first = next(local_work(run))
    run = Run(small_spec("fedrod"))
    run.federation.build()
    for networks in run.federation.networks.values():
        for tensor in live_tensors(networks.parts).values():
            tensor.mul_(-3)
    client = run.federation.fresh(0, 1)
    assert same(run.algorithm.local_update(client, run.algorithm.download(run.server, client)), first.sent)


def test_the_answer_is_the_sum_of_both_heads(small_spec: SpecMaker) -> None:
    for work in local_work(run := Run(small_spec("fedrod"))):
        client, predictor = work.client, run.algorithm.predictor(work.client)
        client.model.eval()
        images, _ = client.test.batch(torch.arange(4))
        z = client.model.body(images)
        assert predictor is not None
        assert torch.equal(predictor(images), client.model.head(z) + client.parts[RESIDUAL](z))


def test_the_private_head_starts_as_the_generic_one_and_is_kept(small_spec: SpecMaker) -> None:
    run = finished(small_spec("fedrod"))
    for k in run.federation.states.ids():
        architecture = run.setup.architectures[k]
        initial = run.federation.initial[architecture]
        start = {name: initial[f"parts.residual.{name}"] for name in own(run, k, "parts.residual.")}
        assert same(start, live_tensors(run.setup.model(architecture).head))
        assert not same(own(run, k, "parts.residual."), start)


def test_local_work_and_messages_cost_what_the_formulas_say(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedrod", **ALONE))
    record = list(run.rounds())[1]
    price = prices(run, record.cohort[0])
    assert record.client_flops == price.samples * 2 * 3 * (price.model + price.head)
    assert record.scalars_up == record.scalars_down == price.model_scalars


def test_gamma_changes_the_result_and_the_generic_accuracy_is_traced(small_spec: SpecMaker) -> None:
    usual, sharper = (records_of(small_spec({"name": "fedrod", "gamma": gamma})) for gamma in (1, 2))
    assert [record.loss for record in usual] != [record.loss for record in sharper]
    assert sorted(map(int, usual[-1].traces["accuracy_generic"])) == usual[-1].cohort
