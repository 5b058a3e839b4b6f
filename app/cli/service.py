"""Commands of whoever runs a FedArena: serve, worker, backup, doctor."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.arguments import AsJson, Compile, Precision, Stacked, read_settings, start_log
from app.cli.output import out, print_json, refuse, say, show
from app.config import BindRefused, HomeUnusable, check_bind
from app.exits import FAILED, OK


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
    settings = read_settings(host=host, port=port)
    start_log(settings)
    try:
        check_bind(settings.host)
    except BindRefused as reason:
        refuse(str(reason))
    from app.main import serve as serve_all
    from app.store.database import DatabaseUnusable
    from workers.embedded import AlreadyServing

    def ready(address: str) -> None:
        out.print(f"FedArena is ready: [bold]{address}[/bold]   (Ctrl-C stops it)", highlight=False)

    try:
        code = serve_all(settings, slots=workers, worker=not no_worker, ready=ready)
    except (AlreadyServing, DatabaseUnusable, HomeUnusable) as reason:
        refuse(str(reason))
    except OSError as error:
        if error.filename is not None:
            refuse(f"{error.filename} cannot be used: {error.strerror}")
        refuse(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}")
    say("FedArena has stopped.")
    raise typer.Exit(code)


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
    settings = read_settings(device=device, precision=precision, compile=compile, stacked=stacked, threads=threads)
    if slots != "auto" and not (slots.isdecimal() and 1 <= int(slots) <= 256):
        refuse(f"--slots takes auto or a number from 1 to 256, but got {slots!r}")
    start_log(settings)
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
        refuse(str(reason))
    raise typer.Exit(code)


def backup(
    target: Annotated[Path, typer.Argument(help="A new folder, to be used as FEDARENA_HOME", metavar="DEST")],
) -> None:
    """Copy database and checkpoints while everything runs (SQLite)."""
    settings = read_settings()
    start_log(settings)
    from app.backup import BackupRefused, back_up
    from app.store.database import DatabaseUnusable

    try:
        copied = back_up(settings, target.absolute())
    except (BackupRefused, DatabaseUnusable) as reason:
        refuse(str(reason))
    except OSError as error:
        refuse(f"cannot write to {target}: {error}")
    say(f"{copied.folder}: {copied.experiments} experiments, {copied.bytes / 1e6:.1f} MB")
    if copied.without_checkpoint:
        say(f"{copied.without_checkpoint} of them will start again: their checkpoints changed too quickly")


def doctor(as_json: AsJson = False) -> None:
    """Tell which parts are real, which fall back, and why."""
    settings = read_settings()
    from app.doctor import examine
    from workers.embedded import try_broker

    findings = examine(settings, try_broker)
    if as_json:
        print_json([finding.__dict__ for finding in findings])
    else:
        marks = {"ok": "[green]ok[/green]", "fallback": "[yellow]fallback[/yellow]", "missing": "[red]missing[/red]"}
        table = Table("part", "", "what")
        for finding in findings:
            table.add_row(finding.part, marks[finding.status], escape(finding.text))
        show(table)
    raise typer.Exit(FAILED if any(f.status == "missing" and f.needed for f in findings) else OK)
