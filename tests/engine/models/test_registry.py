"""Building by id: what is refused, and what a built network can do."""

import copy
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from engine.models import ARCHITECTURES, Shape, SplitModel, build, check, count

CIFAR = (3, 32, 32)
# one of every kind: the deepest ResNets and the other heads ask nothing else of an image
CONVOLUTIONAL = ("cnn-1", "cnn-2", "fedavgcnn", "compfl-cnn", "fmnist-small", "tiny-mlp", "tiny-cnn", "tiny-bn")
DISTINCT = (*CONVOLUTIONAL, "resnet4", "resnet18", "resnet50", "resnet18-cifar", "googlenet", "mobilenetv2", "vit-b-16")


@pytest.mark.parametrize(
    ("architecture", "shape", "classes", "feature_dim", "message"),
    [
        ("cnn-9", CIFAR, 10, None, "unknown architecture 'cnn-9'; known: cnn-1, cnn-2"),
        ("cnn-1", (1, 8, 8), 10, None, "cnn-1 needs images of at least 16×16 pixels, but got 8×8; use larger images"),
        ("cnn-1", (3, 32, 15), 10, None, "at least 16×16 pixels, but got 32×15"),
        ("fedavgcnn", (1, 8, 8), 10, None, "at least 16×16 pixels, but got 8×8"),
        ("googlenet", (1, 8, 8), 10, None, "at least 15×15 pixels, but got 8×8"),
        ("vit-b-16", (1, 28, 28), 10, None, "square images with a side that is a multiple of 16, but got 28×28"),
        ("vit-b-16", (3, 32, 64), 10, None, "square images with a side that is a multiple of 16, but got 32×64"),
        ("vit-b-32", (3, 16, 16), 10, None, "at least 32×32 pixels, but got 16×16"),
        ("cnn-1", (0, 32, 32), 10, None, "at least 1 channel, but got 0"),
        ("cnn-1", CIFAR, 0, None, "at least 1 class, but got 0"),
        ("cnn-1", CIFAR, 10, 0, "feature_dim must be at least 1, but got 0; leave it out for 500"),
        (
            "compfl-cnn",
            CIFAR,
            10,
            500,
            "compfl-cnn is always 128, but feature_dim=500 was given; leave feature_dim out",
        ),
        ("resnet18-cifar", CIFAR, 10, 500, "resnet18-cifar is always 512, but feature_dim=500 was given"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_rule_and_the_value(
    architecture: str, shape: Shape, classes: int, feature_dim: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(architecture, shape, classes, feature_dim)
    with pytest.raises(ValueError, match=re.escape(message)):
        check(architecture, shape, classes, feature_dim)


def test_a_fixed_width_may_be_named() -> None:
    assert build("compfl-cnn", CIFAR, 10, feature_dim=128).feature_dim == 128


@pytest.mark.parametrize("architecture", DISTINCT)
def test_the_smallest_image_of_an_architecture_works(architecture: str) -> None:
    side = ARCHITECTURES[architecture].smallest
    with torch.device("meta"):
        model = build(architecture, (1, side, side), 10).eval()
        assert model(torch.empty(2, 1, side, side)).shape == (2, 10)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "architecture", ["cnn-1", "fedavgcnn", "compfl-cnn", "fmnist-small", "fmnist-large", "googlenet"]
)
def test_the_smallest_size_is_not_stricter_than_the_layers_themselves(architecture: str) -> None:
    plan = ARCHITECTURES[architecture]
    side = plan.smallest - 1
    with torch.device("meta"), pytest.raises((RuntimeError, ValueError)):
        plan.body((1, side, side), plan.feature_dim).eval()(torch.empty(2, 1, side, side))


def test_the_forward_pass_is_the_head_of_the_body() -> None:
    model = build("tiny-cnn", (1, 8, 8), 10)
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(model(x), model.head(model.body(x)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_head_ends_with_an_activation(architecture: str) -> None:
    """In a public library the heads of several layers end with a ReLU, so that no logit is below zero."""
    plan = ARCHITECTURES[architecture]
    assert isinstance(list(plan.head(plan.feature_dim, 10).modules())[-1], nn.Linear)


def test_the_same_seed_gives_the_same_weights() -> None:
    def seeded() -> SplitModel:
        torch.manual_seed(7)
        return build("tiny-bn", (1, 8, 8), 10)

    first, second = seeded().state_dict(), seeded().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_seed_fixes_the_body_whatever_the_number_of_classes() -> None:
    bodies = []
    for classes in (10, 100):
        torch.manual_seed(7)
        bodies.append(build("cnn-5", CIFAR, classes).body.state_dict())
    assert all(torch.equal(bodies[0][name], bodies[1][name]) for name in bodies[0])


@pytest.mark.parametrize("architecture", ["tiny-mlp", "tiny-cnn", "tiny-bn", "resnet4", "googlenet"])
def test_a_network_survives_deepcopy_and_state_dict(architecture: str) -> None:
    model = build(architecture, CIFAR, 10).eval()
    twin, other = copy.deepcopy(model), build(architecture, CIFAR, 10).eval()
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, *CIFAR)
    assert torch.equal(twin(x), model(x))
    assert torch.equal(other(x), model(x))
    assert (twin.architecture, twin.feature_dim) == (model.architecture, model.feature_dim)


@pytest.mark.parametrize("architecture", ["cnn-5", "fedavgcnn", "tiny-bn", "resnet4"])
def test_torch_func_sees_the_same_gradients_as_autograd(architecture: str) -> None:
    model = build(architecture, CIFAR, 10).eval()
    parameters = dict(model.named_parameters())
    x, y = torch.rand(4, *CIFAR), torch.tensor([0, 1, 2, 3])

    def loss(values: dict[str, nn.Parameter]) -> torch.Tensor:
        tensors: dict[str, torch.Tensor] = {**values}
        return nn.functional.cross_entropy(torch.func.functional_call(model, tensors, (x,)), y)

    functional = torch.func.grad(loss)(parameters)
    nn.functional.cross_entropy(model(x), y).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        torch.testing.assert_close(functional[name], parameter.grad)


def test_stacked_networks_run_under_vmap() -> None:
    models = [build("tiny-cnn", (1, 8, 8), 10) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    x = torch.rand(5, 1, 8, 8)
    stacked = torch.func.vmap(lambda p, b: torch.func.functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    for model, logits in zip(models, stacked, strict=True):
        torch.testing.assert_close(model(x), logits, rtol=1e-4, atol=1e-6)


def test_count_ignores_integer_buffers() -> None:
    assert count(nn.BatchNorm1d(5)) == (10, 10)


def test_small_networks_do_not_pay_for_torchvision() -> None:
    code = (
        "import sys; from engine.models import FAMILIES, build; build('cnn-1', (3, 32, 32), 10); "
        "sys.exit('torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


POOLED = ("fedavgcnn", "googlenet", "mobilenetv2", "resnet18", "resnet50", "vit-b-32")
"""One of each width that is pooled."""


@pytest.mark.parametrize("architecture", POOLED)
def test_the_common_width_is_made_without_sums_whose_order_a_gpu_chooses(architecture: str) -> None:
    """Its gradients are added up there in any order: of two numbers that is the same sum, of three it is not."""
    with torch.device("meta"):
        body = build(architecture, (3, 64, 64), 10).body.eval()
        width = body.get_submodule("trunk")(torch.zeros(2, 3, 64, 64)).shape[1]
    resize = body.get_submodule("resize")
    shares = torch.autograd.functional.jacobian(resize, torch.ones(1, width))
    assert (shares.reshape(-1, width) != 0).sum(0).max() <= 2
