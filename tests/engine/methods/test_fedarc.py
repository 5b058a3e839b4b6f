"""FedARC: local work and the anchor by hand, the opening, the switches and options."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.kit.contract import Client
from engine.kit.flops import forward_flops
from engine.kit.moving_mean import MovingMeans
from engine.runtime.run import Run
from engine.spec.problems import SpecError
from engine.testing import Stage
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.byhand import TRAINING, alike, batches, descend, everything, trainable, unit
from tests.engine.methods.federation import ALONE, finished, weights_of


class ByHand:
    """A client's networks, trained by the formulas of the paper."""

    def __init__(self, client: Client, *, κ: float, fused: bool, weights: tuple[float, float] = (1, 1)) -> None:
        self.client, self.κ, self.fused = client, κ, fused
        self.a_F, self.a_G = weights
        self.F, self.G, self.g, self.P, self.r = (
            trainable(module)
            for module in (client.model, *(client.parts[n] for n in ("small", "small_head", "projector", "residuals")))
        )

    def features(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        zF, zG = self.F.body(x), self.G(x)
        return zF, zG, torch.cat([zF, zG], 1) @ self.P.weight.T + self.P.bias

    def train(self, epochs: int, *, anchor: Tensor | None, residuals: bool) -> None:
        d2, mF, mG = self.g.in_features, None, None
        units = [unit(self.F), unit(self.G, self.g), unit(self.P), unit(self.r)][: 4 if residuals else 3]
        for x, y in batches(self.client, epochs):
            zF, zG, z = self.features(x)
            uF, uG = z + self.r.local.value, z[:, :d2] + self.r.shared.value
            lossF, lossG = cross_entropy(self.F.head(uF), y), cross_entropy(self.g(uG), y)
            if anchor is not None:
                aF, aG = (z, z[:, :d2]) if self.fused else (zF, zG)
                mF = aF.mean(0).detach() if mF is None else mF.detach()
                mG = aG.mean(0).detach() if mG is None else mG.detach()
                mF, mG = (1 - self.κ) * mF + self.κ * aF.mean(0), (1 - self.κ) * mG + self.κ * aG.mean(0)
                lossF = lossF + 2 * ((mF - anchor) ** 2).mean()  # λ = 2
                lossG = lossG + 2 * ((mG - anchor[:d2]) ** 2).mean()
            descend(self.a_F * lossF + self.a_G * lossG, *units)

    def mean(self) -> Tensor:
        for module in (self.F, self.G):
            module.eval()
        with torch.no_grad():
            zF, _, z = self.features(everything(self.client)[0])
        return (z if self.fused else zF).double().mean(0)


@pytest.mark.parametrize(
    ("client_id", "level", "κ", "weights"),
    [(0, "extractor", 0.1, (1, 1)), (1, "fused", 0.25, (0.5, 2)), (2, "extractor", 1.0, (1, 1))],
)
def test_local_work_is_that_of_the_paper(
    client_id: int, level: str, κ: float, weights: tuple[float, float], small_spec: SpecMaker
) -> None:
    """With κ = 1 the anchor is held against the plain mean of the batch."""
    a_F, a_G = weights
    params = {"anchor_weight": 2, "momentum": κ, "anchor_level": level, "local_weight": a_F, "shared_weight": a_G}
    stage = Stage(Run(small_spec({"name": "fedarc", **params}, training=TRAINING)))
    client, anchor = stage.client(client_id), stage.run.server.shared["anchor"]["all"]["mean"]
    expected = ByHand(client, κ=κ, fused=level == "fused", weights=weights)
    expected.train(2, anchor=anchor, residuals=True)

    sent = stage.algorithm.local_update(client, stage.algorithm.download(stage.run.server, client))

    assert alike(client.model, expected.F)
    for part, module in (("small_head", expected.g), ("projector", expected.P), ("residuals", expected.r)):
        assert alike(client.parts[part], module)
    for name, tensor in expected.G.state_dict().items():
        assert torch.allclose(sent[name], tensor, rtol=1e-4, atol=1e-6)
    images, _ = client.test.batch(torch.arange(len(client.test)))
    expected.F.eval()
    with torch.no_grad():
        answer = expected.F.head(expected.features(images)[2] + expected.r.local.value)
        for module in (client.model, client.parts):
            module.eval()
        assert torch.allclose(stage.algorithm.predictor(client)(images), answer, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("level", ["extractor", "fused"])
@pytest.mark.parametrize(("init", "weights"), [("train", (1, 1)), ("train", (0.5, 2)), ("forward", (1, 1))])
def test_the_anchor_is_the_weighted_mean_of_client_means_and_never_changes(
    level: str, init: str, weights: tuple[float, float], small_spec: SpecMaker
) -> None:
    """All six clients, whoever takes part in round 1, after one epoch of fusion alone or as they start."""
    a_F, a_G = weights
    params = {"anchor_init": init, "anchor_level": level, "local_weight": a_F, "shared_weight": a_G}
    run = Run(small_spec({"name": "fedarc", **params}, training=TRAINING))
    iterator = run.rounds()
    next(iterator)
    anchor, total = run.server.shared["anchor"]["all"]["mean"].clone(), torch.zeros(16).double()
    for k in range(6):
        alone = ByHand(run.federation.load(k, 0), κ=0.1, fused=level == "fused", weights=weights)
        if init == "train":
            alone.train(1, anchor=None, residuals=False)
        total += alone.mean() * run.setup.num_samples[k] / sum(run.setup.num_samples)
    assert torch.allclose(anchor.double(), total, rtol=1e-4, atol=1e-6)
    list(iterator)
    assert torch.equal(run.server.shared["anchor"]["all"]["mean"], anchor)


def test_the_anchor_of_two_clients_by_hand(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec("fedarc")))
    uploads = [stage.upload(k) for k in (0, 1)]
    first, second = (
        type(upload)(upload.client, samples, upload.group, {"mean": torch.full((16,), value)})
        for upload, samples, value in zip(uploads, (1, 3), (1.0, 5.0), strict=True)
    )
    closed = stage.algorithm.close_opening(stage.run.server, [first, second])
    assert closed.shared["anchor"]["all"]["mean"].tolist() == [4.0] * 16  # (1·1 + 3·5) / 4
    after = stage.algorithm.aggregate(closed, uploads, 1)
    assert torch.equal(after.shared["anchor"]["all"]["mean"], closed.shared["anchor"]["all"]["mean"])


def test_the_opening_leaves_every_client_and_the_extractor_as_they_were(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedarc"))
    run.federation.build()
    before = {name: tensor.clone() for name, tensor in run.server.groups["all"].items()}
    record = run.opening()
    assert record.cohort == list(range(6))
    assert run.federation.states.ids() == []
    assert all(torch.equal(before[name], tensor) for name, tensor in run.server.groups["all"].items())


@pytest.mark.parametrize("level", ["extractor", "fused"])
@pytest.mark.parametrize("init", ["train", "moving", "forward"])
def test_the_opening_costs_one_epoch_and_one_pass(level: str, init: str, small_spec: SpecMaker) -> None:
    algorithm = {"name": "fedarc", "anchor_level": level, "anchor_init": init}
    run = Run(small_spec(algorithm, clients=2))
    opening = next(iter(run.rounds()))
    image, expected = torch.zeros(1, *run.setup.shape), 0
    for k in range(2):
        networks = run.federation.networks[run.setup.architectures[k]]
        f, G = forward_flops(networks.model.body, image), forward_flops(networks.parts["small"], image)
        projector, heads = 2 * (16 + 8) * 16, 2 * (16 + 8) * 4
        epoch = 0 if init == "forward" else 3 * (f + G + projector + heads)
        one_pass = 0 if init == "moving" else f + G + projector if level == "fused" else f
        expected += run.setup.num_samples[k] * (epoch + one_pass)
    assert opening.client_flops == expected


@pytest.mark.parametrize("off", [{"anchor_weight": 0}, {"anchoring": False}])
def test_without_anchor_the_opening_costs_nothing(off: dict[str, Any], small_spec: SpecMaker) -> None:
    opening = records_of(small_spec({"name": "fedarc", **off}, **ALONE))[0]
    assert opening.client_flops == opening.scalars_up == opening.scalars_down == 0


def test_an_anchor_of_weight_zero_is_no_anchor(small_spec: SpecMaker) -> None:
    weightless, off = {"name": "fedarc", "anchor_weight": 0}, {"name": "fedarc", "anchoring": False}
    assert weights_of(small_spec(weightless, rounds=1)) == weights_of(small_spec(off, rounds=1))


def test_every_option_changes_what_is_learned(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"anchoring": False},
        {"residuals": False},
        {"anchoring": False, "residuals": False},
        {"anchor_weight": 0.1},
        {"anchor_level": "fused"},
        {"anchor_init": "forward"},
        {"anchor_init": "moving"},
        {"mean_start": "zero"},
        {"momentum": 1.0},
        {"shared_dim": 4},
        {"share_head": True},
        {"local_weight": 0.5},
        {"shared_weight": 0.5},
        {"local_weight": 0},
        {"shared_weight": 0},
        {"small_model": "cnn-5"},
    ]
    few = {"clients": 2, "rounds": 1, "participation": 1.0}
    results = [weights_of(small_spec({"name": "fedarc", **variant}, **few)) for variant in variants]
    assert len(set(results)) == len(variants)


@pytest.mark.parametrize(("branch", "untouched"), [("local_weight", "model.head"), ("shared_weight", "small_head")])
def test_a_branch_of_weight_zero_is_not_computed(branch: str, untouched: str, small_spec: SpecMaker) -> None:
    alone = small_spec({"name": "fedarc", branch: 0, "anchoring": False}, training={"epochs": 1}, **ALONE)
    run = Run(alone)
    *_, record = run.rounds()
    [k] = record.cohort
    networks, image = run.federation.networks[run.setup.architectures[k]], torch.zeros(1, *run.setup.shape)
    f, G = forward_flops(networks.model.body, image), forward_flops(networks.parts["small"], image)
    head = 2 * 16 * 4 if branch == "shared_weight" else 2 * 8 * 4
    assert record.client_flops == run.setup.num_samples[k] * 3 * (f + G + 2 * 24 * 16 + head)
    initial = run.federation.initial[run.setup.architectures[k]]
    for name, tensor in run.federation.states.get(k).items():
        if untouched in name:
            assert torch.equal(tensor, initial[name])


def test_one_of_the_two_branches_must_count(small_spec: SpecMaker) -> None:
    with pytest.raises(SpecError, match="both are 0"):
        small_spec({"name": "fedarc", "local_weight": 0, "shared_weight": 0})


def test_answers_may_come_from_the_local_features_alone(small_spec: SpecMaker) -> None:
    """What the paper's sentence says literally; the head never saw such features."""
    stage = Stage(Run(small_spec({"name": "fedarc", "inference": "raw_local"})))
    client = stage.client()
    images, _ = client.test.batch(torch.arange(len(client.test)))
    with torch.no_grad():
        assert torch.equal(stage.algorithm.predictor(client)(images), client.model(images))


def test_the_shared_width_is_half_of_the_feature_unless_it_is_given(small_spec: SpecMaker) -> None:
    widths = [
        finished(small_spec({"name": "fedarc", "shared_dim": d2}, **ALONE))
        .federation.networks["tiny-cnn"]
        .parts["small_head"]
        for d2 in (None, 5)
    ]
    assert [head.in_features for head in widths] == [8, 5]


def test_residuals_stay_zero_when_they_are_switched_off(small_spec: SpecMaker) -> None:
    run = finished(small_spec({"name": "fedarc", "residuals": False}))
    for k in run.federation.states.ids():
        assert not run.federation.states.get(k)["parts.residuals.local.value"].any()


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


def test_with_kappa_one_the_moving_mean_is_the_plain_batch_mean() -> None:
    batch = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    means = MovingMeans(1.0, "batch")
    means.update(torch.zeros(3, 7))
    assert torch.equal(means.update(batch)[0], batch.mean(0))


def test_starting_from_zero_is_biased_toward_zero_at_first() -> None:
    assert MovingMeans(0.1, "zero").update(torch.ones(4, 2))[0].tolist() == pytest.approx([0.1, 0.1])
