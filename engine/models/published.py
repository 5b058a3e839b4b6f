"""GoogLeNet, MobileNetV2 and the vision transformers as torchvision builds them, without their last layer."""

import math

from torch import nn

from engine.models.dropout import SeededDropout
from engine.models.split import Shape
from engine.vision import models


def _for_channels(conv: nn.Conv2d, channels: int) -> nn.Conv2d:
    """The same first layer for another number of channels; the caller initialises it as its network does."""
    return nn.Conv2d(
        channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]  # a pair, typed as a tuple of any length
        stride=conv.stride,  # type: ignore[arg-type]
        padding=conv.padding,  # type: ignore[arg-type]
        bias=conv.bias is not None,
    )


def googlenet(shape: Shape) -> nn.Module:
    """GoogLeNet without auxiliary heads: 1024 features. Its dropout is the last step."""
    network = models.GoogLeNet(num_classes=1, aux_logits=False, init_weights=True)
    if shape[0] != 3:
        conv = _for_channels(network.conv1.conv, shape[0])
        nn.init.trunc_normal_(conv.weight, std=0.01, a=-2, b=2)
        network.conv1.conv = conv
    network.dropout = SeededDropout(network.dropout.p)
    network.fc = nn.Identity()
    trunk: nn.Module = network
    return trunk


def mobilenetv2(shape: Shape) -> nn.Module:
    """MobileNetV2: 1280 features. Its dropout belongs to the classifier, which is not part of this."""
    network = models.MobileNetV2(num_classes=1)
    if shape[0] != 3:
        conv = _for_channels(network.features[0][0], shape[0])
        nn.init.kaiming_normal_(conv.weight, mode="fan_out")
        network.features[0][0] = conv
    network.classifier = nn.Identity()
    trunk: nn.Module = network
    return trunk


def vit_b(patch: int, shape: Shape) -> nn.Module:
    """ViT-B for square images cut into patches: 768 features."""
    network = models.VisionTransformer(
        image_size=shape[1], patch_size=patch, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072, num_classes=1
    )
    if shape[0] != 3:
        conv = _for_channels(network.conv_proj, shape[0])
        nn.init.trunc_normal_(conv.weight, std=math.sqrt(1 / (shape[0] * patch * patch)))
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
        network.conv_proj = conv
    network.heads = nn.Identity()
    trunk: nn.Module = network
    return trunk
