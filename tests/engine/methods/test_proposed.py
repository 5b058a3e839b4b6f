"""What pFedAFM, pFedES, FedARC and CompFL have in common: identities, messages, prices, server step, parameters."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.catalogue import check
from engine.kit.contract import Upload
from engine.kit.flops import forward_flops
from engine.methods import REGISTRY
from engine.models import build
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError
from engine.testing import Stage, same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import own

PROPOSED = ("pfedafm", "pfedes", "fedarc", "compfl")

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
        {"name": "pfedafm", "alpha_lr": 0, "alpha_weight_decay": 0.1},
    ],
    ids=lambda method: method["name"],
)
@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_it_is_standalone_bit_for_bit(degenerate: dict[str, Any], protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    ours, alone = Run(small_spec(degenerate, evaluation=evaluation)), Run(small_spec(evaluation=evaluation))
    for first, second in zip(ours.rounds(), alone.rounds(), strict=True):
        assert (first.loss, first.client_accuracy) == (second.loss, second.client_accuracy)
        assert ours.federation.states.ids() == alone.federation.states.ids()
        for k in alone.federation.states.ids():
            assert same(own(ours, k, "model."), own(alone, k, "model."))


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


@pytest.mark.parametrize(("kd", "warmup"), [(False, 0), (True, 1), (True, 0)])
def test_compfl_sends_one_body_up_and_gets_what_it_needs_down(kd: bool, warmup: int) -> None:
    """CNN-5 … CNN-1 are the experts 1 … 5, by the size of their bodies on colour images."""
    bodies = {"cnn-5": 665_048, "cnn-4": 1_055_348, "cnn-3": 1_315_548, "cnn-2": 1_810_132, "cnn-1": 2_616_548}
    algorithm = {"name": "compfl", "epsilon": 1.0, "kd": kd, "warmup": warmup}
    few = {"dataset": COLOUR, "clients": 5, "participation": 1.0}
    run = Run(ExperimentSpec.parse({**DIGITS, **few, "algorithm": algorithm}))
    _, record = run.rounds()
    up = down = 0
    for k, architecture in enumerate(run.setup.architectures):
        held = list(bodies)[: list(bodies).index(architecture) + 1]
        selected = list(bodies)[int(record.traces["expert"][str(k)]) - 1]
        up += bodies[selected]
        down += sum(bodies[name] for name in (held if kd and warmup == 0 else {architecture, selected}))
    assert (record.scalars_up, record.scalars_down) == (up, down)


@pytest.mark.parametrize("method", PROPOSED)
def test_a_message_holds_the_shared_module_and_nothing_private(method: str, small_spec: SpecMaker) -> None:
    """Neither a head nor a projector, residuals or α: no tensor that the client keeps is sent, whatever its name."""
    stage = Stage(Run(small_spec(method, clients=3)))
    for k in range(3):
        client = stage.client(k)
        message = stage.algorithm.local_update(client, stage.algorithm.download(stage.run.server, client))
        shared = stage.algorithm.shared(client)
        assert message.keys() == shared.state_dict().keys()
        travels = {id(tensor) for tensor in shared.state_dict(keep_vars=True).values()}
        kept = stage.algorithm.private(client).values()
        assert not travels & {id(tensor) for module in kept for tensor in module.state_dict(keep_vars=True).values()}


@pytest.mark.parametrize("method", PROPOSED)
def test_what_is_counted_is_what_was_handed_over(method: str, small_spec: SpecMaker) -> None:
    spec = small_spec(method, clients=3, rounds=1, participation=1.0)
    _, record = records_of(spec)
    stage = Stage(Run(spec))
    up = down = 0
    for k in range(3):
        client = stage.client(k)
        received = stage.algorithm.download(stage.run.server, client)
        down += sum(tensor.numel() for tensor in received.values() if tensor.is_floating_point())
        sent = stage.algorithm.local_update(client, received)
        up += sum(tensor.numel() for tensor in sent.values() if tensor.is_floating_point())
    assert (record.scalars_up, record.scalars_down) == (up, down)


@pytest.mark.parametrize("method", PROPOSED)
def test_the_server_weighs_by_samples(method: str, small_spec: SpecMaker) -> None:
    """(1·1 + 3·5) / 4 = 4, and the plain mean 3 where both have as many samples."""
    stage = Stage(Run(small_spec(method, models={"family": "tiny-cnn"})))
    real = stage.upload(0)

    def combined(*amounts: int) -> set[float]:
        uploads = [
            Upload(k, samples, real.group, {name: torch.full_like(t, value) for name, t in real.payload.items()})
            for k, (samples, value) in enumerate(zip(amounts, (1.0, 5.0), strict=True))
        ]
        state = stage.algorithm.aggregate(stage.run.server, uploads, 1).groups[real.group]
        assert state.keys() == real.payload.keys()
        return {value for tensor in state.values() for value in tensor.flatten().tolist()}

    assert combined(1, 3) == {4.0}
    assert combined(7, 7) == {3.0}


def prices(run: Run, client: int, small: nn.Module) -> tuple[int, int, int, int]:
    """n_k and the forward FLOPs of body, head and the shared extractor."""
    model = build(run.setup.architectures[client], run.setup.shape, run.setup.classes, run.setup.feature_dim)
    image = torch.zeros(1, *run.setup.shape)
    head = forward_flops(model.head, torch.zeros(1, model.feature_dim))
    return run.setup.num_samples[client], forward_flops(model.body, image), head, forward_flops(small, image)


@pytest.mark.parametrize("method", ["pfedafm", "pfedes", "fedarc"])
def test_local_work_costs_what_the_formula_says(method: str) -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}}))
    record = list(run.rounds())[1]
    [k] = record.cohort
    shared = run.algorithm.shared(run.federation.fresh(k, 1))  # type: ignore[attr-defined]
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
    proxy = run.federation.networks[run.setup.architectures[k]].parts["proxy"]
    n, f, h, G = prices(run, k, proxy)
    assert record.client_flops == n * (3 * (f + h) + 5 * (3 * G + 2 * (f + h)))


@pytest.mark.parametrize("method", ["pfedafm", "fedarc"])
@pytest.mark.parametrize(
    ("small_model", "size", "words"),
    [("compfl-cnn", 16, "the feature width of compfl-cnn is always 128"), ("cnn-5", 12, "at least 16×16 pixels")],
)
def test_a_small_model_that_cannot_be_built_is_refused_before_it_runs(
    method: str, small_model: str, size: int, words: str, small_spec: SpecMaker
) -> None:
    dataset = {"name": "synthetic", "classes": 4, "samples_per_class": 40, "size": size}
    with pytest.raises(SpecError) as caught:
        check(small_spec({"name": method, "small_model": small_model}, dataset=dataset), None)
    assert caught.value.not_applicable
    assert words in str(caught.value)


DEFAULTS: dict[str, dict[str, Any]] = {
    "pfedafm": {
        "alpha_lr": 0.1,
        "alpha_weight_decay": 0.0,
        "alpha_clamp": True,
        "small_model": "cnn-5",
        "end_to_end": False,
        "plain_sgd": False,
    },
    "pfedes": {"mu": 0.1, "proxy_epochs": 5, "proxy": "conv", "proxy_layers": 2, "proxy_width": 8},
    "fedarc": {
        "anchor_weight": 1.0,
        "momentum": 0.1,
        "shared_dim": None,
        "local_weight": 1.0,
        "shared_weight": 1.0,
        "residuals": True,
        "anchoring": True,
        "anchor_level": "extractor",
        "anchor_init": "train",
        "mean_start": "batch",
        "inference": "fused",
        "share_head": False,
        "small_model": "fedavgcnn",
    },
    "compfl": {
        "align": True,
        "greedy": True,
        "kd": True,
        "adaptation": True,
        "epsilon": 0.3,
        "tau": 0.1,
        "align_weight": 1.0,
        "kd_weight": 1.0,
        "warmup": 10,
        "head_lr": 0.1,
        "head_momentum": 0.5,
        "head_weight_decay": 0.0005,
        "own_head_init": "proto",
        "cosine": False,
        "teachers": "others",
        "accuracy_scale": "min_max",
        "accuracy_on": "train",
        "kl": "forward",
        "align_reduction": "mean",
        "edge_probability": 1.0,
        "hops": None,
        "walk": "uniform",
        "visit_training": "greedy",
        "rounds_per_expert": None,
    },
}


@pytest.mark.parametrize("method", PROPOSED)
def test_the_defaults_are_those_of_the_papers_or_of_their_code(method: str) -> None:
    assert REGISTRY[method].Params.model_validate({"name": method}).model_dump() == {"name": method, **DEFAULTS[method]}


@pytest.mark.parametrize(
    ("method", "field", "least", "too_little", "too_much"),
    [
        ("pfedafm", "alpha_lr", 0, -0.1, 10.1),
        ("pfedafm", "alpha_weight_decay", 0, -0.1, 1.1),
        ("pfedes", "mu", 0, -0.1, 1.1),
        ("pfedes", "proxy_epochs", 0, -1, 1001),
        ("fedarc", "anchor_weight", 0, -1, 1001),
        ("fedarc", "momentum", 0, -0.1, 1.1),
        ("fedarc", "shared_dim", 1, 0, 8193),
        ("fedarc", "local_weight", 0, -1, 11),
        ("fedarc", "shared_weight", 0, -1, 11),
        ("compfl", "epsilon", 0, -0.1, 1.1),
        ("compfl", "tau", 1e-6, 0, 101),
        ("compfl", "align_weight", 0, -1, 1001),
        ("compfl", "kd_weight", 0, -1, 1001),
        ("compfl", "warmup", 0, -1, 100_001),
        ("compfl", "head_lr", 0, -0.1, 10.1),
        ("compfl", "head_momentum", 0, -0.1, 1),
        ("compfl", "head_weight_decay", 0, -0.1, 1.1),
        ("compfl", "edge_probability", 1e-6, 0, 1.1),
        ("compfl", "hops", 1, 0, 100_001),
        ("compfl", "rounds_per_expert", 1, 0, 100_001),
    ],
)
def test_bounds_include_the_degenerate_value_and_end_there(
    method: str, field: str, least: float, too_little: float, too_much: float, small_spec: SpecMaker
) -> None:
    small_spec({"name": method, field: least})
    for value in (too_little, too_much):
        with pytest.raises(SpecError, match=rf"algorithm\.{field}: must be .*, but got"):
            small_spec({"name": method, field: value})


def test_preset_a_decays_alpha_as_the_authors_code_does() -> None:
    spec = {key: DIGITS[key] for key in ("dataset", "partition", "models")} | {"algorithm": {"name": "pfedafm"}}
    found = [ExperimentSpec.parse({**spec, "preset": preset}).algorithm.model_dump() for preset in "ABC"]
    assert [params["alpha_weight_decay"] for params in found] == [0.001, 0.0, 0.0]
    assert [params["small_model"] for params in found] == ["cnn-5", "fedavgcnn", "compfl-cnn"]


@pytest.mark.parametrize("method", ["pfedafm", "fedarc"])
def test_it_says_why_it_cannot_run_without_a_common_width(method: str) -> None:
    run = Run(ExperimentSpec.parse({**DIGITS, "algorithm": {"name": method}, "models": {"family": "compfl-fmnist-2"}}))
    assert "feature_dim" in str(run.algorithm.why_not())
