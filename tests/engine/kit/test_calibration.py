"""Batch norm's running statistics of a network that has seen few batches come from all samples of its client."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.kit.calibration import recalibrate
from engine.kit.contract import Client
from engine.kit.flops import forward_flops
from engine.kit.training import fit_classifier
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of, same_results

ALONE: dict[str, Any] = {"models": {"family": "tiny-bn"}, "participation": 1.0, "rounds": 2}


def calibrated(
    small_spec: SpecMaker, algorithm: str = "standalone", below: int = 1000, **changes: Any
) -> ExperimentSpec:
    training = {"epochs": 2, "batch_size": 8, "lr": 0.05, "recalibrate_below": below}
    return small_spec(algorithm, training=training, **{**ALONE, **changes})


def worked(spec: ExperimentSpec, client_id: int = 0) -> Client:
    """The client after the training of round 1."""
    run = Run(spec)
    run.federation.build()
    client = run.federation.load(client_id, 1)
    fit_classifier(client)
    return client


def norms(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]


def entering(body: nn.Module, layer: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """What reaches a layer in a pass that normalises by the batch itself."""
    seen: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    with torch.no_grad():
        body.train()
        body(images)
    handle.remove()
    return seen[0]


def test_the_statistics_are_those_of_all_own_samples_unaugmented(small_spec: SpecMaker) -> None:
    client = worked(calibrated(small_spec))
    body = client.model.body
    found = [(layer.running_mean.clone(), layer.running_var.clone()) for layer in norms(body)]  # type: ignore[union-attr]
    images, _ = client.train.batch(torch.arange(len(client.train)))
    for layer, (mean, variance) in zip(norms(body), found, strict=True):
        x = entering(body, layer, images)
        assert torch.allclose(mean, x.mean((0, 2, 3)), atol=1e-5)
        assert torch.allclose(variance, x.transpose(0, 1).flatten(1).var(1), rtol=1e-4)


def test_batches_count_equally(small_spec: SpecMaker) -> None:
    client = worked(calibrated(small_spec, below=0))
    body, first = client.model.body, norms(client.model.body)[0]
    images, _ = client.train.batch(torch.arange(18))
    recalibrate(client, body, norms(body), images.split(6))
    assert not body.training
    assert first.momentum == 0.1
    means = torch.stack([entering(body, first, part).mean((0, 2, 3)) for part in images.split(6)])
    client = worked(calibrated(small_spec, below=0))
    recalibrate(client, client.model.body, norms(client.model.body), images.split(6))
    assert torch.allclose(norms(client.model.body)[0].running_mean, means.mean(0), atol=1e-5)  # type: ignore[arg-type]


def test_weights_and_the_count_of_batches_stay_and_the_pass_is_paid_for(small_spec: SpecMaker) -> None:
    plain, changed = (worked(calibrated(small_spec, below=below)) for below in (0, 1000))
    for (name, old), (_, new) in zip(plain.model.state_dict().items(), changed.model.state_dict().items(), strict=True):
        assert torch.equal(old, new) == ("running" not in name), name
    n = len(plain.train)
    forward = forward_flops(plain.model.body.eval(), torch.zeros(1, *plain.setup.shape))
    assert changed.meter.flops - plain.meter.flops == n * forward
    assert changed.traces == {"recalibrated": float(norms(plain.model)[0].num_batches_tracked)}  # type: ignore[arg-type]
    assert plain.traces == {}


def test_a_network_that_has_seen_enough_is_left_alone(small_spec: SpecMaker) -> None:
    steps = int(worked(calibrated(small_spec)).traces["recalibrated"])
    records = records_of(calibrated(small_spec, below=steps + 1, rounds=3))
    assert ["0" in record.traces.get("recalibrated", {}) for record in records] == [False, True, False, False]
    assert "recalibrated" not in records_of(calibrated(small_spec, below=0))[1].traces


def test_networks_without_batch_norm_do_not_notice(small_spec: SpecMaker) -> None:
    other: dict[str, Any] = {"models": {"family": "tiny-cnn"}}
    assert same_results(
        records_of(calibrated(small_spec, "fedgh", **other)), records_of(calibrated(small_spec, "fedgh", 0, **other))
    )


@pytest.mark.parametrize("method", ["standalone", "fedarc", "pfedes", "fedrep", "ditto", "compfl"])
def test_threads_do_not_change_a_bit_of_a_calibrated_run(method: str, small_spec: SpecMaker) -> None:
    spec = calibrated(small_spec, method)
    records = records_of(spec)
    assert records[1].traces["recalibrated"]
    assert same_results(records, records_of(spec, threads=2))


def test_a_body_that_was_never_trained_is_calibrated_before_it_is_asked(small_spec: SpecMaker) -> None:
    """FedRep's first phase trains the head on the body as it came: in round 1 nobody has trained it."""
    run = Run(calibrated(small_spec, "fedrep"))
    run.federation.build()
    client = run.federation.load(0, 1)
    asked: list[torch.Tensor] = []
    first = norms(client.model.body)[0]

    def look(layer: nn.BatchNorm2d, _inputs: Any) -> None:
        if not layer.training and layer.running_mean is not None:
            asked.append(layer.running_mean.clone())

    first.register_forward_pre_hook(look)
    run.algorithm.local_update(client, run.algorithm.download(run.server, client))
    assert asked
    assert all(mean.abs().sum() > 0 for mean in asked)
