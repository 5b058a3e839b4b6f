"""What the commands print: results to stdout, refusals and trouble to stderr, and the exit codes that go with them."""

import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.exits import BAD_INPUT

UNCUT = 250
"""Width in characters of a table that is written to no terminal."""
out = Console()
err = Console(stderr=True)


def say(text: str) -> None:
    """One line of the result. It is never wrapped, so that a pipe gets it whole."""
    out.print(escape(text), highlight=False, soft_wrap=True)


def complain(text: str, field: str = "") -> None:
    """One line on stderr, behind the field it is about."""
    err.print((f"[red]{escape(field)}[/red]: " if field else "") + escape(text), highlight=False, soft_wrap=True)


def refuse(message: str) -> NoReturn:
    """The request cannot be carried out as it was given."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def refuse_all(problems: Iterable[tuple[str, str]], code: int = BAD_INPUT) -> NoReturn:
    """A line for each problem, given as its field and its message."""
    for field, message in problems:
        complain(message, field)
    raise typer.Exit(code)


def show(table: Table) -> None:
    """As wide as the terminal; in a pipe or a file as wide as it must be, so that nothing is cut."""
    (out if out.is_terminal else Console(width=UNCUT)).print(table)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
