"""Versions of the spec: how a spec that an earlier version stored is written today."""

from collections.abc import Callable, Sequence
from typing import Any

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: tuple[Upgrade, ...] = ()
"""The n-th one rewrites a complete spec of version n for version n + 1, and changes nothing of what it computes.

A field was renamed, moved, or left out because it has one meaning by now. A new field needs none: LATER in
engine.spec.frozen. See docs/decisions/0009."""
SPEC_VERSION = 1 + len(UPGRADES)


def upgraded(spec: dict[str, Any], version: int, upgrades: Sequence[Upgrade] = UPGRADES) -> dict[str, Any]:
    """The spec as this version writes it; nothing is checked."""
    for upgrade in upgrades[version - 1 :]:
        spec = upgrade(spec)
    return spec
