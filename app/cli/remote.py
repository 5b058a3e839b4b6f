"""Commands on the experiments of the running FedArena: submit, look, steer, download."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from app.cli.arguments import (
    Address,
    AsJson,
    Id,
    Ids,
    NightlyWindow,
    Priority,
    SpecFile,
    StartAfter,
    Watch,
    Zone,
    read_plan,
    read_values,
)
from app.cli.output import complain, print_json, refuse, say, show
from app.cli.server import exit_code, server
from app.cli.sweeps import counts
from app.exits import DIVERGED, FAILED, INTERRUPTED, OK

if TYPE_CHECKING:
    from app.client import FedArena


def submit(
    spec_file: SpecFile,
    watch_it: Watch = False,
    priority: Priority = None,
    start_after: StartAfter = None,
    window: NightlyWindow = None,
    zone: Zone = None,
    stop_target: Annotated[float | None, typer.Option(help="Stop when this accuracy is reached")] = None,
    stop_patience: Annotated[
        int | None, typer.Option(help="Stop after this many rounds without a higher accuracy")
    ] = None,
    stop_min_gain: Annotated[float | None, typer.Option(help="What counts as higher, with --stop-patience")] = None,
    address: Address = "",
) -> None:
    """Queue a spec at the running FedArena."""
    spec = read_values(spec_file)
    if not isinstance(spec, dict):
        refuse(f"{spec_file} must hold a spec with fields, but holds {type(spec).__name__}")
    with server(address) as client:
        experiment = client.submit(
            spec,
            **read_plan(priority, start_after, window, zone),
            stop_target=stop_target,
            stop_patience=stop_patience,
            stop_min_gain=stop_min_gain,
        )
        say(f"{experiment['id']}  {client.address}/experiments/{experiment['id']}")
        if watch_it:
            raise typer.Exit(_watch(client, experiment["id"]))


def _watch(client: "FedArena", experiment: str) -> int:
    from app.client import FINISHED

    codes = {"finished": OK, "diverged": DIVERGED}
    try:
        for event in client.watch(experiment):
            if event.kind == "round":
                accuracy = event.data["accuracy"]
                shown = "" if accuracy is None else f"accuracy {accuracy:.1%}"
                say(f"round {event.data['round']:>5}  {shown}")
            elif event.data["state"] in FINISHED:
                say(event.data["state"])
                if event.data["error"]:
                    complain(event.data["error"]["reason"])
                return codes.get(event.data["state"], FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return FAILED


def _for_each(ids: list[str], address: str, action: str, sweep_action: str, **options: Any) -> None:
    """Ask for each id; one that is refused does not keep the others from it."""
    from app.client import ApiError

    code = OK
    with server(address) as client:
        for key in ids:
            try:
                found = _steer(client, key, (action, sweep_action), options)
            except ApiError as error:
                complain(f"{key}: {error}")
                code = max(code, exit_code(error))
                continue
            say(f"{found['id']}  {_standing(found)}")
    if code:
        raise typer.Exit(code)


def _steer(client: "FedArena", key: str, actions: tuple[str, str], options: dict[str, Any]) -> Any:
    """An id is that of an experiment or of a sweep; the server knows which."""
    from app.client import ApiError

    for action in actions:
        try:
            return getattr(client, action)(key, **options)
        except ApiError as error:
            if error.status != 404:
                raise
    message = f"there is neither an experiment nor a sweep {key}"
    raise ApiError(404, [{"field": "id", "message": message, "value": key}])


def _standing(item: dict[str, Any]) -> str:
    if "counts" in item:
        return f"sweep, {item['state']}: {counts(item)}"
    if item["pause"]:
        return f"{item['state']}, will be paused after its round"
    if item["state"] == "paused":
        return f"paused: {item['hold'] or ''}"
    if item["retry_of"]:
        return f"{item['state']}, tries {item['retry_of']} again"
    return f"{item['state']}, priority {item['priority']}"


def pause(ids: Ids, address: Address = "") -> None:
    """Pause experiments, or all of a sweep: queued ones at once, running ones after their present round."""
    _for_each(ids, address, "pause", "pause_sweep")


def resume(ids: Ids, address: Address = "") -> None:
    """Put paused experiments, or all of a sweep, back into the queue."""
    _for_each(ids, address, "resume", "resume_sweep")


def cancel(ids: Ids, address: Address = "") -> None:
    """Cancel experiments, or all of a sweep; their stored rounds stay."""
    _for_each(ids, address, "cancel", "cancel_sweep")


def retry(ids: Ids, address: Address = "") -> None:
    """Queue failed, cancelled or diverged experiments, or those of a sweep, again with the same spec."""
    _for_each(ids, address, "retry", "retry_sweep")


def extend(
    experiment: Annotated[str, typer.Argument(help="Id of a finished experiment", metavar="ID")],
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Rounds of the new experiment, more or fewer")],
    watch_it: Watch = False,
    address: Address = "",
) -> None:
    """Continue a finished experiment to more rounds, or read fewer out of it: `fedarena extend ID --rounds 500`."""
    with server(address) as client:
        found = client.extend(experiment, rounds)
        key = found["id"]
        say(f"{key}  {client.address}/experiments/{key}")
        say(found["told"])
        if watch_it:
            raise typer.Exit(_watch(client, key))


def priority(
    value: Annotated[int, typer.Argument(min=-100, max=100, help="Higher ones are taken first")],
    ids: Ids,
    address: Address = "",
) -> None:
    """Give experiments, or all of a sweep, another priority: `fedarena priority 5 ID`; put -- before a negative one."""
    _for_each(ids, address, "change_queue", "change_sweep_queue", priority=value)


def show_log(experiment: Id, address: Address = "") -> None:
    """Show what the workers said while they ran an experiment."""
    with server(address) as client:
        lines = client.log(experiment)
    for line in lines:
        say(f"{line['at']} {line['level']:<7} {line['text']}")


def list_experiments(
    state: Annotated[str | None, typer.Option(help="Only this state")] = None,
    search: Annotated[str, typer.Option(help="Words in name, tags, algorithm or data set")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    as_json: AsJson = False,
    address: Address = "",
) -> None:
    """List experiments, newest first."""
    with server(address) as client:
        page = client.experiments(state=state, search=search, limit=limit)
    if as_json:
        print_json(page["items"])
        return
    table = Table(Column("id", no_wrap=True), "name", "algorithm", "data set", "state", "round", "accuracy")
    for item in page["items"]:
        accuracy = item["headline"] and item["headline"][f"{item['headline_rule']}_accuracy"]
        mark = " (no convergence)" if item["no_convergence"] else ""
        table.add_row(
            item["id"],
            escape(item["name"] or ""),
            item["spec"]["algorithm"]["name"],
            item["spec"]["dataset"]["name"],
            item["state"],
            f"{max(0, item['next_round'] - 1)}/{item['rounds']}",
            "" if accuracy is None else f"{accuracy:.1%}{mark}",
        )
    show(table)


def watch(experiment: Id, address: Address = "") -> None:
    """Show an experiment's rounds as they come, until it has ended."""
    with server(address) as client:
        raise typer.Exit(_watch(client, experiment))


def artifact(
    experiment: Id,
    kind: Annotated[str, typer.Argument(help="features, pictures or weights", metavar="KIND")],
    target: Annotated[Path | None, typer.Option("--out", help="File to write; default: its own name, here")] = None,
    settings_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter, such as samples=20; repeatable", metavar="KEY=VALUE")
    ] = None,
    address: Address = "",
) -> None:
    """Let a worker make an artifact of a finished experiment, wait for it and download it."""
    from engine.spec.problems import SpecError, read_document

    parameters: dict[str, Any] = {}
    for given in settings_ or []:
        key, equals, value = given.partition("=")
        if not equals:
            refuse(f"--set takes KEY=VALUE, but got {given!r}")
        try:
            parameters[key] = read_document(value)
        except SpecError as error:
            refuse(f"--set {key}: {error}")
    with server(address) as client:
        try:
            found = client.want(experiment, kind, parameters)
            while found["state"] in {"wanted", "running"}:
                time.sleep(1)
                found = client.artifact(found["id"])
            if found["state"] == "failed":
                complain(found["error"])
                raise typer.Exit(FAILED)
            target = target or Path(found["name"])
            target.write_bytes(client.artifact_file(found["id"]))
        except OSError as error:
            refuse(f"cannot write {target}: {error.strerror}")
    say(f"{target}  sha256 {found['sha256']}")


def checkpoint(
    experiment: Id,
    target: Annotated[Path | None, typer.Option("--out", help="File to write; default: ID.tar, here")] = None,
    address: Address = "",
) -> None:
    """Download an experiment as it was at its newest checkpoint; `fedarena run` continues it without a service."""
    target = target or Path(f"{experiment}.tar")
    with server(address) as client:
        try:
            client.checkpoint(experiment, target)
        except OSError as error:
            refuse(f"cannot write {target}: {error.strerror}")
    say(f"{target}  continue with: tar xf {target} && fedarena run {experiment}/spec.json --out {experiment}")
