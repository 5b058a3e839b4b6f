"""What no code may do with the rows of the store: rules over the source, so that a mistake of their kind is found."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import files, modules, shown, tree

SEES_DELETED = {
    "app.backup._count": "a copy is complete with them",
    "app.backup._missing": "a copy is complete with them",
    "app.store.artifacts._is_named_elsewhere": "a deleted experiment can be restored, and then needs its files",
    "app.store.artifacts.fail_hopeless": "an artifact may outlive its experiment's deletion",
    "app.store.experiments.get_with_deleted": "says so",
    "app.store.experiments.ids_with_deleted": "says so",
    "app.store.experiments.visible": "begins there and leaves the deleted ones out",
    "app.store.lifecycle.locked_with_deleted": "says so",
    "app.store.pace._measured": "how long it took stays true",
    "app.store.spec_versions.upgrade_specs": "a deleted experiment can be restored, and then runs",
    "app.store.steering.removable": "looks for those deleted long ago",
    "app.store.steering.remove": "looks for those deleted long ago",
    "app.store.sweeps.first": "a sweep always has one",
}
"""Who may begin a query with `with_deleted`, and why."""
BEGINS = {
    "app.store.experiments.with_deleted": "the one start of a query, from which `visible` follows",
    "app.store.changes.changes_after": "open pages must hear of a deletion",
    "app.store.continuing.needed": "one that waits or runs is never deleted",
    "app.store.sweeps.visible": "the one start of a query on sweeps",
}
"""Where a query on the tables of experiments and sweeps may begin."""
DELETABLE = {"Experiment", "Sweep"}
STARTS = {"select", "exists", "aliased", "select_from", "join", "outerjoin", "get", "get_one"}
CONDITIONS = {"where", "filter", "order_by", "group_by", "having"}
OURS = {"visible", "with_deleted"}


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def begun_by(call: ast.Call) -> str:
    """The call at the head of a chain: `select` of `select(…).where(…).limit(1)`."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return name_of(call)


def names_rows(node: ast.AST) -> bool:
    """One of the tables is named, outside of a query that begins as it should."""
    if isinstance(node, ast.Call) and begun_by(node) in OURS:
        return False
    if isinstance(node, ast.Name):
        return node.id in DELETABLE
    return any(names_rows(child) for child in ast.iter_child_nodes(node))


def begins_anew(call: ast.Call) -> bool:
    """A look at the tables that `visible` has not begun."""
    name, arguments = name_of(call), [*call.args, *(keyword.value for keyword in call.keywords)]
    if name in STARTS:
        return any(map(names_rows, arguments[:1] if name in {"join", "outerjoin"} else arguments))
    return name in CONDITIONS and begun_by(call) in {"select", "exists"} and any(map(names_rows, arguments))


def functions(module: str, code: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Every function and method with its full name, and the rest of the module under its own."""
    for statement in code.body:
        if isinstance(statement, ast.ClassDef):
            yield from ((f"{module}.{statement.name}.{getattr(inner, 'name', '')}", inner) for inner in statement.body)
        else:
            yield f"{module}.{getattr(statement, 'name', '')}".rstrip("."), statement


def calls(module: str, code: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for name, statement in functions(module, code):
        yield from ((name, node) for node in ast.walk(statement) if isinstance(node, ast.Call))


def sources() -> dict[str, Path]:
    return {**modules(), **{shown(path): path for path in files(".py", under="scripts")}}


def all_calls() -> Iterator[tuple[str, ast.Call]]:
    for module, path in sources().items():
        yield from calls(module, tree(path))


def test_every_query_on_experiments_and_sweeps_begins_with_what_is_visible() -> None:
    assert {where for where, call in all_calls() if begins_anew(call)} == set(BEGINS)


def test_who_sees_deleted_experiments_is_on_the_list() -> None:
    assert {where for where, call in all_calls() if name_of(call) == "with_deleted"} == set(SEES_DELETED)


@pytest.mark.parametrize(
    "forgotten",
    [
        "select(Experiment)",
        "select(col(Experiment.id)).where(col(Experiment.state) == state)",
        "select(func.count()).select_from(Experiment)",
        "select(func.count()).where(col(Experiment.state) == state)",
        "select(Round).join(Experiment)",
        "exists().where(col(Experiment.sweep) == sweep)",
        "session.get(Experiment, key)",
        "session.get_one(Sweep, key)",
        "session.scalars(select(Sweep).order_by(col(Sweep.id)))",
        "aliased(Experiment)",
        "experiments.visible().where(col(Experiment.id).in_(select(Experiment.id)))",
    ],
)
def test_a_query_that_forgets_the_deleted_ones_is_found(forgotten: str) -> None:
    assert [call for _, call in calls("x", ast.parse(forgotten)) if begins_anew(call)]


@pytest.mark.parametrize(
    "right",
    [
        "experiments.visible().where(col(Experiment.id) == key)",
        "visible(col(Experiment.id), col(Round.seconds)).join(Round, col(Round.experiment) == col(Experiment.id))",
        "select(Artifact).where(col(Artifact.experiment).in_(experiments.visible(col(Experiment.id))))",
        "select(Round).where(col(Round.experiment) == key)",
    ],
)
def test_a_query_that_begins_as_it_should_is_let_through(right: str) -> None:
    assert [call for _, call in calls("x", ast.parse(right)) if begins_anew(call)] == []


def users_of(name: str) -> set[str]:
    """Functions and module bodies that name it, imports apart."""
    return {
        where
        for module, path in sources().items()
        for where, statement in functions(module, tree(path))
        for node in ast.walk(statement)
        if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
    }


def importers_of(module: str, name: str) -> set[str]:
    return {
        where
        for where, path in sources().items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == module and name in {alias.name for alias in node.names}
    }


def test_only_functions_of_locked_rows_take_numbers() -> None:
    """With mypy, which tells a Locked row from any other, no number can be taken before the row is locked."""
    assert importers_of("app.store.tables", "Counter") == {"app.store.changes"}
    takers = {
        name: {ast.unparse(argument.annotation) for argument in function.args.args if argument.annotation}
        for name, function in functions("app.store.changes", tree(modules()["app.store.changes"]))
        if isinstance(function, ast.FunctionDef)
        and any(name_of(node) == "_take" for node in ast.walk(function) if isinstance(node, ast.Call))
    }
    assert users_of("_take") == set(takers)
    assert {name for name, arguments in takers.items() if "Locked" not in arguments} == {
        "app.store.changes.number_new"  # rows that nobody else can see yet
    }


def test_a_row_is_called_locked_where_it_is_locked() -> None:
    made = {where for where, call in all_calls() if name_of(call) == "Locked"}
    cast = {where for where, call in all_calls() if name_of(call) == "cast" and "Locked" in ast.unparse(call)}
    assert made | cast == {"app.store.claims.lock"}
    locking = {where for where, call in all_calls() if name_of(call) == "with_for_update"}
    assert locking == {
        "app.store.artifacts.fail_hopeless",  # artifacts, after the rows of their experiments
        "app.store.claims._locking",
        "app.store.claims.take",
        "app.store.deliveries.write_down",  # sweeps
        "app.store.orphans.expire_leases",  # by id, and takes no number
        "app.store.sweeps._lock",  # the sweep, before its experiments
    }
