"""pFedAFM, pFedES and FedARC: identities, messages, prices and numbers by hand."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.algorithms.fedarc import ANCHOR
from engine.cost import forward_flops
from engine.executor import Crew
from engine.means import MovingMeans
from engine.models import build
from engine.run import Run
from engine.spec import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of

DIGITS: dict[str, Any] = {
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "cnn-1-5"},
    "clients": 10,
    "participation": 0.1,
    "rounds": 1,
    "training": {"epochs": 1, "batch_size": 64},
}
COLOUR = {"name": "synthetic", "samples_per_class": 20}


def essence(spec: ExperimentSpec) -> list[tuple[float | None, dict[str, float]]]:
    """What a method must share with Standalone when it degenerates to it."""
    return [(record.loss, record.client_accuracy) for record in records_of(spec)]


@pytest.mark.parametrize(
    "degenerate",
    [
        {"name": "pfedes", "mu": 0},
        {"name": "pfedafm", "alpha_lr": 0},
    ],
    ids=lambda method: method["name"],
)
@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_it_is_standalone_bit_for_bit(degenerate: dict[str, Any], protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    assert essence(small_spec(degenerate, evaluation=evaluation)) == essence(small_spec(evaluation=evaluation))


def test_fedper_with_one_client_is_standalone(small_spec: SpecMaker) -> None:
    one = {"clients": 1, "partition": {"name": "iid"}}
    assert essence(small_spec("fedper", **one)) == essence(small_spec(**one))


def test_no_method_is_standalone_with_its_defaults(small_spec: SpecMaker) -> None:
    alone = essence(small_spec())
    for method in ("pfedes", "pfedafm", "fedarc", "fedper"):
        assert essence(small_spec(method)) != alone


@pytest.mark.parametrize(
    ("algorithm", "scalars"),
    [({"name": "pfedafm"}, 665_048), ({"name": "pfedes"}, 443), ({"name": "fedarc"}, 873_408)],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_messages_on_colour_images_are_as_long_as_the_paper_says(algorithm: dict[str, Any], scalars: int) -> None:
    spec = ExperimentSpec.parse({**DIGITS, "dataset": COLOUR, "algorithm": algorithm})
    opening, record = records_of(spec)
    assert (record.scalars_up, record.scalars_down) == (scalars, scalars)
    if algorithm["name"] == "fedarc":  # the anchor: d1 = 500 up and down for each of the ten clients, once
        assert (opening.scalars_up, opening.scalars_down) == (10 * 500, 10 * (873_408 + 500))


def test_the_proxy_on_one_channel_has_153_scalars() -> None:
    record = records_of(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": "pfedes"}}))[1]
    assert (record.scalars_up, record.scalars_down) == (153, 153)


def prices(run: Run, client: int, small: nn.Module) -> tuple[int, int, int, int]:
    """n_k and the forward FLOPs of body, head and the shared extractor."""
    model = build(run.setup.architectures[client], run.setup.shape, run.setup.classes, run.setup.feature_dim)
    image = torch.zeros(1, *run.setup.shape)
    head = forward_flops(model.head, torch.zeros(1, model.feature_dim))
    return run.setup.samples[client], forward_flops(model.body, image), head, forward_flops(small, image)


@pytest.mark.parametrize("method", ["pfedafm", "pfedes", "fedarc"])
def test_local_work_costs_what_the_formula_says(method: str) -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}}))
    record = list(run.rounds())[1]
    [k] = record.cohort
    shared = run.algorithm.shared(run._client(run._originals[run.setup.architectures[k]], k, 1))  # type: ignore[attr-defined]
    n, f, h, G = prices(run, k, shared)
    projector, small_head = 2 * 750 * 500, 2 * 250 * 10
    expected = {
        "pfedafm": n * ((G + 3 * f + 3 * h) + (3 * G + 2 * h)),
        "pfedes": n * ((G + 6 * (f + h)) + 5 * (3 * G + 2 * (f + h))),
        "fedarc": n * 3 * (f + G + projector + h + small_head),
    }
    assert record.client_flops == expected[method]


def test_pfedes_does_not_pay_for_the_enhanced_images_at_mu_zero() -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": "pfedes", "mu": 0}}))
    record = list(run.rounds())[1]
    [k] = record.cohort
    proxy = run._originals[run.setup.architectures[k]].parts["proxy"]
    n, f, h, G = prices(run, k, proxy)
    assert record.client_flops == n * (3 * (f + h) + 5 * (3 * G + 2 * (f + h)))


def alphas(run: Run) -> list[torch.Tensor]:
    return [run._states.get(k)["parts.alpha.value"] for k in run._states.ids()]


def test_alpha_moves_but_stays_between_zero_and_one(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 5.0}))
    list(run.rounds())
    for alpha in alphas(run):
        assert alpha.min() >= 0
        assert alpha.max() <= 1
        assert not torch.all(alpha == 1)


def test_without_the_clamp_alpha_leaves_the_interval(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 5.0, "alpha_clamp": False}))
    list(run.rounds())
    assert any(alpha.max() > 1 for alpha in alphas(run))


def test_every_client_owns_its_alpha(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedafm", "alpha_lr": 1.0}, participation=1.0))
    list(run.rounds())
    first, second, *_ = alphas(run)
    assert not torch.equal(first, second)


def test_pfedafm_records_alpha_and_the_small_and_large_read_outs(small_spec: SpecMaker) -> None:
    *_, last = records_of(small_spec("pfedafm"))
    for trace in ("alpha_mean", "accuracy_small", "accuracy_large"):
        assert sorted(map(int, last.traces[trace])) == last.cohort
    [histogram, *_] = last.traces["alpha_histogram"].values()
    assert sum(histogram) == 16


def test_plain_sgd_is_the_same_as_a_spec_without_momentum_decay_and_clip(small_spec: SpecMaker) -> None:
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05}
    plain = small_spec({"name": "pfedafm", "plain_sgd": True}, training=training)
    literal = small_spec("pfedafm", training={**training, "momentum": 0, "weight_decay": 0, "clip": None})
    assert essence(plain) == essence(literal)


def test_the_end_to_end_ablation_trains_everything_at_once(small_spec: SpecMaker) -> None:
    ablation = records_of(small_spec({"name": "pfedafm", "end_to_end": True}))[1]
    usual = records_of(small_spec("pfedafm"))[1]
    assert ablation.scalars_up == usual.scalars_up
    assert ablation.client_flops != usual.client_flops


def test_the_server_averages_what_the_clients_sent(small_spec: SpecMaker) -> None:
    run = Run(small_spec("pfedes"))
    iterator = run.rounds()
    next(iterator)
    first = run.server
    next(iterator)
    assert not torch.equal(first.groups["all"]["conv1.weight"], run.server.groups["all"]["conv1.weight"])


def test_the_anchor_is_the_weighted_mean_of_client_means_and_never_changes(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedarc", "anchor_init": "forward"}))
    iterator = run.rounds()
    next(iterator)
    anchor = run.server.groups[ANCHOR]["mean"].clone()
    total = torch.zeros(16, dtype=torch.float64)
    for k in range(6):
        client = run._client(run._originals[run.setup.architectures[k]], k, 0)
        with torch.no_grad():
            images, _ = client.train.batch(torch.arange(len(client.train)))
            total += client.model.eval().body(images).double().mean(0) * len(client.train) / sum(run.setup.samples)
    assert torch.allclose(anchor.double(), total, atol=1e-6)
    list(iterator)
    assert torch.equal(run.server.groups[ANCHOR]["mean"], anchor)


def test_the_opening_of_fedarc_leaves_every_client_and_the_extractor_as_they_were(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedarc"))
    run._build_networks()
    before = {name: tensor.clone() for name, tensor in run.server.groups["all"].items()}
    record = run._opening(Crew(run._originals, 1))
    assert record.cohort == list(range(6))
    assert record.client_flops > 0
    assert run._states.ids() == []
    assert all(torch.equal(before[name], tensor) for name, tensor in run.server.groups["all"].items())


@pytest.mark.parametrize("off", [{"anchor_weight": 0}, {"anchoring": False}])
def test_without_anchor_the_opening_costs_nothing(off: dict[str, Any], small_spec: SpecMaker) -> None:
    opening = records_of(small_spec({"name": "fedarc", **off}))[0]
    assert opening.client_flops == opening.scalars_up == opening.scalars_down == 0


def test_the_switches_of_fedarc_each_change_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"anchoring": False},
        {"residuals": False},
        {"anchoring": False, "residuals": False},
        {"anchor_level": "fused"},
        {"anchor_init": "forward"},
        {"anchor_init": "moving"},
        {"mean_start": "zero"},
        {"momentum": 1.0},
        {"shared_dim": 4},
        {"share_head": True},
    ]
    results = [str(essence(small_spec({"name": "fedarc", **variant}))) for variant in variants]
    assert len(set(results)) == len(variants)


def test_residuals_stay_zero_when_they_are_switched_off(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedarc", "residuals": False}))
    list(run.rounds())
    for k in run._states.ids():
        assert not run._states.get(k)["parts.residuals.local.value"].any()


def test_moving_means_by_hand() -> None:
    means = MovingMeans(0.25, "batch")
    first = torch.tensor([[1.0, 3.0], [3.0, 5.0]], requires_grad=True)
    [current] = means.update(first)
    assert current.tolist() == [2.0, 4.0]
    current.sum().backward()
    assert first.grad is not None
    assert first.grad.tolist() == [[0.125, 0.125], [0.125, 0.125]]  # κ / B: only the current batch carries gradient
    [second] = means.update(torch.tensor([[6.0, 0.0]]))
    assert second.tolist() == [3.0, 3.0]  # ¾·2 + ¼·6, ¾·4 + ¼·0


def test_with_kappa_one_the_anchor_loss_sees_the_plain_batch_mean() -> None:
    batch = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    means = MovingMeans(1.0, "batch")
    means.update(torch.zeros(3, 7))
    assert torch.equal(means.update(batch)[0], batch.mean(0))


def test_starting_from_zero_is_biased_toward_zero_at_first() -> None:
    assert MovingMeans(0.1, "zero").update(torch.ones(4, 2))[0].tolist() == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("method", ["pfedafm", "fedarc"])
def test_it_says_why_it_cannot_run_without_a_common_width(method: str) -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}, "models": {"family": "compfl-fmnist-2"}}))
    assert "feature_dim" in str(run.algorithm.why_not())
