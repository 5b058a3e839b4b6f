"""How large every network of a family is at 3×32×32 and ten classes, without building it.

Counting needs the networks and so torchvision: several seconds for a page that only shows numbers. They are written
down in `sizes.json` by `make docs`; a test builds the networks and compares.
"""

import json
from functools import cache
from pathlib import Path

import torch

from engine.models.families import FAMILIES
from engine.models.registry import build
from engine.models.split import Shape, count

SHAPE: Shape = (3, 32, 32)
CLASSES = 10
FILE = Path(__file__).with_name("sizes.json")

Sizes = dict[str, int]


@cache
def _written() -> dict[str, Sizes]:
    found: dict[str, Sizes] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def sizes(architecture: str, feature_dim: int | None) -> Sizes:
    """Scalars of body and head; counted here and now if nobody wrote them down."""
    return _written().get(_key(architecture, feature_dim)) or counted(architecture, feature_dim)


def counted(architecture: str, feature_dim: int | None) -> Sizes:
    with torch.device("meta"):
        model = build(architecture, SHAPE, CLASSES, feature_dim)
    (body, buffers), (head, _) = count(model.body), count(model.head)
    return {"parameters": body + head, "body_parameters": body, "head_parameters": head, "buffers": buffers}


def all_counted() -> dict[str, Sizes]:
    """What the file must hold."""
    asked = sorted(
        {(member, family.feature_dim) for family in FAMILIES.values() for member in family.members},
        key=lambda pair: _key(*pair),
    )
    return {_key(*pair): counted(*pair) for pair in asked}


def _key(architecture: str, feature_dim: int | None) -> str:
    return f"{architecture} {feature_dim or 'own'}"
