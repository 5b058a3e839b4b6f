"""The small convolutional networks: sizes, costs and values as the papers have them."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from engine.models import Proxy, build, count
from tests.engine.models.memory import lay_out

CIFAR = (3, 32, 32)
MNIST = (1, 28, 28)


def macs(module: nn.Module, shape: tuple[int, int, int]) -> int:
    """Multiply-accumulates of one forward pass of one image."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(torch.zeros(1, *shape))
    flops: int = counter.get_total_flops()
    assert flops % 2 == 0
    return flops // 2


def relu_before_pool(body: nn.Sequential) -> nn.Sequential:
    """The same layers in the order of the papers."""
    layers = list(body)
    pools = [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    for i in pools:
        layers[i], layers[i + 1] = layers[i + 1], layers[i]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("architecture", "ten_classes", "hundred_classes", "extractor"),
    [
        ("cnn-1", 2_621_558, 2_666_648, 2_616_548),
        ("cnn-2", 1_815_142, 1_860_232, 1_810_132),
        ("cnn-3", 1_320_558, 1_365_648, 1_315_548),
        ("cnn-4", 1_060_358, 1_105_448, 1_055_348),
        ("cnn-5", 670_058, 715_148, 665_048),
    ],
)
def test_cnn_1_to_5_have_the_published_parameter_counts_on_cifar(
    architecture: str, ten_classes: int, hundred_classes: int, extractor: int
) -> None:
    model = build(architecture, CIFAR, 10)
    assert count(model) == (ten_classes, 0)
    assert count(model.body) == (extractor, 0)
    assert count(model.head) == (5_010, 0)
    assert count(build(architecture, CIFAR, 100)) == (hundred_classes, 0)
    assert count(build(architecture, CIFAR, 100).head) == (50_100, 0)


@pytest.mark.parametrize(
    ("architecture", "whole", "extractor"),
    [
        ("cnn-1", 2_044_758, 2_039_748),
        ("cnn-2", 1_526_342, 1_521_332),
        ("cnn-3", 1_031_758, 1_026_748),
        ("cnn-4", 829_158, 824_148),
        ("cnn-5", 525_258, 520_248),
    ],
)
def test_cnn_1_to_5_have_the_published_parameter_counts_on_mnist(architecture: str, whole: int, extractor: int) -> None:
    model = build(architecture, MNIST, 10)
    assert count(model) == (whole, 0)
    assert count(model.body) == (extractor, 0)


def test_one_channel_digits_give_a_cnn_5_trunk_of_664248_parameters() -> None:
    assert count(build("cnn-5", (1, 32, 32), 10).body) == (664_248, 0)


@pytest.mark.parametrize(("channels", "parameters"), [(3, 443), (1, 153)])
def test_the_proxy_is_tiny_and_keeps_the_size_of_the_image(channels: int, parameters: int) -> None:
    proxy = Proxy(channels)
    assert count(proxy) == (parameters, 0)
    assert proxy(torch.rand(2, channels, 32, 32)).shape == (2, channels, 32, 32)
    assert proxy(torch.rand(2, channels, 5, 9)).shape == (2, channels, 5, 9)


def test_a_proxy_without_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 channel, but got 0"):
        Proxy(0)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("cnn-1", 4_825_800),
        ("cnn-2", 3_385_800),
        ("cnn-3", 3_525_800),
        ("cnn-4", 3_265_800),
        ("cnn-5", 2_875_800),
    ],
)
def test_cnn_1_to_5_cost_the_reference_multiply_accumulates(architecture: str, expected: int) -> None:
    assert macs(build(architecture, CIFAR, 10), CIFAR) == expected
    assert macs(build(architecture, CIFAR, 100), CIFAR) == expected + 45_000


def test_fedavgcnn_and_the_proxy_cost_the_reference_multiply_accumulates() -> None:
    assert macs(build("fedavgcnn", CIFAR, 10).body, CIFAR) == 7_820_800
    assert macs(Proxy(3), CIFAR) == 442_368


def test_fedavgcnn_has_the_published_trunk_at_both_image_sizes() -> None:
    assert count(build("fedavgcnn", CIFAR, 10).body) == (873_408, 0)
    assert count(build("fedavgcnn", (3, 64, 64), 10).body) == (5_592_000, 0)


def test_fedavgcnn_reaches_a_narrower_feature_without_further_parameters() -> None:
    narrow = build("fedavgcnn", CIFAR, 10, feature_dim=256)
    assert count(narrow.body) == (873_408, 0)
    x = torch.rand(2, *CIFAR)
    wide = build("fedavgcnn", CIFAR, 10)
    wide.body.load_state_dict(narrow.body.state_dict())
    pairs: Tensor = wide.body(x).reshape(2, 256, 2)
    torch.testing.assert_close(narrow.body(x), pairs.mean(dim=2))


@pytest.mark.parametrize("architecture", ["cnn-1", "cnn-2", "cnn-3", "cnn-4", "cnn-5"])
def test_the_feature_width_of_cnn_1_to_5_is_the_width_of_fc2(architecture: str) -> None:
    model = build(architecture, CIFAR, 10, feature_dim=64)
    last = [layer for layer in model.body.modules() if isinstance(layer, nn.Linear)][-1]
    assert last.out_features == 64
    assert model.head.weight.shape == (10, 64)


def test_the_features_of_cnn_1_are_after_the_relu() -> None:
    assert build("cnn-1", CIFAR, 10).body(torch.randn(8, *CIFAR)).min() == 0


def test_compfl_experts_have_the_published_parameter_counts() -> None:
    cifar, small, large = (
        build("compfl-cnn", CIFAR, 10),
        build("fmnist-small", MNIST, 10),
        build("fmnist-large", MNIST, 10),
    )
    assert [count(model.body) for model in (cifar, small, large)] == [(106_400, 0), (115_776, 0), (489_024, 0)]
    assert [count(model.head) for model in (cifar, small, large)] == [(1_290, 0)] * 3


@pytest.mark.parametrize("architecture", ["cnn-1", "compfl-cnn", "fmnist-small"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_before_the_activation_gives_the_same_values_and_gradients(
    architecture: str, layout: torch.memory_format
) -> None:
    body = build(architecture, CIFAR, 10).body
    lay_out(body, layout)
    assert isinstance(body, nn.Sequential)
    x = torch.randn(4, *CIFAR).to(memory_format=layout)
    ours = body(x)
    gradients = torch.autograd.grad(ours.square().sum(), list(body.parameters()))
    papers = relu_before_pool(body)(x)
    papers_gradients = torch.autograd.grad(papers.square().sum(), list(body.parameters()))
    assert torch.equal(ours, papers)
    for ours_, theirs in zip(gradients, papers_gradients, strict=True):
        torch.testing.assert_close(ours_, theirs)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 32, 32), (3, 32, 32), (3, 13, 9)])
@pytest.mark.parametrize("architecture", ["tiny-mlp", "tiny-cnn", "tiny-bn"])
def test_tiny_networks_stay_tiny_and_take_small_images(architecture: str, shape: tuple[int, int, int]) -> None:
    model = build(architecture, shape, 10)
    assert count(model)[0] < 20_000
    assert model(torch.rand(2, *shape)).shape == (2, 10)
    assert model.body(torch.rand(2, *shape)).shape == (2, 16)


def test_only_tiny_bn_has_batch_norm() -> None:
    buffers = {name: count(build(name, (1, 8, 8), 10))[1] for name in ("tiny-mlp", "tiny-cnn", "tiny-bn")}
    assert buffers == {"tiny-mlp": 0, "tiny-cnn": 0, "tiny-bn": 2 * (8 + 16)}
