"""The FedArena that the remote commands talk to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from app.cli.arguments import read_settings
from app.cli.output import complain, refuse_all
from app.exits import BAD_INPUT, FAILED, SERVER_FAILED

if TYPE_CHECKING:
    from app.client import ApiError, FedArena


@contextmanager
def server(address: str) -> Iterator["FedArena"]:
    """The running FedArena. Its refusals are printed in its words; where nobody answers, one line says so."""
    from app.client import ApiError, FedArena, Unreachable

    with FedArena(address or _written_address()) as client:
        try:
            yield client
        except ApiError as error:
            refuse_all(((item.get("field") or "", item["message"]) for item in error.errors), exit_code(error))
        except Unreachable as error:
            complain(str(error))
            raise typer.Exit(FAILED) from None


def exit_code(error: "ApiError") -> int:
    """A server that failed or is too busy is no mistake of who asked."""
    return SERVER_FAILED if error.status >= 500 or error.status == 429 else BAD_INPUT


def _written_address() -> str:
    settings = read_settings()
    file = settings.address_file
    return file.read_text().strip() if file.is_file() else f"http://{settings.host}:{settings.port}"
