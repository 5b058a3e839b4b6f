"""The small convolutional networks of the papers, for any image shape.

Max-pooling stands before the activation everywhere: both are monotone, so the values are the same, and the activation
then touches a quarter of the elements.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from engine.models.split import Shape


@dataclass(frozen=True)
class Conv:
    """A convolution with stride 1, a 2×2 max-pool and an activation."""

    out: int
    kernel: int = 5
    padding: int = 0

    def size_after(self, size: int) -> int:
        return (size + 2 * self.padding - self.kernel + 1) // 2


CNN_CONVS = {1: (16, 32), 2: (16, 16), 3: (16, 32), 4: (16, 32), 5: (16, 32)}
CNN_HIDDEN = {1: 2000, 2: 2000, 3: 1000, 4: 800, 5: 500}
"""Channels of both convolutions and width of FC1 in CNN-1 … CNN-5."""

COMPFL_CONVS = (Conv(16), Conv(32, padding=1), Conv(64, kernel=3, padding=1))
FMNIST_CONVS = (Conv(16), Conv(32, padding=1))


def _convolutional(
    shape: Shape, convs: tuple[Conv, ...], hidden: tuple[int, ...], activation: type[nn.Module]
) -> nn.Sequential:
    """Convolutions, then fully connected layers; an activation after each of them, the last one included."""
    channels, height, width = shape
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, conv in enumerate(convs, start=1):
        layers[f"conv{number}"] = nn.Conv2d(channels, conv.out, conv.kernel, padding=conv.padding)
        layers[f"pool{number}"] = nn.MaxPool2d(2)
        layers[f"act{number}"] = activation()
        channels, height, width = conv.out, conv.size_after(height), conv.size_after(width)
    layers["flatten"] = nn.Flatten()
    inputs = channels * height * width
    for number, outputs in enumerate(hidden, start=1):
        layers[f"fc{number}"] = nn.Linear(inputs, outputs)
        layers[f"fc_act{number}"] = activation()
        inputs = outputs
    return nn.Sequential(layers)


def cnn(number: int, shape: Shape, feature_dim: int) -> nn.Module:
    """CNN-1 … CNN-5 without FC3; the feature is ReLU(FC2), so FC2 has the width of the feature."""
    convs = tuple(Conv(out) for out in CNN_CONVS[number])
    return _convolutional(shape, convs, (CNN_HIDDEN[number], feature_dim), nn.ReLU)


def fedavgcnn(shape: Shape) -> nn.Module:
    """The 4-layer CNN of HtFLlib without its head: 512 features."""
    return _convolutional(shape, (Conv(32), Conv(64)), (512,), nn.ReLU)


def compfl_cnn(shape: Shape) -> nn.Module:
    """CompFL's small expert for CIFAR: 128 features."""
    return _convolutional(shape, COMPFL_CONVS, (128,), nn.LeakyReLU)


def fmnist_expert(hidden: tuple[int, ...], shape: Shape) -> nn.Module:
    """CompFL's experts for Fashion-MNIST; the larger one has one more fully connected layer."""
    return _convolutional(shape, FMNIST_CONVS, hidden, nn.LeakyReLU)


def tiny_mlp(shape: Shape, feature_dim: int) -> nn.Module:
    """A perceptron on the image shrunk to 8×8, for tests: no convolution, no BatchNorm."""
    return nn.Sequential(
        OrderedDict(
            shrink=nn.AdaptiveAvgPool2d(8),
            flatten=nn.Flatten(),
            fc1=nn.Linear(shape[0] * 64, 32),
            fc_act1=nn.ReLU(),
            fc2=nn.Linear(32, feature_dim),
            fc_act2=nn.ReLU(),
        )
    )


def tiny_cnn(shape: Shape, feature_dim: int) -> nn.Module:
    """One convolution, for tests: no BatchNorm."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 8, 3, padding=1),
            pool1=nn.MaxPool2d(2),
            act1=nn.ReLU(),
            shrink=nn.AdaptiveAvgPool2d(4),
            flatten=nn.Flatten(),
            fc1=nn.Linear(128, feature_dim),
            fc_act1=nn.ReLU(),
        )
    )


def tiny_bn(shape: Shape, feature_dim: int) -> nn.Module:
    """Two convolutions with BatchNorm, for tests."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 8, 3, padding=1, bias=False),
            bn1=nn.BatchNorm2d(8),
            pool1=nn.MaxPool2d(2),
            act1=nn.ReLU(),
            conv2=nn.Conv2d(8, 16, 3, padding=1, bias=False),
            bn2=nn.BatchNorm2d(16),
            pool2=nn.MaxPool2d(2),
            act2=nn.ReLU(),
            shrink=nn.AdaptiveAvgPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64, feature_dim),
            fc_act1=nn.ReLU(),
        )
    )


class Proxy(nn.Sequential):
    """pFedES' shared image-to-image extractor: it keeps the size of the image."""

    def __init__(self, channels: int, layers: int = 2, width: int = 8) -> None:
        if channels < 1:
            raise ValueError(f"a proxy needs at least 1 channel, but got {channels}; give the images' channel count")
        widths = [channels, *[width] * (layers - 1), channels]
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (before, after) in enumerate(pairwise(widths), 1):
            modules[f"conv{number}"] = nn.Conv2d(before, after, 3, padding=1)
            modules[f"act{number}"] = nn.ReLU()
        super().__init__(modules)
