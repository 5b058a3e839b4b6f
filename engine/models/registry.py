"""Every architecture by its id, and how to build it.

An id names the body first and the head after it. Most bodies have one linear layer as head, which is not spelled out;
`resnet34-mlp256` is the body of `resnet34` under a head with one hidden layer of 256.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from torch import nn

from engine.models import cnn
from engine.models.split import Shape, SplitModel

HTFE_WIDTH = 512
"""The feature width that all bodies of HtFLlib's groups are pooled to."""

Body = Callable[[Shape, int], nn.Module]
Head = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Architecture:
    """One network: how its parts are made and what it asks of its input."""

    name: str
    title: str
    feature_dim: int
    """Width of the feature unless another one is asked for."""
    body: Body
    head: Head = nn.Linear
    adjustable: bool = True
    """Whether another width than `feature_dim` may be asked for."""
    smallest: int = 1
    """Least height and width of an image."""
    patch: int | None = None
    """Images must be square, with a side that is a multiple of this."""


def _fixed(body: Callable[[Shape], nn.Module]) -> Body:
    """A body whose width cannot be chosen."""
    return lambda shape, _feature_dim: body(shape)


def _pooled(trunk: Callable[[Shape], nn.Module], width: int) -> Body:
    """A trunk of `width` outputs, brought to the common feature width by adaptive average pooling."""

    def body(shape: Shape, feature_dim: int) -> nn.Module:
        # pooling to the same width is the identity, and nn.Identity is cheaper
        resize = nn.Identity() if width == feature_dim else nn.AdaptiveAvgPool1d(feature_dim)
        parts = nn.Sequential()
        parts.add_module("trunk", trunk(shape))
        parts.add_module("resize", resize)
        return parts

    return body


def mlp_head(hidden: int, activation: type[nn.Module], feature_dim: int, classes: int) -> nn.Module:
    """A classifier with one hidden layer; no activation on the logits."""
    return nn.Sequential(nn.Linear(feature_dim, hidden), activation(), nn.Linear(hidden, classes))


# torchvision takes seconds to import, so only the networks that come from it ask for it
def _resnet(depth: int, stem: Literal["imagenet", "cifar"], shape: Shape) -> nn.Module:
    from engine.models.resnet import resnet

    return resnet(depth, stem, shape)


def _googlenet(shape: Shape) -> nn.Module:
    from engine.models.published import googlenet

    return googlenet(shape)


def _mobilenetv2(shape: Shape) -> nn.Module:
    from engine.models.published import mobilenetv2

    return mobilenetv2(shape)


def _vit_b(patch: int, shape: Shape) -> nn.Module:
    from engine.models.published import vit_b

    return vit_b(patch, shape)


IMAGENET_STEM_WIDTHS = {4: 64, 6: 128, 8: 256, 10: 512, 18: 512, 34: 512, 50: 2048, 101: 2048, 152: 2048}
CIFAR_STEM_WIDTHS = {4: 64, 6: 128, 8: 256, 9: 512, 18: 512, 34: 512, 50: 2048, 101: 2048, 152: 2048}
"""Outputs of each ResNet. One network with two names: ResNet-10 counts its last layer, CompFL's ResNet-9 does not."""

HTC_HEADS = (None, 512, 256, 128)
"""Hidden width of HtFLlib's four heads, in client order; None is the plain linear head."""
HTFE_8 = ("fedavgcnn", "googlenet", "mobilenetv2", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
RES34_HTC_4 = tuple(("resnet34", hidden) for hidden in HTC_HEADS)
HTFE_8_HTC_4 = tuple(zip(HTFE_8, HTC_HEADS * 2, strict=True))
"""(trunk, head) of every client; client k has trunk k mod 8 and head k mod 4, which repeats after 8."""


def with_head(trunk: str, hidden: int | None) -> str:
    """The id of `trunk` under a head with one hidden layer of that width."""
    return trunk if hidden is None else f"{trunk}-mlp{hidden}"


def _convolutional() -> Iterator[Architecture]:
    for number in cnn.CNN_HIDDEN:
        yield Architecture(f"cnn-{number}", f"CNN-{number}", 500, partial(cnn.cnn, number), smallest=16)
    yield Architecture("fedavgcnn", "FedAvgCNN", HTFE_WIDTH, _pooled(cnn.fedavgcnn, 512), smallest=16)
    experts: tuple[tuple[str, str, Callable[[Shape], nn.Module], int], ...] = (
        ("compfl-cnn", "CompFL CNN", cnn.compfl_cnn, 16),
        ("fmnist-small", "F-MNIST small CNN", partial(cnn.fmnist_expert, (128,)), 12),
        ("fmnist-large", "F-MNIST large CNN", partial(cnn.fmnist_expert, (512, 128)), 12),
    )
    for name, title, expert, smallest in experts:
        yield Architecture(name, title, 128, _fixed(expert), adjustable=False, smallest=smallest)
    tiny: tuple[tuple[str, str, Body], ...] = (
        ("tiny-mlp", "Tiny MLP", cnn.tiny_mlp),
        ("tiny-cnn", "Tiny CNN", cnn.tiny_cnn),
        ("tiny-bn", "Tiny CNN with BatchNorm", cnn.tiny_bn),
    )
    for name, title, body in tiny:
        yield Architecture(name, title, 16, body, smallest=4)


def _from_torchvision() -> Iterator[Architecture]:
    for depth, width in IMAGENET_STEM_WIDTHS.items():
        trunk = partial(_resnet, depth, "imagenet")
        yield Architecture(f"resnet{depth}", f"ResNet-{depth}", HTFE_WIDTH, _pooled(trunk, width))
    for depth, width in CIFAR_STEM_WIDTHS.items():
        trunk = partial(_resnet, depth, "cifar")
        title = f"ResNet-{depth}, CIFAR stem"
        yield Architecture(f"resnet{depth}-cifar", title, width, _fixed(trunk), adjustable=False)
    yield Architecture("googlenet", "GoogLeNet", HTFE_WIDTH, _pooled(_googlenet, 1024), smallest=15)
    yield Architecture("mobilenetv2", "MobileNetV2", HTFE_WIDTH, _pooled(_mobilenetv2, 1280))
    for patch in (16, 32):
        body, head = _pooled(partial(_vit_b, patch), 768), partial(mlp_head, 768, nn.Tanh)
        yield Architecture(f"vit-b-{patch}", f"ViT-B/{patch}", HTFE_WIDTH, body, head, smallest=patch, patch=patch)


def _with_other_heads(known: Mapping[str, Architecture]) -> Iterator[Architecture]:
    for trunk, hidden in RES34_HTC_4 + HTFE_8_HTC_4:
        if hidden is not None:
            plain = known[trunk]
            title = f"{plain.title}, head with {hidden} hidden"
            yield replace(plain, name=with_head(trunk, hidden), title=title, head=partial(mlp_head, hidden, nn.ReLU))


def _all() -> dict[str, Architecture]:
    known = {plan.name: plan for plan in (*_convolutional(), *_from_torchvision())}
    return known | {plan.name: plan for plan in _with_other_heads(known)}


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(_all())


def build(architecture: str, shape: Shape, classes: int, feature_dim: int | None = None) -> SplitModel:
    """The network `architecture` for images of `shape`, freshly initialised from torch's global generator.

    The caller seeds. `feature_dim` None takes the architecture's own width.
    """
    check(architecture, shape, classes, feature_dim)
    plan = ARCHITECTURES[architecture]
    width = plan.feature_dim if feature_dim is None else feature_dim
    return SplitModel(architecture, width, plan.body(shape, width), plan.head(width, classes))


def check(architecture: str, shape: Shape, classes: int, feature_dim: int | None = None) -> None:
    """Raise the ValueError that `build` would raise, without building anything."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}; known: {', '.join(sorted(ARCHITECTURES))}")
    plan = ARCHITECTURES[architecture]
    channels, height, width = shape
    if channels < 1:
        raise ValueError(f"images need at least 1 channel, but got {channels}; shapes are (channels, height, width)")
    if min(height, width) < plan.smallest:
        raise ValueError(
            f"{plan.name} needs images of at least {plan.smallest}×{plan.smallest} pixels, but got {height}×{width}; "
            "use larger images or another model"
        )
    if plan.patch is not None and (height != width or height % plan.patch != 0):
        raise ValueError(
            f"{plan.name} needs square images with a side that is a multiple of {plan.patch}, "
            f"but got {height}×{width}; resize the images or use another model"
        )
    if classes < 1:
        raise ValueError(f"a head needs at least 1 class, but got {classes}; give the number of classes of the data")
    if feature_dim is None:
        return
    if feature_dim < 1:
        raise ValueError(f"feature_dim must be at least 1, but got {feature_dim}; leave it out for {plan.feature_dim}")
    if not plan.adjustable and feature_dim != plan.feature_dim:
        raise ValueError(
            f"the feature width of {plan.name} is always {plan.feature_dim}, but feature_dim={feature_dim} was given; "
            "leave feature_dim out or use a model with an adjustable width"
        )
