"""torchvision is importable through engine.vision, and through nothing else."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^\s*(from|import)\s+torchvision\b|import_module\(\s*[\"']torchvision", re.MULTILINE)


def test_torchvision_networks_are_there() -> None:
    from engine.vision import models, torchvision

    assert torchvision.models is models
    with torch.device("meta"):
        assert isinstance(models.resnet18(), torch.nn.Module)


def test_declaring_the_operators_twice_changes_nothing() -> None:
    import engine.vision

    engine.vision._declare_missing_operators()
    assert hasattr(torch.ops.torchvision, "nms")
    assert hasattr(torch.ops.torchvision, "qnms")


@pytest.mark.parametrize("folder", ["engine", "app", "workers", "scripts", "tests"])
def test_every_torchvision_import_goes_through_engine_vision(folder: str) -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != ROOT / "engine" / "vision.py" and IMPORT.search(path.read_text(encoding="utf-8"))
    ]
    assert offenders == []
