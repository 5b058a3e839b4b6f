"""Who may import whom, and what no file may contain: the same table as the import-linter contracts, as plain tests."""

import ast
import re

import pytest

from tests.source import PACKAGES, ROOT, files, imports, inside, modules, shown, tree

SHARED = (
    "app.advice",
    "app.config",
    "app.errors",
    "app.events",
    "app.numbers",
    "app.queue",
    "app.round_table",
    "app.security",
    "app.storage",
    "app.store",
    "app.views",
)
SWEEPS = ("app.sweeps", "app.sweep_table", "app.webhooks")
ENGINE_DOOR = ("engine.spec", "engine.records", "engine.catalogue")
FOR_METHODS = ("engine.kit", "engine.models", "engine.spec.frozen")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "engine": ("engine",),
    "engine.kit": (
        *FOR_METHODS,
        "engine.data.client_dataset",
        "engine.records",
        "engine.runtime.device",
        "engine.spec.training",
    ),
    "engine.methods": ("engine.methods", *FOR_METHODS),
    "engine.models": ("engine.models", "engine.kit.rng", "engine.vision"),
    "app": (),
    "app.config": (),
    "app.advice": ("engine.data.errors", "engine.spec"),
    "app.errors": ("app.advice", "app.store.trouble", "engine.spec"),
    "app.security": ("app.config", "app.errors", "engine.spec.documents"),
    "app.numbers": (),
    "app.round_table": ("engine.records",),
    "app.store": ("app.store", "app.config", "app.numbers", "engine.spec", "engine.records"),
    "app.views": ("app.views", "app.store", "engine.records"),
    "app.protocol": ("app.errors", "app.security", "engine.spec"),
    "app.queue": ("app.config",),
    "app.storage": (),
    "app.rehearsals": ("app.config", "app.errors", "engine.catalogue", "engine.spec"),
    "app.rehearsal_child": ("app.advice", "engine.catalogue", "engine.spec"),
    "app.tex": (),
    "app.events": ("app.config", "app.numbers", "app.store", "app.views", "engine.records"),
    "app.backup": ("app.config", "app.storage", "app.store"),
    "app.disk": ("app.config", "app.storage", "app.store.trouble"),
    "app.reconciler": ("app.config", "app.disk", "app.events", "app.queue", "app.storage", "app.store"),
    "app.sweeps": ("app.store.plan", "engine.spec", "engine.catalogue", "engine.spec.documents", "engine.spec.frozen"),
    "app.sweep_table": (
        "app.store",
        "app.views",
        "app.tex",
        "app.comparison.groups",
        "app.comparison.palette",
        "engine.records",
    ),
    "app.webhooks": ("app.config", "app.store"),
    "app.client": (),
    "app.starter": (),
    "app.doctor": ("app.config", "app.store", "engine.catalogue", "engine.vision"),
    "app.exits": (),
    "app.comparison": ("app.comparison", "app.store", "app.tex", "engine.catalogue", "engine.records"),
    "app.api": ("app.api", "app.comparison", "app.rehearsals", *SHARED, *SWEEPS, *ENGINE_DOOR),
    "app.pages": ("app.pages", "app.comparison", "app.studies", "app.tex", *SHARED, *SWEEPS, *ENGINE_DOOR),
    "app.studies": ("app.studies", *SHARED, *ENGINE_DOOR),
    "app.main": (
        *SHARED,
        *SWEEPS,
        "app.api",
        "app.pages",
        "app.protocol",
        "app.reconciler",
        "app.rehearsals",
        "app.starter",
        "app.studies",
        "engine",
        "workers.embedded",
    ),
    "app.cli": ("app", "engine", "workers"),
    "workers": (
        "workers",
        "app.advice",
        "app.config",
        "app.disk",
        "app.events",
        "app.queue",
        "app.storage",
        "app.store",
        "engine.artifacts",
        "engine.records",
        "engine.runtime",
        "engine.spec",
    ),
}
"""The longest matching row holds for a module."""

SERVICE_LIBRARIES = (
    "alembic", "celery", "fastapi", "httpx", "jinja2", "kombu", "redis", "rich", "sqlalchemy", "sqlmodel", "starlette",
    "typer", "uvicorn",
)  # fmt: skip


def row(module: str) -> tuple[str, ...] | None:
    names = [name for name in MAY_IMPORT if (inside(module, name) if name != "app" else module == "app")]
    return MAY_IMPORT[max(names, key=len)] if names else None


def methods() -> dict[str, set[str]]:
    """Each method's module and what of the engine it imports."""
    return {
        name: {imported for imported in imports(path) if inside(imported, "engine")}
        for name, path in modules().items()
        if inside(name, "engine.methods") and name != "engine.methods"
    }


def test_every_module_has_a_place_in_the_table() -> None:
    assert [name for name in modules() if row(name) is None] == []


def test_modules_import_only_what_their_row_of_the_table_allows() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        for imported in sorted(imports(path))
        if inside(imported, *PACKAGES) and not inside(imported, *(row(name) or ())) and imported != name
    ]
    assert wrong == []


def test_the_engine_imports_no_web_queue_or_database_library() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        if inside(name, "engine")
        for imported in imports(path)
        if inside(imported, *SERVICE_LIBRARIES)
    ]
    assert wrong == []


def test_the_engine_names_no_command_and_no_setting_of_the_service() -> None:
    """It says what is missing and how to get it; who offers a command for that knows its name.

    The folder of methods is the one variable of its own.
    """
    wrong = [
        f"{shown(path)}:{number}"
        for name, path in modules().items()
        if inside(name, "engine") and name != "engine.kit.elsewhere"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bfedarena [a-z]|FEDARENA_", line)
    ]
    assert wrong == []


def test_no_method_imports_another_method() -> None:
    wrong = [f"{name} imports {other}" for name, used in methods().items() for other in used & set(methods())]
    assert wrong == []


def test_no_two_methods_share_six_lines() -> None:
    """What methods have in common lives in the patterns and in fit."""
    homes: dict[tuple[str, ...], str] = {}
    shared = set()
    for name in methods():
        text = [line.strip() for line in modules()[name].read_text(encoding="utf-8").splitlines()]
        lines = [line for line in text if re.search(r"\w", line) and not line.startswith(("#", "import ", "from "))]
        for run in zip(*(lines[start:] for start in range(6)), strict=False):
            if (home := homes.setdefault(run, name)) != name:
                shared.add(f"{name} and {home}: {run[0]}")
    assert sorted(shared) == []


def test_nobody_imports_the_command() -> None:
    wrong = [
        name
        for name, path in modules().items()
        if not inside(name, "app.cli") and any(inside(i, "app.cli") for i in imports(path))
    ]
    assert wrong == []


def test_only_the_composition_root_and_the_command_start_embedded_services() -> None:
    importers = {name for name, path in modules().items() if any(inside(i, "workers.embedded") for i in imports(path))}
    assert importers <= {"app.main", "app.cli.service"}


def test_torchvision_comes_through_its_one_door() -> None:
    importers = [name for name, path in modules().items() if any(inside(i, "torchvision") for i in imports(path))]
    assert importers in ([], ["engine.vision"])


@pytest.mark.parametrize("library", ["pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"])
def test_nothing_unpickles_outside_the_restricted_reader(library: str) -> None:
    importers = [name for name, path in modules().items() if any(inside(i, library) for i in imports(path))]
    assert [name for name in importers if not inside(name, "engine.data")] == []
    assert len(importers) <= 1, "one restricted reader is enough"


def test_torch_load_is_never_called() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno}"
        for path in files(".py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr == "load"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    ]
    assert wrong == []


def test_pages_never_build_html_from_text() -> None:
    ours = [path for path in files(".js", ".mjs", under="static") if "vendor" not in path.parts]
    unsafe = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\|\s*safe\b|autoescape\s+false|\beval\("
    )
    wrong = [
        f"{shown(path)}:{number}"
        for path in [*ours, *files(".html", under="templates")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if unsafe.search(line)
    ]
    assert wrong == []


def test_every_module_says_what_it_is_for() -> None:
    scripts = list(files(".py", under="scripts"))
    silent = [shown(path) for path in [*modules().values(), *scripts] if not ast.get_docstring(tree(path))]
    assert silent == []


def test_no_file_names_somebodys_home_folder() -> None:
    home = re.compile(rb"/(?:home|Users)/[a-z][\w.-]*/|/root/")
    vendor = ROOT / "static" / "vendor"
    wrong = [shown(path) for path in files() if vendor not in path.parents and home.search(path.read_bytes())]
    assert [name for name in wrong if name != shown(ROOT / "tests" / "test_architecture.py")] == []


def test_no_file_is_larger_than_one_and_a_half_megabytes() -> None:
    assert [shown(path) for path in files() if path.stat().st_size > 1_500_000] == []
