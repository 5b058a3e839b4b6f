"""The fedarena command. Heavy parts are imported where they are used, so that help and small commands are quick."""

import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from app.cli_data import data
from app.config import BindRefused, HomeUnusable, Settings, check_bind
from app.exits import BAD_INPUT, DIVERGED, FAILED, INTERRUPTED, OK, SERVER_FAILED

if TYPE_CHECKING:
    from app.client import ApiError, FedArena
    from engine.records import RoundRecord
    from engine.runtime.run import Run
    from engine.spec.experiment import ExperimentSpec

app = typer.Typer(
    help="Experiments in federated learning: a dashboard, a queue, workers.", no_args_is_help=True, add_completion=False
)
out = Console()
UNCUT = 250
"""Characters of a line that is written to no terminal."""
err = Console(stderr=True)

SpecFile = Annotated[Path, typer.Argument(help="The spec as YAML or JSON", metavar="SPEC.yaml")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N")]
Precision = Annotated[str | None, typer.Option(help="float32 or bfloat16")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="Compile training steps")]
Stacked = Annotated[str | None, typer.Option(help="Train clients of one architecture together: auto, on or off")]
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")
Ids = Annotated[list[str], typer.Argument(help="Ids of experiments or of sweeps", metavar="ID...")]
Priority = Annotated[int | None, typer.Option(min=-100, max=100, help="Higher ones are taken first")]
StartAfter = Annotated[str | None, typer.Option(help="Not before: 22:00 (the next one, local time) or an ISO time")]
NightlyWindow = Annotated[
    str | None, typer.Option(help="Only in this part of every day, local time unless --zone says: 22:00-08:00")
]
Zone = Annotated[str | None, typer.Option(help="Time zone of the window, as in Europe/Berlin")]
Address = Annotated[str, typer.Option("--address", help="Where FedArena answers; default: what `serve` wrote down")]


def main() -> None:
    """The entry point in pyproject.toml."""
    app()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; only this machine's own is accepted")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port; the next free one if taken")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Experiments at once on each device; default: a core each, if memory allows"),
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the dashboard; workers run elsewhere")] = False,
) -> None:
    """Start dashboard, broker and worker; Ctrl-C stops them all."""
    settings = _settings(host=host, port=port)
    _log(settings)
    try:
        check_bind(settings.host)
    except BindRefused as reason:
        _refuse(str(reason))
    from app.main import serve as serve_all
    from app.store.database import DatabaseUnusable
    from workers.embedded import AlreadyServing

    def ready(address: str) -> None:
        out.print(f"FedArena is ready: [bold]{address}[/bold]   (Ctrl-C stops it)", highlight=False)

    try:
        code = serve_all(settings, slots=workers, worker=not no_worker, ready=ready)
    except (AlreadyServing, DatabaseUnusable, HomeUnusable) as reason:
        _refuse(str(reason))
    except OSError as error:
        if error.filename is not None:
            _refuse(f"{error.filename} cannot be used: {error.strerror}")
        _refuse(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}")
    out.print("FedArena has stopped.")
    raise typer.Exit(code)


@app.command()
def worker(
    slots: Annotated[str, typer.Option(help="Experiments at once on each device: a number, or auto")] = "1",
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, cuda:N, or several with commas: a process for each")
    ] = None,
    precision: Precision = None,
    compile: Compile = None,
    stacked: Stacked = None,
    threads: Annotated[int | None, typer.Option(min=0, max=1024, help="Threads of one experiment; 0: share")] = None,
) -> None:
    """Run experiments from the queue until Ctrl-C or SIGTERM."""
    settings = _settings(device=device, precision=precision, compile=compile, stacked=stacked, threads=threads)
    if slots != "auto" and not (slots.isdecimal() and 1 <= int(slots) <= 256):
        _refuse(f"--slots takes auto or a number from 1 to 256, but got {slots!r}")
    _log(settings)
    from app.store.database import DatabaseUnusable
    from workers import machine
    from workers.device import DeviceUnusable
    from workers.fleet import work_on
    from workers.launch import work

    places = [
        (name, machine.slots_for(name) if slots == "auto" else int(slots)) for name in machine.devices(settings.device)
    ]
    try:
        if len(places) == 1:
            [(name, count)] = places
            code = work(settings.model_copy(update={"device": name}), count)
        else:
            code = work_on(settings, places)
    except (DatabaseUnusable, DeviceUnusable, HomeUnusable) as reason:
        _refuse(str(reason))
    raise typer.Exit(code)


@app.command()
def run(
    spec_file: SpecFile,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for result.json, rounds.csv and checkpoints")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; default: all cores")] = None,
    device: Device = None,
    precision: Precision = None,
    compile: Compile = None,
    stacked: Stacked = None,
    weights: Annotated[
        list[Path] | None, typer.Option("--weights", help="A weights file that models.pretrained names; repeatable")
    ] = None,
    features: Annotated[Path | None, typer.Option("--features", help="Write features and their t-SNE here")] = None,
    save_weights: Annotated[Path | None, typer.Option("--save-weights", help="Write the trained networks here")] = None,
) -> None:
    """Run a spec here and now, without any service. With --out, a run that was killed goes on where it stopped."""
    settings = _settings(device=device, precision=precision, compile=compile, stacked=stacked, threads=threads)
    spec = _read_spec(spec_file)
    from engine import catalogue
    from engine.runtime.device import DeviceMemoryError, DeviceUnavailable
    from engine.runtime.journal import Journal, OtherExperiment
    from engine.runtime.run import Diverged, Run
    from engine.spec.problems import SpecError
    from workers import machine

    try:
        shelf = _shelf(weights or [])
        catalogue.check(spec, settings.data_root, shelf.__getitem__)
    except SpecError as error:
        _refuse_spec(error.problems)
    records: list[RoundRecord] = []
    code = OK
    options: dict[str, Any] = {
        "data_root": settings.data_root,
        "threads": settings.threads or machine.cores(),
        **settings.compute,
        "weights": shelf.__getitem__,
    }
    if out_dir is not None:
        _make_folder(out_dir)
    try:
        if out_dir is None:
            job = Run(spec, **options)
            rounds = job.rounds()
        else:
            job, rounds = Journal(out_dir, spec).run(**options)
    except (OtherExperiment, DeviceUnavailable) as error:
        _refuse(str(error))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[accuracy]}"), console=err) as progress:
        bar = progress.add_task(escape(spec.name or spec.algorithm.name), total=spec.rounds, accuracy="")
        try:
            for record in rounds:
                records.append(record)
                shown = "" if record.accuracy is None else f"accuracy {record.accuracy:.1%}"
                progress.update(bar, completed=record.round, accuracy=shown)
        except Diverged as error:
            err.print(f"[red]diverged:[/red] {escape(str(error))}; try a smaller learning rate")
            code = DIVERGED
        except DeviceMemoryError as error:
            err.print(escape(str(error)), highlight=False, soft_wrap=True)
            code = FAILED
        except OSError as error:
            err.print(escape(f"stopped, a file cannot be read or written: {error}"), highlight=False, soft_wrap=True)
            code = FAILED
        except KeyboardInterrupt:
            err.print("stopped; the rounds so far are kept")
            code = INTERRUPTED
    if out_dir is not None:
        try:
            _write_result(out_dir, spec, job, records)
        except OSError as error:
            err.print(escape(f"cannot write the result to {out_dir}: {error}"), highlight=False, soft_wrap=True)
            code = code or FAILED
    if code == OK:
        for kind, target in (("features", features), ("weights", save_weights)):
            if target is not None:
                _write_artifact(job, kind, target)
    _summary(spec, job, records, out_dir)
    raise typer.Exit(code)


@app.command()
def submit(
    spec_file: SpecFile,
    watch_it: Annotated[bool, typer.Option("--watch", help="Show its rounds until it has ended")] = False,
    priority: Priority = None,
    start_after: StartAfter = None,
    window: NightlyWindow = None,
    zone: Zone = None,
    stop_target: Annotated[float | None, typer.Option(help="Stop when this accuracy is reached")] = None,
    stop_patience: Annotated[
        int | None, typer.Option(help="Stop when so many rounds brought no higher accuracy")
    ] = None,
    stop_min_gain: Annotated[float | None, typer.Option(help="What counts as higher, with --stop-patience")] = None,
    address: Address = "",
) -> None:
    """Queue a spec at the running FedArena."""
    spec = _read_document(spec_file)
    if not isinstance(spec, dict):
        _refuse(f"{spec_file} must hold a spec with fields, but holds {type(spec).__name__}")
    with _client(address) as client:
        experiment = _ask(
            client.submit,
            spec,
            **_plan(priority, start_after, window, zone),
            stop_target=stop_target,
            stop_patience=stop_patience,
            stop_min_gain=stop_min_gain,
        )
        out.print(
            f"{experiment['id']}  {client.address}/experiments/{experiment['id']}", highlight=False, soft_wrap=True
        )
        if watch_it:
            raise typer.Exit(_watch(client, experiment["id"]))


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep as YAML or JSON", metavar="SWEEP.yaml")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would run and cost")] = False,
    watch_it: Annotated[bool, typer.Option("--watch", help="Show its progress until it has ended")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs")] = False,
    priority: Priority = None,
    start_after: StartAfter = None,
    window: NightlyWindow = None,
    zone: Zone = None,
    address: Address = "",
) -> None:
    """Queue a sweep, many experiments from one document, at the running FedArena.

    The options of the plan stand above the document; a window in it that names no zone means local time.
    """
    text, plan = _read(file), _plan(priority, start_after, window, zone)
    with _client(address) as client:
        checked = _ask(client.check_sweep, text, rehearse=dry_run, **plan)
        if dry_run or not checked["ok"]:
            if as_json:
                _print_json(checked)
            else:
                _show_check(checked)
            raise typer.Exit(OK if checked["ok"] else BAD_INPUT)
        view = _ask(client.submit_sweep, text, **plan)
        if as_json:
            _print_json(view)
        else:
            out.print(f"{view['id']}  {client.address}/sweeps/{view['id']}", highlight=False, soft_wrap=True)
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
    out.print(f"{', '.join(parts)}; {cost['text']}{traffic}{work}", highlight=False, soft_wrap=True)
    for item in checked["not_applicable"]:
        out.print(f"not applicable: {escape(item['cell'])}: {escape(item['reason'])}", highlight=False, soft_wrap=True)
    for item in checked["refused"]:
        field = f"[red]{escape(item['field'])}[/red]: " if item["field"] else ""
        where = f" ({item['experiments']} experiments, the first: {item['example']})" if item["experiments"] else ""
        err.print(field + escape(item["message"] + where), highlight=False, soft_wrap=True)


def _watch_sweep(client: "FedArena", key: str) -> int:
    from app.client import ApiError, Unreachable

    view: dict[str, Any] = {}
    try:
        for view in client.follow_sweep(key):
            out.print(f"{view['rounds_done']} of {view['rounds_total']} rounds: {_counts(view)}", highlight=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ApiError as error:
        _refuse_answer(error)
    except Unreachable as error:
        err.print(escape(str(error)), highlight=False, soft_wrap=True)
        return FAILED
    table = Table(*view["paths"], "seeds", "best", "final")
    for cell in view["cells"]:
        table.add_row(
            *_values(cell, view["paths"]),
            str((cell["best"] or {"seeds": 0})["seeds"]),
            *map(_spread, (cell["best"], cell["final"])),
        )
    _show(table)
    if view["choices"] is not None:
        _show(_choices(view["choices"]))
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


def _counts(sweep: dict[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sweep["counts"].items())


def _spread(value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    return f"{100 * value['mean']:.2f}" + ("" if value["std"] is None else f" ± {100 * value['std']:.2f}")


@app.command("sweeps")
def list_sweeps(
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For programs")] = False,
    address: Address = "",
) -> None:
    """List sweeps, newest first."""
    with _client(address) as client:
        page = _ask(client.sweeps, limit=limit)
    if as_json:
        _print_json(page["items"])
        return
    table = Table(Column("id", no_wrap=True), "name", "state", "experiments", "rounds")
    for item in page["items"]:
        rounds = f"{item['rounds_done']} / {item['rounds_total']}"
        table.add_row(item["id"], escape(item["name"] or ""), item["state"], _counts(item), rounds)
    _show(table)


def moment(text: str, now: datetime | None = None) -> datetime:
    """The next such time of day here, or the moment an ISO text names; without a zone it is local."""
    now = (now or datetime.now()).astimezone()
    if _TIME_OF_DAY.fullmatch(text):
        hour, minute = map(int, text.split(":"))
        found = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
        if found <= now.replace(tzinfo=None):
            found += timedelta(days=1)
        return found.astimezone()  # by that day's offset, which may be another one
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        _refuse(f"--start-after takes a time like 22:00 or 2030-01-31T22:00, but got {text!r}")


def _plan(priority: int | None, start_after: str | None, window: str | None, zone: str | None) -> dict[str, Any]:
    """The options of a plan as the client takes them; hours are those of the local clock unless a zone is given."""
    if window is not None and not all(_TIME_OF_DAY.fullmatch(part.strip()) for part in window.partition("-")[::2]):
        _refuse(f"--window takes two times like 22:00-08:00, but got {window!r}")
    return {
        "priority": priority,
        "start_after": None if start_after is None else moment(start_after),
        "window": window,
        "zone": zone or datetime.now().astimezone().isoformat()[-6:],
    }


def _for_each(ids: list[str], address: str, action: str, sweep_action: str, **options: Any) -> None:
    """Ask for each id; one that is refused does not keep the others from it."""
    from app.client import ApiError

    code = OK
    with _client(address) as client:
        for key in ids:
            try:
                found = _steer(client, key, (action, sweep_action), options)
            except ApiError as error:
                err.print(escape(f"{key}: {error}"), highlight=False, soft_wrap=True)
                code = max(code, _code_of(error))
                continue
            out.print(f"{found['id']}  {_standing(found)}", highlight=False, soft_wrap=True)
    if code:
        raise typer.Exit(code)


def _steer(client: "FedArena", key: str, actions: tuple[str, str], options: dict[str, Any]) -> Any:
    """An id is that of an experiment or of a sweep; the server knows which."""
    from app.client import ApiError

    for action in actions:
        try:
            return _reach(getattr(client, action), key, **options)
        except ApiError as error:
            if error.status != 404:
                raise
    message = f"there is neither an experiment nor a sweep {key}"
    raise ApiError(404, [{"field": "id", "message": message, "value": key}])


def _standing(item: dict[str, Any]) -> str:
    if "counts" in item:
        return f"sweep, {item['state']}: {_counts(item)}"
    if item["pause"]:
        return f"{item['state']}, will be paused after its round"
    if item["state"] == "paused":
        return f"paused: {escape(item['hold'] or '')}"
    if item["retry_of"]:
        return f"{item['state']}, tries {item['retry_of']} again"
    return f"{item['state']}, priority {item['priority']}"


@app.command()
def pause(ids: Ids, address: Address = "") -> None:
    """Pause experiments, or all of a sweep: queued ones at once, running ones after their present round."""
    _for_each(ids, address, "pause", "pause_sweep")


@app.command()
def resume(ids: Ids, address: Address = "") -> None:
    """Put paused experiments, or all of a sweep, back into the queue."""
    _for_each(ids, address, "resume", "resume_sweep")


@app.command()
def cancel(ids: Ids, address: Address = "") -> None:
    """Cancel experiments, or all of a sweep; their stored rounds stay."""
    _for_each(ids, address, "cancel", "cancel_sweep")


@app.command()
def retry(ids: Ids, address: Address = "") -> None:
    """Queue failed, cancelled or diverged experiments, or those of a sweep, anew with the same spec."""
    _for_each(ids, address, "retry", "retry_sweep")


@app.command()
def extend(
    experiment: Annotated[str, typer.Argument(help="Id of a finished experiment", metavar="ID")],
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Rounds of the new experiment, more or fewer")],
    watch_it: Annotated[bool, typer.Option("--watch", help="Show its rounds until it has ended")] = False,
    address: Address = "",
) -> None:
    """Go on with a finished experiment to more rounds, or read fewer out of it: `fedarena extend ID --rounds 500`."""
    with _client(address) as client:
        found = _ask(client.extend, experiment, rounds)
        key = found["id"]
        out.print(f"{key}  {client.address}/experiments/{key}", highlight=False, soft_wrap=True)
        out.print(escape(found["told"]), highlight=False, soft_wrap=True)
        if watch_it:
            raise typer.Exit(_watch(client, key))


@app.command()
def priority(
    value: Annotated[int, typer.Argument(min=-100, max=100, help="Higher ones are taken first")],
    ids: Ids,
    address: Address = "",
) -> None:
    """Give experiments, or all of a sweep, another priority: `fedarena priority 5 ID`; put -- before a negative one."""
    _for_each(ids, address, "change_queue", "change_sweep_queue", priority=value)


@app.command("log")
def show_log(
    experiment: Annotated[str, typer.Argument(help="The experiment's id", metavar="ID")], address: Address = ""
) -> None:
    """Show what the workers said while they ran an experiment."""
    with _client(address) as client:
        lines = _ask(client.log, experiment)
    for line in lines:
        out.print(escape(f"{line['at']} {line['level']:<7} {line['text']}"), highlight=False, soft_wrap=True)


@app.command("ls")
def list_experiments(
    state: Annotated[str | None, typer.Option(help="Only this state")] = None,
    search: Annotated[str, typer.Option(help="Words in name, tags, algorithm or data set")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For programs")] = False,
    address: Address = "",
) -> None:
    """List experiments, newest first."""
    with _client(address) as client:
        page = _ask(client.experiments, state=state, search=search, limit=limit)
    if as_json:
        _print_json(page["items"])
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
    _show(table)


@app.command()
def watch(
    experiment: Annotated[str, typer.Argument(help="The experiment's id", metavar="ID")], address: Address = ""
) -> None:
    """Show an experiment's rounds as they come, until it has ended."""
    with _client(address) as client:
        raise typer.Exit(_watch(client, experiment))


@app.command()
def artifact(
    experiment: Annotated[str, typer.Argument(help="The experiment's id", metavar="ID")],
    kind: Annotated[str, typer.Argument(help="features, pictures or weights", metavar="KIND")],
    target: Annotated[Path | None, typer.Option("--out", help="File to write; default: its own name, here")] = None,
    settings_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter, such as samples=20; repeatable", metavar="KEY=VALUE")
    ] = None,
    address: Address = "",
) -> None:
    """Let a worker make an artifact of a finished experiment, wait for it and download it."""
    import time

    from engine.spec.problems import SpecError, read_document

    parameters: dict[str, Any] = {}
    for given in settings_ or []:
        key, equals, value = given.partition("=")
        if not equals:
            _refuse(f"--set takes KEY=VALUE, but got {given!r}")
        try:
            parameters[key] = read_document(value)
        except SpecError as error:
            _refuse(f"--set {key}: {error}")
    with _client(address) as client:
        try:
            found = _ask(client.want, experiment, kind, parameters)
            while found["state"] in {"wanted", "running"}:
                time.sleep(1)
                found = _ask(client.artifact, found["id"])
            if found["state"] == "failed":
                err.print(escape(found["error"]), highlight=False, soft_wrap=True)
                raise typer.Exit(FAILED)
            target = target or Path(found["name"])
            target.write_bytes(_ask(client.artifact_file, found["id"]))
        except OSError as error:
            _refuse(f"cannot write {target}: {error.strerror}")
    out.print(f"{target}  sha256 {found['sha256']}", highlight=False, soft_wrap=True)


@app.command()
def checkpoint(
    experiment: Annotated[str, typer.Argument(help="The experiment's id", metavar="ID")],
    target: Annotated[Path | None, typer.Option("--out", help="File to write; default: ID.tar, here")] = None,
    address: Address = "",
) -> None:
    """Download an experiment as it was at its newest checkpoint; `fedarena run` goes on with it without a service."""
    target = target or Path(f"{experiment}.tar")
    with _client(address) as client:
        try:
            _ask(client.checkpoint, experiment, target)
        except OSError as error:
            _refuse(f"cannot write {target}: {error.strerror}")
    out.print(
        f"{target}  go on with: tar xf {target} && fedarena run {experiment}/spec.json --out {experiment}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def catalog(as_json: Annotated[bool, typer.Option("--json", help="Everything, for programs")] = False) -> None:
    """List algorithms, data sets, partitions and model families."""
    settings = _settings()
    from engine.catalogue import catalogue

    known = catalogue(settings.data_root)
    if as_json:
        _print_json(known)
        return
    for title, key in (("Algorithms", "algorithms"), ("Data sets", "datasets"), ("Partitions", "partitions")):
        table = Table("id", "what", title=title, title_justify="left")
        for item in known[key]:
            table.add_row(str(item["id"]), escape(str(item.get("title") or "")))
        _show(table)
    table = Table("id", "members", "parameters (3×32×32, 10 classes)", title="Model families", title_justify="left")
    for family in known["models"]:
        members = family["members"]
        names = ", ".join(member["id"] for member in members)
        table.add_row(family["id"], names, ", ".join(f"{member['parameters']:,}" for member in members))
    _show(table)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A new folder, to be used as FEDARENA_HOME", metavar="DEST")],
) -> None:
    """Copy database and checkpoints while everything runs (SQLite)."""
    settings = _settings()
    _log(settings)
    from app.backup import BackupRefused, back_up
    from app.store.database import DatabaseUnusable

    try:
        copied = back_up(settings, target.absolute())
    except (BackupRefused, DatabaseUnusable) as reason:
        _refuse(str(reason))
    except OSError as error:
        _refuse(f"cannot write to {target}: {error}")
    out.print(f"{copied.folder}: {copied.experiments} experiments, {copied.bytes / 1e6:.1f} MB", highlight=False)
    if copied.without_checkpoint:
        out.print(f"{copied.without_checkpoint} of them will start anew: their checkpoints changed too quickly")


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="For programs")] = False) -> None:
    """Tell which parts are real, which fall back, and why."""
    settings = _settings()
    from app.doctor import examine
    from workers.embedded import try_broker

    findings = examine(settings, try_broker)
    if as_json:
        _print_json([finding.__dict__ for finding in findings])
    else:
        marks = {"ok": "[green]ok[/green]", "fallback": "[yellow]fallback[/yellow]", "missing": "[red]missing[/red]"}
        table = Table("part", "", "what")
        for finding in findings:
            table.add_row(finding.part, marks[finding.status], escape(finding.text))
        _show(table)
    raise typer.Exit(FAILED if any(f.status == "missing" and f.needed for f in findings) else OK)


def _settings(**changes: Any) -> Settings:
    try:
        return Settings(**{key: value for key, value in changes.items() if value is not None})
    except ValidationError as error:
        for item in error.errors():
            if not item["loc"]:
                # a rule between settings: its message names them, and the input is all of them, secrets too
                err.print(escape(item["msg"].removeprefix("Value error, ")), highlight=False, soft_wrap=True)
                continue
            name = "FEDARENA_" + ".".join(map(str, item["loc"])).upper()
            err.print(f"[red]{name}[/red]: {escape(item['msg'])}, but got {escape(repr(item['input']))}")
        raise typer.Exit(BAD_INPUT) from None


def _log(settings: Settings) -> None:
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("alembic", "celery", "kombu", "httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel("WARNING")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(f"cannot read {path}: {error}")


def _read_document(path: Path) -> Any:
    """The values of a spec's file, as sweeps are read too."""
    text = _read(path)
    from engine.spec.problems import SpecError, read_document

    try:
        return read_document(text)
    except SpecError as error:
        _refuse(f"{path}: {error}")


def _read_spec(path: Path) -> "ExperimentSpec":
    document = _read_document(path)
    from engine.spec.experiment import ExperimentSpec
    from engine.spec.problems import SpecError

    try:
        return ExperimentSpec.parse(document)
    except SpecError as error:
        _refuse_spec(error.problems)


def _refuse(message: str) -> NoReturn:
    err.print(escape(message), highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def _refuse_spec(problems: Iterable[Any]) -> NoReturn:
    _refuse_errors([{"field": problem.field, "message": problem.message} for problem in problems])


def _refuse_answer(error: "ApiError") -> NoReturn:
    _refuse_errors(error.errors, _code_of(error))


def _code_of(error: "ApiError") -> int:
    """A server that failed or is too busy is no mistake of who asked."""
    return SERVER_FAILED if error.status >= 500 or error.status == 429 else BAD_INPUT


def _refuse_errors(errors: list[dict[str, Any]], code: int = BAD_INPUT) -> NoReturn:
    for item in errors:
        field = f"[red]{escape(item['field'])}[/red]: " if item.get("field") else ""
        err.print(field + escape(item["message"]), highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def _show(table: Table) -> None:
    """As wide as the terminal; in a pipe or a file as wide as it must be, so that nothing is cut."""
    (out if out.is_terminal else Console(width=UNCUT)).print(table)


def _client(address: str) -> "FedArena":
    from app.client import FedArena

    settings = _settings()
    if not address:
        written = settings.address_file
        address = written.read_text().strip() if written.is_file() else f"http://{settings.host}:{settings.port}"
    return FedArena(address)


def _ask(call: Any, *arguments: Any, **options: Any) -> Any:
    """A call of the client; what the server refuses is said in its words."""
    from app.client import ApiError

    try:
        return _reach(call, *arguments, **options)
    except ApiError as error:
        _refuse_answer(error)


def _reach(call: Any, *arguments: Any, **options: Any) -> Any:
    """A call of the client; nobody there is a failure with one clear line."""
    from app.client import Unreachable

    try:
        return call(*arguments, **options)
    except Unreachable as error:
        err.print(escape(str(error)), highlight=False, soft_wrap=True)
        raise typer.Exit(FAILED) from None


def _watch(client: "FedArena", experiment: str) -> int:
    from app.client import FINISHED, ApiError, Unreachable

    codes = {"finished": OK, "diverged": DIVERGED}
    try:
        for event in client.watch(experiment):
            if event.kind == "round":
                accuracy = event.data["accuracy"]
                shown = "" if accuracy is None else f"accuracy {accuracy:.1%}"
                out.print(f"round {event.data['round']:>5}  {shown}", highlight=False)
            elif event.data["state"] in FINISHED:
                out.print(event.data["state"])
                if event.data["error"]:
                    err.print(escape(event.data["error"]["reason"]), highlight=False, soft_wrap=True)
                return codes.get(event.data["state"], FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ApiError as error:
        _refuse_answer(error)
    except Unreachable as error:
        err.print(escape(str(error)), highlight=False, soft_wrap=True)
    return FAILED


def _make_folder(folder: Path) -> None:
    """Before hours of training, which would have nowhere to go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _refuse(f"--out must be a folder that can be written, but {folder}: {error.strerror or error}")


def _shelf(files: list[Path]) -> dict[str, bytes]:
    """Weights files by their checksum."""
    import hashlib

    shelf = {}
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            _refuse(f"cannot read {file}: {error.strerror}")
        shelf[hashlib.sha256(content).hexdigest()] = content
    return shelf


def _write_artifact(run: "Run", kind: str, target: Path) -> None:
    """The first file under the name given, further ones beside it."""
    import hashlib

    from engine.artifacts import parse_request

    try:
        for number, file in enumerate(parse_request(run.spec, kind, {}).make(run)):
            place = target if number == 0 else target.with_suffix(Path(file.name).suffix)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
            out.print(f"{place}  sha256 {hashlib.sha256(file.content).hexdigest()}", highlight=False, soft_wrap=True)
    except (OSError, ValueError) as error:
        err.print(f"no {kind}: {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(FAILED) from None


def _write_result(folder: Path, spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]") -> None:
    from app.store.numbers import finite
    from app.store.table_files import csv_lines
    from engine.records import headline

    rounds = [finite(record.model_dump()) for record in records]
    result = {
        "spec": spec.canonical(),
        "fingerprint": spec.fingerprint(),
        "partition_fingerprint": job.partition_fingerprint,
        "environment": job.environment,
        "rounds": rounds,
        "headline": headline(records).model_dump(),
        "majority_share": job.majority_share,
        "no_convergence": _not_converged(spec, job, records),
    }
    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    with (folder / "rounds.csv").open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_lines(rounds))


def _not_converged(spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]") -> bool:
    from engine.records import headline, headline_rule, no_convergence

    finished = bool(records) and records[-1].round == spec.rounds
    return finished and no_convergence(headline(records).judged(headline_rule(spec.canonical())), job.majority_share)


def _summary(spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]", folder: Path | None) -> None:
    from engine.records import NO_CONVERGENCE, headline

    numbers = headline(records)
    table = Table(show_header=False, title=escape(spec.name or spec.algorithm.name), title_justify="left")
    table.add_row("algorithm", spec.algorithm.name)
    table.add_row("data set", spec.dataset.name)
    table.add_row("rounds", f"{max(0, len(records) - 1)} of {spec.rounds}")
    if numbers.best_accuracy is not None and numbers.final_accuracy is not None:
        table.add_row("best accuracy", f"{numbers.best_accuracy:.2%} (round {numbers.best_round})")
        table.add_row("final accuracy", f"{numbers.final_accuracy:.2%}")
    if _not_converged(spec, job, records):
        table.add_row("", f"{NO_CONVERGENCE}: {job.majority_share:.2%}")
    if spec.evaluation.protocol == "C" and numbers.final_validation_accuracy is not None:
        table.add_row("final validation accuracy", f"{numbers.final_validation_accuracy:.2%}")
    elif numbers.best_validation_accuracy is not None and numbers.accuracy_at_best_validation is not None:
        where = f"round {numbers.best_validation_round}: {numbers.best_validation_accuracy:.2%} on validation"
        table.add_row("chosen on validation", f"{numbers.accuracy_at_best_validation:.2%} ({where})")
    table.add_row("bytes up", f"{sum(record.bytes_up for record in records):,}")
    table.add_row("bytes down", f"{sum(record.bytes_down for record in records):,}")
    table.add_row("client FLOPs", f"{sum(record.client_flops for record in records):.3g}")
    table.add_row("time", f"{sum(record.seconds for record in records):.1f} s")
    if folder is not None:
        table.add_row("written", escape(str(folder / "result.json")))
    _show(table)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


app.add_typer(data, name="data")

if __name__ == "__main__":
    main()
