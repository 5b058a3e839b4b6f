"""`fedarena data`: which data sets are there, fetch one, bring one in from a folder, check one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from app.advice import command, sentence
from app.cli.output import complain, err, say, show
from app.config import Settings
from app.exits import BAD_INPUT, FAILED

data = typer.Typer(name="data", no_args_is_help=True, help="List, fetch, import and verify data sets.")

Name = Annotated[str, typer.Argument(help="Name of the data set, as in a spec.", show_default=False)]


@data.command("ls")
def list_sets() -> None:
    """Show every data set and where it lies."""
    from engine.data.library import list_sets

    root = Settings().data_root
    table = Table("name", "images", "classes", "size", Column("where", overflow="fold"), box=None, pad_edge=False)
    for row in list_sets(root):
        channels, height, width = row.shape
        clients = f", {row.clients} clients" if row.clients else ""
        spec = f"imported, set: {row.name}" if row.imported else row.name
        missing = "" if row.remedy is None else f"missing: {command(row.remedy.name, row.remedy.how)}"
        place = f"{row.location}{clients}" if row.available else f"{row.lacks}; {missing}" if row.lacks else missing
        images = f"{row.found:,} of {row.images:,}" if row.incomplete else f"{row.images:,}"
        table.add_row(spec, images, f"{row.classes}", f"{channels}×{height}×{width}", place)
    say(f"data folder: {root}")
    show(table)


@data.command("get")
def get(name: Name) -> None:
    """Fetch a data set from its publisher; an interrupted download resumes where it stopped."""
    from engine.data import library

    with _told(name), _progress() as report:
        place = library.get(name, Settings().data_root, report)
    say(f"{name} is in {place}")


@data.command("import")
def import_folder(
    name: Name,
    source: Annotated[Path, typer.Option("--from", help="Folder that holds it.", show_default=False)],
    link: Annotated[bool, typer.Option("--link", help="Link the folder instead of copying it.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what was imported under this name.")] = False,
) -> None:
    """Bring in a published data set from a folder, or the clients of a PFLlib or HtFLlib folder."""
    from engine.data import library

    with _told(name), _progress() as report:
        made = library.import_folder(
            name, source.expanduser(), Settings().data_root, report, link=link, replace=replace
        )
    clients = f" at {made.clients} clients" if made.clients else ""
    say(f"{made.images:,} images of {made.classes} classes{clients} are in {made.location}")
    say(f"use it with  dataset: {made.dataset}" + ("  and  partition: {name: imported}" if made.clients else ""))


@data.command("verify")
def verify(name: Name) -> None:
    """Read a whole data set and compare it with what its publisher published."""
    from engine.data import library

    with _told(name), _progress() as report:
        checks = library.verify(name, Settings().data_root, report)
    for check in checks:
        say(f"{'ok  ' if check.passed else 'BAD '} {check.what}: {check.detail}")
    if not all(check.passed for check in checks):
        raise typer.Exit(FAILED)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What can go wrong with a data set is one sentence on stderr, not a traceback."""
    from engine.data.download import FetchError, Unreachable
    from engine.data.errors import DataError, DataPresent

    try:
        yield
    except (DataError, FetchError, ValueError, OSError) as error:
        more = ""
        if isinstance(error, Unreachable):
            more = f" with: {command(name, 'import')}"
        elif isinstance(error, DataPresent):
            more = "; give --replace to put the new one in its place"
        complain(f"fedarena data: {sentence(error)}{more}")
        raise typer.Exit(FAILED if isinstance(error, FetchError) else BAD_INPUT) from None


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
