"""Reads the project's own files for the tests of architecture and frame."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "app", "workers")
NOT_OURS = {".git", ".venv", ".fedarena", ".hypothesis", "node_modules", "build", "dist"}
TOOLS_OWN = ("_cache", "__pycache__", ".egg-info")


@cache
def _all_files() -> tuple[Path, ...]:
    found = []
    for folder, names, entries in os.walk(ROOT):
        names[:] = [name for name in names if name not in NOT_OURS and not name.endswith(TOOLS_OWN)]
        found += [Path(folder, entry) for entry in entries]
    return tuple(sorted(path for path in found if path.is_file()))


def files(*suffixes: str, under: str = ".") -> Iterator[Path]:
    """Every file of the checkout that is ours and not a product of tools, with one of these suffixes or with any."""
    for path in _all_files():
        if path.is_relative_to(ROOT / under) and (not suffixes or path.suffix in suffixes):
            yield path


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def modules() -> dict[str, Path]:
    """Dotted name to file, of every module of the three packages."""
    found = {}
    for package in PACKAGES:
        for path in files(".py", under=package):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """What a file imports, wherever in the file: `from engine import rng` counts as engine.kit.rng."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules() else node.module for name in whole}
    return names


def inside(name: str, *packages: str) -> bool:
    """Is the module one of these packages or a part of one?"""
    return any(name == package or name.startswith(f"{package}.") for package in packages)
