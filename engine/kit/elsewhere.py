"""Methods that live in a folder outside this tree: one Python file each, with the header that every method has."""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from engine.kit.contract import Algorithm, AlgorithmParams, Method

VARIABLE = "FEDARENA_METHODS"
"""The environment variable that names the folder: every process that imports the engine reads it."""


class MethodsUnusable(ImportError):
    """The folder, or a file in it, holds no method that can be used; the message says which rule it breaks."""

    def __init__(self, message: str) -> None:
        super().__init__(message, name=VARIABLE)


def methods_of(folder: Path) -> list[type[Algorithm[Any]]]:
    """Those of all files in the folder, by name of file; what begins with _ is none. This runs the files."""
    if not folder.is_dir():
        raise MethodsUnusable(f"{VARIABLE} must name a folder of methods, but got {folder}")
    return [_method_of(file) for file in sorted(folder.glob("[!_]*.py"))]


def _method_of(file: Path) -> type[Algorithm[Any]]:
    name = f"methods_elsewhere.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise MethodsUnusable(f"{file} cannot be loaded as a Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where headers are looked for
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does, it is one of many kinds
        raise MethodsUnusable(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    found = [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Algorithm) and kind.__module__ == name and "method" in vars(kind)
    ]
    if len(found) != 1:
        names = ", ".join(kind.__name__ for kind in found) or "none"
        raise MethodsUnusable(f"{file} must define one method, a class with `Params` and `method`, but got {names}")
    [method] = found
    _check(file, method)
    return method


def _check(file: Path, method: type[Algorithm[Any]]) -> None:
    """What the rest relies on, said now rather than in the middle of something."""
    params = getattr(method, "Params", None)
    if not (inspect.isclass(params) and issubclass(params, AlgorithmParams)):
        raise MethodsUnusable(
            f"{file}: {method.__name__}.Params must be a class of AlgorithmParams, but got {params!r}"
        )
    if not isinstance(method.method, Method):
        raise MethodsUnusable(
            f"{file}: {method.__name__}.method must be Method.of(__doc__, …), but got {method.method!r}"
        )
    if method.__abstractmethods__:
        missing = ", ".join(sorted(method.__abstractmethods__))
        raise MethodsUnusable(f"{file}: {method.__name__} lacks {missing}")
    if not isinstance(params.model_fields["name"].default, str):
        raise MethodsUnusable(f'{file}: {params.__name__} must have `name: Literal["id"] = "id"`')
