"""ResNets as torchvision builds them, with its ImageNet stem or the small stem used for CIFAR."""

from typing import Literal

from torch import nn

from engine.models.split import Shape
from engine.vision import models

Stem = Literal["imagenet", "cifar"]

BOTTLENECKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
BASIC_BLOCKS = {
    4: (1,),
    6: (1, 1),
    8: (1, 1, 1),
    9: (1, 1, 1, 1),
    10: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
}
STAGES = 4


def resnet(depth: int, stem: Stem, shape: Shape) -> nn.Module:
    """ResNet-`depth` without its last layer: global average pooling is the last step."""
    channels = shape[0]
    blocks = BOTTLENECKS[depth] if depth in BOTTLENECKS else BASIC_BLOCKS[depth]
    block = models.resnet.Bottleneck if depth in BOTTLENECKS else models.resnet.BasicBlock
    # torchvision always makes four stages; the ones a shorter network does not have are taken out again
    network: nn.Module = models.ResNet(block, [*blocks, *[1] * (STAGES - len(blocks))], num_classes=1)
    for stage in range(len(blocks) + 1, STAGES + 1):
        setattr(network, f"layer{stage}", nn.Identity())
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    else:
        network.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    return network
