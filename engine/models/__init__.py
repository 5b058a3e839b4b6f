"""The networks clients own, each split into body and head, by id and by family."""

from engine.models.cnn import Proxy
from engine.models.dropout import SeededDropout, seed_dropout
from engine.models.families import FAMILIES, Assignment, Family, assign
from engine.models.registry import ARCHITECTURES, Architecture, build, check
from engine.models.split import Shape, SplitModel, count

__all__ = [
    "ARCHITECTURES",
    "FAMILIES",
    "Architecture",
    "Assignment",
    "Family",
    "Proxy",
    "SeededDropout",
    "Shape",
    "SplitModel",
    "assign",
    "build",
    "check",
    "count",
    "seed_dropout",
]
