"""pFedAFM: local work by hand, the mixing vector, read-outs and options."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from engine.kit.contract import Client
from engine.kit.modules import Vector
from engine.methods.pfedafm import HISTOGRAM_BINS
from engine.runtime import evaluation
from engine.runtime.run import Run
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.byhand import TRAINING, Unit, alike, batches, descend, trainable, unit
from tests.engine.methods.federation import finished, weights_of


def alphas(run: Run) -> list[torch.Tensor]:
    return [run.federation.states.get(k)["parts.alpha.value"] for k in run.federation.states.ids()]


@pytest.mark.parametrize("client_id", [0, 1, 2])  # the third has batch norm
@pytest.mark.parametrize("end_to_end", [False, True])
def test_local_work_is_that_of_the_paper(client_id: int, end_to_end: bool, small_spec: SpecMaker) -> None:
    algorithm = {"name": "pfedafm", "alpha_lr": 2.0, "alpha_weight_decay": 0.001, "end_to_end": end_to_end}
    stage = Stage(Run(small_spec(algorithm, training=TRAINING)))
    client = stage.client(client_id)
    F, G = trainable(client.model), trainable(client.parts["small"])
    α = torch.ones(16, requires_grad=True)
    private, mixing, small = unit(F), Unit([α], lr=2.0, decay=0.001), unit(G)
    for x, y in batches(client):
        R_G = G(x) if end_to_end else G(x).detach()
        loss = cross_entropy(F.head((1 - α) * R_G + α * F.body(x)), y)
        descend(loss, *([private, mixing, small] if end_to_end else [private, mixing]))
        α.data.clamp_(0, 1)
    if not end_to_end:
        for x, y in batches(client):
            descend(cross_entropy(F.head(G(x)), y), small)

    received = stage.algorithm.download(stage.run.server, client)
    sent = stage.algorithm.local_update(client, received)

    assert 0 < (α == 1).sum() < 16  # the clamp was needed, and not everywhere
    assert torch.allclose(client.part("alpha", Vector).value, α, rtol=1e-4, atol=1e-6)
    assert alike(client.model, F)
    for name, tensor in G.state_dict().items():
        assert torch.allclose(sent[name], tensor, rtol=1e-4, atol=1e-6)
        used = client.parts["small"].state_dict()[name]
        assert torch.equal(used, sent[name] if end_to_end else received[name])  # what the client is tested with


def test_alpha_moves_but_stays_between_zero_and_one(small_spec: SpecMaker) -> None:
    for alpha in alphas(finished(small_spec({"name": "pfedafm", "alpha_lr": 5.0}))):
        assert alpha.min() >= 0
        assert alpha.max() <= 1
        assert not torch.all(alpha == 1)


def test_without_the_clamp_alpha_leaves_the_interval(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 5.0, "alpha_clamp": False}))
    *_, last = run.rounds()
    assert any(alpha.max() > 1 for alpha in alphas(run))
    assert {sum(counts) for counts in last.traces["alpha_histogram"].values()} == {16}  # the outer bins hold the rest


def test_every_client_owns_its_alpha_and_keeps_it_while_it_is_idle(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 1.0}, rounds=6))
    kept: dict[int, torch.Tensor] = {}
    for record in run.rounds():
        for k, alpha in kept.items():
            assert torch.equal(run.federation.states.get(k)["parts.alpha.value"], alpha) == (k not in record.cohort)
        kept = {k: run.federation.states.get(k)["parts.alpha.value"].clone() for k in run.federation.states.ids()}
    first, second, *_ = kept.values()
    assert not torch.equal(first, second)


def test_decay_alone_drives_alpha_to_zero(small_spec: SpecMaker) -> None:
    """Where the loss no longer pulls, here because nothing but α may move and α is hardly moved by the loss."""
    training = {"epochs": 2, "batch_size": 8, "lr": 0.0, "clip": 1e-6}
    run = finished(small_spec({"name": "pfedafm", "alpha_lr": 1.0, "alpha_weight_decay": 0.5}, training=training))
    assert max(alpha.max() for alpha in alphas(run)) < 0.01


def test_every_round_has_the_mean_of_each_alpha_and_the_last_one_its_histogram(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 1.0}))
    opening, *rounds = run.rounds()
    assert opening.traces == {}
    for record in rounds:
        assert sorted(map(int, record.traces["alpha_mean"])) == record.cohort
        assert ("alpha_histogram" in record.traces) == (record.round == 3)
    for k, counts in rounds[-1].traces["alpha_histogram"].items():
        alpha = run.federation.states.get(int(k))["parts.alpha.value"]
        assert rounds[-1].traces["alpha_mean"][k] == pytest.approx(float(alpha.mean()))
        assert len(counts) == HISTOGRAM_BINS
        assert sum(counts) == 16
        assert counts[-1] == (alpha >= 0.95).sum()


@pytest.mark.parametrize("protocol", ["A", "B"])
def test_the_small_and_the_large_read_out_are_recorded_at_every_evaluation(
    protocol: str, small_spec: SpecMaker
) -> None:
    every_second = {"protocol": protocol, "every": 2}
    for record in records_of(small_spec("pfedafm", evaluation=every_second)):
        for trace in ("accuracy_small", "accuracy_large"):
            assert record.traces.get(trace, {}).keys() == record.client_accuracy.keys()


def share_right(client: Client, logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.argmax(1) == labels).double().mean())


def test_the_three_read_outs_are_the_new_head_on_small_large_and_mixed_features(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec({"name": "pfedafm", "alpha_lr": 1.0})))
    client = stage.client(2)
    received = stage.algorithm.download(stage.run.server, client)
    stage.algorithm.local_update(client, received)
    found = evaluation.test_client(stage.algorithm, client, None)
    assert found is not None
    images, labels = client.test.batch(torch.arange(len(client.test)))
    with torch.no_grad():
        α, h = client.part("alpha", Vector).value, client.model.head
        G, f = client.parts["small"](images), client.model.body(images)
    assert found.accuracy == share_right(client, h((1 - α) * G + α * f), labels)
    assert found.readouts == {
        "small": share_right(client, h(G), labels),
        "large": share_right(client, h(f), labels),
    }


def test_plain_sgd_is_the_same_as_a_spec_without_momentum_decay_and_clip(small_spec: SpecMaker) -> None:
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05}
    decay = {"alpha_weight_decay": 0.1}
    plain = small_spec({"name": "pfedafm", "plain_sgd": True, **decay}, training=training)
    literal = small_spec("pfedafm", training={**training, "momentum": 0, "weight_decay": 0, "clip": None})
    assert weights_of(plain) == weights_of(literal)


def test_the_end_to_end_ablation_pays_for_one_phase_and_sends_the_same(small_spec: SpecMaker) -> None:
    ablation = records_of(small_spec({"name": "pfedafm", "end_to_end": True}))[1]
    usual = records_of(small_spec("pfedafm"))[1]
    assert ablation.scalars_up == usual.scalars_up
    assert ablation.client_flops < usual.client_flops


def test_every_option_changes_what_is_learned(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"alpha_lr": 0.5},
        {"alpha_weight_decay": 0.1},
        {"alpha_clamp": False},
        {"small_model": "cnn-1"},
        {"end_to_end": True},
        {"plain_sgd": True},
    ]
    results = [weights_of(small_spec({"name": "pfedafm", **variant}, rounds=1)) for variant in variants]
    assert len(set(results)) == len(variants)
