"""The networks that come from torchvision: sizes, stems, channels."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from engine.models import ARCHITECTURES, SplitModel, build, count, seed_dropout
from tests.engine.models.memory import lay_out

CIFAR = (3, 32, 32)


Weightless = Callable[..., SplitModel]


@pytest.mark.parametrize(
    ("architecture", "trunk"),
    [
        ("googlenet", 5_599_904),
        ("mobilenetv2", 2_223_872),
        ("resnet4", 83_520),
        ("resnet6", 313_664),
        ("resnet8", 1_232_704),
        ("resnet10", 4_905_792),
        ("resnet18", 11_176_512),
        ("resnet34", 21_284_672),
        ("resnet50", 23_508_032),
        ("resnet101", 42_500_160),
        ("resnet152", 58_143_808),
        ("vit-b-16", 85_651_200),
        ("vit-b-32", 87_418_368),
        ("resnet9-cifar", 4_898_112),
        ("resnet18-cifar", 11_168_832),
    ],
)
def test_trunks_have_the_published_parameter_counts(weightless: Weightless, architecture: str, trunk: int) -> None:
    assert count(weightless(architecture).body)[0] == trunk


@pytest.mark.parametrize(("architecture", "whole"), [("resnet9-cifar", 4_903_242), ("resnet18-cifar", 11_173_962)])
def test_compfl_resnets_have_the_published_parameter_counts(
    weightless: Weightless, architecture: str, whole: int
) -> None:
    assert count(weightless(architecture))[0] == whole


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("resnet34", 51_300),
        ("resnet34-mlp512", 313_956),
        ("resnet34-mlp256", 157_028),
        ("resnet34-mlp128", 78_564),
        ("vit-b-16", 470_884),
        ("vit-b-32", 470_884),
    ],
)
def test_heads_have_the_published_parameter_counts(weightless: Weightless, architecture: str, head: int) -> None:
    assert count(weightless(architecture, classes=100).head) == (head, 0)


def test_another_head_leaves_the_trunk_alone(weightless: Weightless) -> None:
    plain, other = weightless("resnet34"), weightless("resnet34-mlp256")
    shapes = [{name: value.shape for name, value in model.body.state_dict().items()} for model in (plain, other)]
    assert shapes[0] == shapes[1]


def test_no_head_ends_in_an_activation(weightless: Weightless) -> None:
    for architecture in ARCHITECTURES:
        head = weightless(architecture).head
        assert isinstance(list(head.modules())[-1], nn.Linear), architecture


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_architecture_makes_features_of_its_width_and_logits(weightless: Weightless, architecture: str) -> None:
    model = weightless(architecture, classes=7)
    x = torch.empty(2, *CIFAR, device="meta")
    features = model.body(x)
    assert features.shape == (2, model.feature_dim)
    assert model.head(features).shape == (2, 7)
    assert model(x).shape == (2, 7)
    assert (model.architecture, model.feature_dim) == (architecture, ARCHITECTURES[architecture].feature_dim)


@pytest.mark.parametrize("architecture", ["resnet4", "resnet50", "googlenet", "mobilenetv2", "vit-b-16"])
def test_htfe_trunks_reach_any_asked_width_without_further_parameters(
    weightless: Weightless, architecture: str
) -> None:
    model = weightless(architecture, feature_dim=100)
    assert model.body(torch.empty(2, *CIFAR, device="meta")).shape == (2, 100)
    assert count(model.body) == count(weightless(architecture).body)


def test_a_narrow_trunk_is_stretched_by_repeating_its_outputs() -> None:
    model = build("resnet4", CIFAR, 10).eval()
    assert isinstance(model.body, nn.Sequential)
    x = torch.rand(2, *CIFAR)
    narrow = model.body[0](x)
    assert narrow.shape == (2, 64)
    torch.testing.assert_close(model.body(x), narrow.repeat_interleave(8, dim=1))


@pytest.mark.parametrize("architecture", ["resnet10", "resnet9-cifar", "googlenet", "mobilenetv2", "vit-b-32"])
def test_one_channel_images_only_change_the_first_layer(weightless: Weightless, architecture: str) -> None:
    grey, colour = weightless(architecture, (1, 32, 32)), weightless(architecture)
    assert grey(torch.empty(2, 1, 32, 32, device="meta")).shape == (2, 10)
    differing = [name for name, value in colour.state_dict().items() if value.shape != grey.state_dict()[name].shape]
    assert len(differing) == 1
    assert grey.state_dict().keys() == colour.state_dict().keys()


@pytest.mark.parametrize("architecture", ["resnet10", "googlenet", "mobilenetv2"])
def test_the_first_layer_is_initialised_alike_for_one_and_three_channels(architecture: str) -> None:
    torch.manual_seed(0)
    first = [next(build(architecture, (channels, 32, 32), 10).parameters()) for channels in (1, 3)]
    assert first[0].std().item() == pytest.approx(first[1].std().item(), rel=0.1)


def test_the_first_layer_of_a_vit_keeps_the_variance_of_its_output_for_any_channel_count() -> None:
    from engine.models.published import vit_b

    torch.manual_seed(0)
    weight = vit_b(32, (1, 32, 32)).get_parameter("conv_proj.weight")
    assert weight.std().item() == pytest.approx((1 / (32 * 32)) ** 0.5, rel=0.1)


def test_the_imagenet_stem_shrinks_the_image_and_the_cifar_stem_does_not(weightless: Weightless) -> None:
    imagenet, cifar = weightless("resnet18").body, weightless("resnet18-cifar").body
    x = torch.empty(1, *CIFAR, device="meta")
    assert isinstance(imagenet, nn.Sequential)
    for trunk, side in ((imagenet[0], 8), (cifar, 32)):
        assert trunk.get_submodule("maxpool")(trunk.get_submodule("conv1")(x)).shape == (1, 64, side, side)


@pytest.mark.parametrize("architecture", ["resnet8", "resnet18-cifar", "googlenet", "mobilenetv2"])
def test_channels_last_gives_the_same_values(architecture: str) -> None:
    torch.manual_seed(0)
    model = build(architecture, CIFAR, 10).eval()
    x = torch.rand(2, *CIFAR)
    expected = model(x)
    lay_out(model, torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("architecture", ["resnet4", "resnet9-cifar", "googlenet", "mobilenetv2"])
def test_a_frozen_network_passes_gradients_to_its_input(architecture: str) -> None:
    model = build(architecture, CIFAR, 10).requires_grad_(False)
    seed_dropout(model, torch.Generator().manual_seed(0))
    x = torch.rand(4, *CIFAR, requires_grad=True)
    (model(x) * torch.arange(10)).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_building_a_network_on_the_meta_device_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    with torch.device("meta"):
        build("googlenet", CIFAR, 10)
    assert torch.equal(torch.get_rng_state(), before)
