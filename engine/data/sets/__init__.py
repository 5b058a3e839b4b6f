"""Every data set by its name in a spec, in the order in which lists show them: one module for each."""

from engine.data.card import DataCard
from engine.data.sets import (
    cifar10,
    cifar100,
    digits,
    domainnet,
    flowers102,
    fmnist,
    mnist,
    pacs,
    synthetic,
    tiny_imagenet,
)

_MODULES = (digits, synthetic, mnist, fmnist, cifar10, cifar100, flowers102, tiny_imagenet, pacs, domainnet)

REGISTRY: dict[str, DataCard] = {module.CARD.name: module.CARD for module in _MODULES}


def published() -> dict[str, DataCard]:
    """Those that somebody published and that lie in files."""
    return {name: card for name, card in REGISTRY.items() if not card.bundled}
