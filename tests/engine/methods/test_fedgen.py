"""FedGen: identity with LG-FedAvg, messages, prices, and both losses by hand."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from engine.kit import rng
from engine.kit.contract import Upload
from engine.kit.tensors import copy_tensors, load_tensors
from engine.methods.fedgen import FeatureGenerator
from engine.runtime.checkpoint import Checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.methods.test_fd import STILL, client_and_run
from tests.engine.methods.test_proposed import COLOUR, DIGITS, essence, prices

SMALL_GENERATOR = {"name": "fedgen", "gen_steps": 3, "hidden_dim": 8, "noise_dim": 4}


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
@pytest.mark.parametrize("off", [{"gen_weight": 0}, {"gen_steps": 0}], ids=str)
def test_without_generated_features_it_is_lg_fedavg(off: dict[str, Any], protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    fedgen = records_of(small_spec({"name": "fedgen", **off}, evaluation=evaluation))
    assert same_results(fedgen, records_of(small_spec("lg-fedavg", evaluation=evaluation)))


def test_round_one_has_no_generator_and_is_lg_fedavg(small_spec: SpecMaker) -> None:
    fedgen, lg_fedavg = essence(small_spec(SMALL_GENERATOR)), essence(small_spec("lg-fedavg"))
    assert fedgen[1] == lg_fedavg[1]
    assert fedgen[2:] != lg_fedavg[2:]


def test_batches_of_one_are_refused_because_the_generator_normalises_them(small_spec: SpecMaker) -> None:
    training = {"epochs": 1, "batch_size": 1, "lr": 0.05}
    assert "at least 2, but got 1" in str(Run(small_spec("fedgen", training=training)).algorithm.why_not())
    assert Run(small_spec({"name": "fedgen", "gen_weight": 0}, training=training)).algorithm.why_not() is None


def test_labels_are_counted_once_over_all_clients_and_cost_no_scalars(small_spec: SpecMaker) -> None:
    run = Run(small_spec(SMALL_GENERATOR))
    opening = next(run.rounds())
    expected = sum(torch.bincount(run.federation.fresh(k, 0).train.labels, minlength=4) for k in range(6))
    assert torch.equal(run.server.shared["labels"]["all"]["counts"], expected)  # type: ignore[arg-type]
    assert opening.scalars_up == opening.scalars_down == opening.client_flops == 0


def test_messages_are_the_head_and_once_it_is_trained_the_generator() -> None:
    """331,776 parameters and 1,024 buffers for q = 32, L = 100 and d = 512."""
    spec = ExperimentSpec.parse(
        {
            **DIGITS,
            "dataset": {**COLOUR, "classes": 100, "samples_per_class": 4},
            "models": {"family": "fedavgcnn"},
            "algorithm": {"name": "fedgen", "gen_steps": 1},
            "participation": 0.1,
            "rounds": 2,
        }
    )
    _, first, second = records_of(spec)
    head = 512 * 100 + 100
    assert (first.scalars_up, first.scalars_down) == (head, head)
    assert (second.scalars_up, second.scalars_down) == (head, head + 331_776 + 1_024)


def test_client_and_server_work_cost_what_the_formula_says() -> None:
    spec = {**DIGITS, "algorithm": {"name": "fedgen", "gen_steps": 5}, "participation": 0.2, "rounds": 2}
    run = Run(ExperimentSpec.parse(spec))
    _, first, second = run.rounds()
    Γ, h = 2 * ((32 + 10) * 512 + 512 * 500), 2 * 500 * 10
    expected = 0
    for k in second.cohort:
        n, body, head, _ = prices(run, k, run.federation.networks[run.setup.architectures[k]].model.body)
        expected += n * (3 * (body + head) + Γ + 3 * h)
    assert second.client_flops == expected
    assert first.server_flops == 5 * 64 * (3 * Γ + 2 * len(first.cohort) * h)


def trained_generator(run: Run) -> dict[str, torch.Tensor]:
    """Γ with statistics of its own, so that eval mode differs from train mode."""
    tensors = copy_tensors(run.server.shared["generator"]["16x4"])
    tensors["normalise.running_mean"] += 0.3
    tensors["normalise.num_batches_tracked"] += 1
    return tensors


def test_the_clients_loss_is_what_the_equation_says(small_spec: SpecMaker) -> None:
    """One batch and a learning rate of 0: the loss can be written down, with Γ in eval mode."""
    algorithm, client, run = client_and_run(small_spec({**SMALL_GENERATOR, "gen_weight": 2.0}, training=STILL))
    tensors = trained_generator(run)
    server = run.server.next(run.server.groups, generator={"16x4": tensors})
    received = algorithm.download(server, client)

    Γ = FeatureGenerator(4, 4, 8, 16).eval()
    load_tensors(Γ, tensors)
    images, y = client.train.batch(torch.arange(len(client.train)))
    ỹ, u = Γ.draw(run.server.shared["labels"]["all"]["counts"], len(y), client.draws("fedgen"))
    with torch.no_grad():
        expected = cross_entropy(client.model.train()(images), y)
        expected += 2.0 * cross_entropy(client.model.head(Γ(ỹ, u)), ỹ)
    algorithm.local_update(client, received)
    assert client.losses == pytest.approx([expected.item()], rel=1e-5)
    assert all(torch.equal(tensors[name], value) for name, value in copy_tensors(client.parts["generator"]).items())


def test_one_step_of_the_generator_follows_the_ensemble_of_heads(small_spec: SpecMaker) -> None:
    """Adam's first step is lr·g / (|g| + 1e-8), with g from the loss written out; batch norm is in train mode."""
    run = Run(small_spec({**SMALL_GENERATOR, "gen_steps": 1, "gen_lr": 0.01}))
    next(run.rounds())
    algorithm = run.algorithm
    draws = torch.Generator().manual_seed(5)
    heads = [{"weight": torch.randn(4, 16, generator=draws), "bias": torch.randn(4, generator=draws)} for _ in range(2)]
    uploads = [Upload(k, samples, "16x4", head) for k, samples, head in zip((0, 3), (30, 10), heads, strict=True)]
    state = algorithm.aggregate(run.server, uploads, 1)

    Γ = FeatureGenerator(4, 4, 8, 16)
    load_tensors(Γ, run.server.shared["generator"]["16x4"])
    ỹ, u = Γ.draw(run.server.shared["labels"]["all"]["counts"], 8, run.setup.server_draws("fedgen generator 16x4", 1))
    z = Γ.train()(ỹ, u)
    logits = 0.75 * (z @ heads[0]["weight"].T + heads[0]["bias"])
    logits = logits + 0.25 * (z @ heads[1]["weight"].T + heads[1]["bias"])
    loss = (logits.logsumexp(1) - logits[torch.arange(8), ỹ]).mean()
    gradients = torch.autograd.grad(loss, list(Γ.parameters()))
    for (name, parameter), g in zip(Γ.named_parameters(), gradients, strict=True):
        found, expected = state.shared["generator"]["16x4"][name], parameter - 0.01 * g / (g.abs() + 1e-8)
        clear = g.abs() > 1e-5  # the bias before batch norm has no gradient but rounding
        assert torch.allclose(found[clear], expected[clear], atol=1e-5), name
    assert torch.allclose(state.groups["16x4"]["bias"], 0.75 * heads[0]["bias"] + 0.25 * heads[1]["bias"])
    assert state.shared["generator"]["16x4"]["normalise.num_batches_tracked"] == 1


def test_the_clients_loss_of_the_original_adds_a_divergence_and_fades(small_spec: SpecMaker) -> None:
    full = {**SMALL_GENERATOR, "gen_weight": 0.5, "full_fedgen": True}
    algorithm, client, run = client_and_run(small_spec(full, training=STILL))
    tensors = trained_generator(run)
    received = algorithm.download(run.server.next(run.server.groups, generator={"16x4": tensors}), client)
    Γ = FeatureGenerator(4, 4, 8, 16).eval()
    load_tensors(Γ, tensors)
    order = rng.generator(run.setup.seed, "batches", client.round, client.id, 0)
    [(images, y)] = client.train.shuffled(len(client.train), order, torch.Generator())
    draws = client.draws("fedgen")
    ỹ, u = Γ.draw(run.server.shared["labels"]["all"]["counts"], len(y), draws)
    noise = torch.rand(len(y), 4, generator=draws)
    with torch.no_grad():
        logits, head = client.model.train()(images), client.model.head
        p, q = softmax(head(Γ(y, noise)), 1), softmax(logits, 1)
        kl = (p * (p / q).log()).sum(1).mean()
        expected = cross_entropy(logits, y) + 0.5 * 10 * 0.98 * (cross_entropy(head(Γ(ỹ, u)), ỹ) + kl)
    algorithm.local_update(client, received)
    assert client.losses == pytest.approx([expected.item()], rel=1e-5)


def test_the_original_weighs_teachers_by_their_labels_and_wants_different_features(small_spec: SpecMaker) -> None:
    """Adam's first step again, now at 3e-4 and with decay, on the loss written out pair by pair."""
    run = Run(small_spec({**SMALL_GENERATOR, "gen_steps": 1, "full_fedgen": True}))
    next(run.rounds())
    draws = torch.Generator().manual_seed(5)
    heads = [{"weight": torch.randn(4, 16, generator=draws), "bias": torch.randn(4, generator=draws)} for _ in range(2)]
    uploads = [Upload(k, 10, "16x4", head) for k, head in zip((0, 3), heads, strict=True)]
    state = run.algorithm.aggregate(run.server, uploads, 1)

    Γ = FeatureGenerator(4, 4, 8, 16)
    load_tensors(Γ, run.server.shared["generator"]["16x4"])
    ỹ, u = Γ.draw(run.server.shared["labels"]["all"]["counts"], 8, run.setup.server_draws("fedgen generator 16x4", 1))
    z = Γ.train()(ỹ, u)
    n = run.server.shared["labels"]["all"]["of_clients"]
    loss = torch.zeros(())
    for k, head in zip((0, 3), heads, strict=True):
        logits = z @ head["weight"].T + head["bias"]
        for b, c in enumerate(ỹ.tolist()):
            share = (n[k, c] + 1) / (n[0, c] + n[3, c] + 2)
            loss = loss + share * (logits[b].logsumexp(0) - logits[b, c]) / 8
    pairs = [((u[i] - u[j]) ** 2).mean() * (z[i] - z[j]).abs().mean() for i in range(8) for j in range(8)]
    loss = loss + torch.exp(-torch.stack(pairs).mean())
    gradients = torch.autograd.grad(loss, list(Γ.parameters()))
    for (name, parameter), gradient in zip(Γ.named_parameters(), gradients, strict=True):
        g = gradient + 0.01 * parameter
        found, expected = state.shared["generator"]["16x4"][name], parameter - 3e-4 * g / (g.abs() + 1e-8)
        clear = gradient.abs() > 1e-5
        assert torch.allclose(found[clear], expected[clear], atol=1e-7), name


def test_the_optimiser_of_the_original_goes_on_where_it_was_also_after_a_resume(
    small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = small_spec({**SMALL_GENERATOR, "full_fedgen": True}, rounds=3, participation=1.0)
    run, checkpoints = Run(spec), Checkpoints(tmp_path)
    found = []
    for record in run.rounds():
        found.append(record)
        if record.round == 1:
            saved = checkpoints.save(run)
    assert run.server.shared["adam"]["16x4"]["expand.weight|step"] == 9
    resumed = Run(spec, resume_from=checkpoints.load(saved.manifest, saved.sha256))
    assert same_results(list(resumed.rounds()), found[2:])


def test_training_teaches_the_generator_features_that_the_heads_recognise(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedgen", "gen_steps": 60}))
    list(run.rounds())
    Γ = FeatureGenerator(4, 32, 512, 16).eval()
    load_tensors(Γ, run.server.shared["generator"]["16x4"])
    ỹ, u = Γ.draw(torch.ones(4), 200, torch.Generator().manual_seed(0))
    head = run.server.groups["16x4"]
    with torch.no_grad():
        answers = (Γ(ỹ, u) @ head["weight"].T + head["bias"]).argmax(1)
    assert (answers == ỹ).float().mean() > 0.8


def test_labels_are_drawn_as_often_as_they_occur() -> None:
    Γ = FeatureGenerator(3, 2, 4, 5)
    ỹ, u = Γ.draw(torch.tensor([0, 30, 10]), 4000, torch.Generator().manual_seed(0))
    assert (ỹ == 0).sum() == 0
    assert (ỹ == 1).float().mean().item() == pytest.approx(0.75, abs=0.03)
    assert u.shape == (4000, 2)
    assert u.min() >= 0
    assert u.max() <= 1


def test_the_generator_is_kept_over_rounds_and_never_private(small_spec: SpecMaker) -> None:
    run = Run(small_spec(SMALL_GENERATOR))
    seen = [run.server.shared["generator"]["16x4"]["expand.weight"].clone() for _ in run.rounds()]
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))
    assert not any("generator" in name for k in run.federation.states.ids() for name in run.federation.states.get(k))


def test_a_head_group_without_participants_keeps_its_head_and_generator() -> None:
    models = {"family": "compfl-2", "assign": "blocks"}
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": SMALL_GENERATOR, "models": models}))
    next(run.rounds())
    head = {"weight": torch.zeros(10, 128), "bias": torch.zeros(10)}
    state = run.algorithm.aggregate(run.server, [Upload(0, 10, "128x10", head)], 1)
    assert state.groups["512x10"] is run.server.groups["512x10"]
    assert state.shared["generator"]["512x10"] is run.server.shared["generator"]["512x10"]
    assert state.shared["generator"]["128x10"]["normalise.num_batches_tracked"] == 3


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"gen_weight": 5.0},
        {"gen_steps": 9},
        {"gen_lr": 0.001},
        {"noise_dim": 7},
        {"hidden_dim": 12},
        {"full_fedgen": True},
    ]
    results = [str(essence(small_spec({**SMALL_GENERATOR, **variant}))) for variant in variants]
    assert len(set(results)) == len(variants)
