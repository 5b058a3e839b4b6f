"""The fedarena command: a module for each group of commands, listed here in the order of the help.

Heavy parts are imported where they are used, so that help and small commands are quick.
"""

import sys

import typer

from app.cli import local, remote, service, sweeps
from app.cli.data import data
from app.cli.output import complain
from app.exits import BAD_INPUT

app = typer.Typer(
    help="Experiments in federated learning: a dashboard, a queue, workers.", no_args_is_help=True, add_completion=False
)
app.command()(service.serve)
app.command()(service.worker)
app.command()(local.run)
app.command()(remote.submit)
app.command()(sweeps.sweep)
app.command("sweeps")(sweeps.list_sweeps)
app.command()(remote.pause)
app.command()(remote.resume)
app.command()(remote.cancel)
app.command()(remote.retry)
app.command()(remote.extend)
app.command()(remote.priority)
app.command("log")(remote.show_log)
app.command("ls")(remote.list_experiments)
app.command()(remote.watch)
app.command()(remote.artifact)
app.command()(remote.checkpoint)
app.command()(local.catalog)
app.command()(service.backup)
app.command()(service.doctor)
app.add_typer(data, name="data")


def main() -> None:
    """The entry point in pyproject.toml."""
    try:
        app()
    except ImportError as error:
        if error.name != "FEDARENA_METHODS":
            raise
        complain(str(error))
        sys.exit(BAD_INPUT)
