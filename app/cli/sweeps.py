"""Commands on sweeps: many experiments from one document."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from app.cli.arguments import (
    Address,
    AsJson,
    NightlyWindow,
    Priority,
    StartAfter,
    Watch,
    Zone,
    read_plan,
    read_text,
)
from app.cli.output import complain, print_json, say, show
from app.cli.server import server
from app.exits import BAD_INPUT, FAILED, INTERRUPTED, OK

if TYPE_CHECKING:
    from app.client import FedArena


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep as YAML or JSON", metavar="SWEEP.yaml")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would run and cost")] = False,
    watch_it: Watch = False,
    as_json: AsJson = False,
    priority: Priority = None,
    start_after: StartAfter = None,
    window: NightlyWindow = None,
    zone: Zone = None,
    address: Address = "",
) -> None:
    """Queue a sweep, many experiments from one document, at the running FedArena.

    The options of the plan stand above the document; a window in it that names no zone means local time.
    """
    text, plan = read_text(file), read_plan(priority, start_after, window, zone)
    with server(address) as client:
        checked = client.check_sweep(text, rehearse=dry_run, **plan)
        if dry_run or not checked["ok"]:
            if as_json:
                print_json(checked)
            else:
                _show_check(checked)
            raise typer.Exit(OK if checked["ok"] else BAD_INPUT)
        view = client.submit_sweep(text, **plan)
        if as_json:
            print_json(view)
        else:
            say(f"{view['id']}  {client.address}/sweeps/{view['id']}")
        if watch_it:
            raise typer.Exit(_watch_sweep(client, view["id"]))


def _show_check(checked: dict[str, Any]) -> None:
    reused = sum(checked["reused"].values())
    parts = [f"{checked['experiments']} experiments in {checked['cells']} cells", f"{checked['to_run']} to run"]
    parts += [f"{reused} there already"] if reused else []
    parts += [f"{checked['excluded']} excluded"] if checked["excluded"] else []
    cost = checked["cost"]
    traffic = "" if cost["bytes"] is None else f"; {cost['bytes'] / 1e6:,.1f} MB up and down"
    traffic += f" without {cost['unknown_bytes']} never measured" if traffic and cost["unknown_bytes"] else ""
    work = "" if cost["flops"] is None else f"; {cost['flops'] / 1e12:,.3g} TFLOP of training"
    say(f"{', '.join(parts)}; {cost['text']}{traffic}{work}")
    for item in checked["not_applicable"]:
        say(f"not applicable: {item['cell']}: {item['reason']}")
    for item in checked["refused"]:
        where = f" ({item['experiments']} experiments, the first: {item['example']})" if item["experiments"] else ""
        complain(item["message"] + where, item["field"] or "")


def _watch_sweep(client: "FedArena", key: str) -> int:
    view: dict[str, Any] = {}
    try:
        for view in client.follow_sweep(key):
            say(f"{view['rounds_done']} of {view['rounds_total']} rounds: {counts(view)}")
    except KeyboardInterrupt:
        return INTERRUPTED
    table = Table(*view["paths"], "seeds", "best", "final")
    for cell in view["cells"]:
        table.add_row(
            *_values(cell, view["paths"]),
            str((cell["best"] or {"seeds": 0})["seeds"]),
            *map(_spread, (cell["best"], cell["final"])),
        )
    show(table)
    if view["choices"] is not None:
        show(_choices(view["choices"]))
    return OK if view["state"] == "finished" else FAILED


def _values(row: dict[str, Any], paths: list[str]) -> list[str]:
    values = (row["values"].get(path) for path in paths)
    return [escape(value if isinstance(value, str) else json.dumps(value)) for value in values]


def _choices(found: dict[str, Any]) -> Table:
    from app.sweep_table import setting

    heads = ("finished", "chosen on validation", "validation", "test", "chosen on test", "test")
    table = Table(*found["paths"], *heads)
    for group in found["groups"]:
        picked, on_test = group["on_validation"], group["on_test"]
        table.add_row(
            *_values(group, found["paths"]),
            f"{group['finished']} of {group['cells']}",
            escape(f"– ({group['why_not']})" if picked is None else setting(picked["values"])),
            *map(_spread, (group["validation"], picked and picked["accuracy"])),
            escape(setting(on_test["values"])),
            _spread(on_test["accuracy"]),
        )
    return table


def counts(sweep: dict[str, Any]) -> str:
    """How many of its experiments are in each state."""
    return ", ".join(f"{count} {state}" for state, count in sweep["counts"].items())


def _spread(value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    return f"{100 * value['mean']:.2f}" + ("" if value["std"] is None else f" ± {100 * value['std']:.2f}")


def list_sweeps(
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    as_json: AsJson = False,
    address: Address = "",
) -> None:
    """List sweeps, newest first."""
    with server(address) as client:
        page = client.sweeps(limit=limit)
    if as_json:
        print_json(page["items"])
        return
    table = Table(Column("id", no_wrap=True), "name", "state", "experiments", "rounds")
    for item in page["items"]:
        rounds = f"{item['rounds_done']} / {item['rounds_total']}"
        table.add_row(item["id"], escape(item["name"] or ""), item["state"], counts(item), rounds)
    show(table)
