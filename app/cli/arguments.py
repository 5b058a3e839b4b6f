"""What several commands take: options, files, settings and the plan of a submission."""

import logging
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from app.cli.output import complain, refuse, refuse_all
from app.config import Settings
from app.exits import BAD_INPUT

if TYPE_CHECKING:
    from engine.spec.experiment import ExperimentSpec
    from engine.spec.problems import SpecError

SpecFile = Annotated[Path, typer.Argument(help="The spec as YAML or JSON", metavar="SPEC.yaml")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N")]
Precision = Annotated[str | None, typer.Option(help="float32 or bfloat16")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="Compile training steps")]
Stacked = Annotated[str | None, typer.Option(help="Train clients of one architecture together: auto, on or off")]
Id = Annotated[str, typer.Argument(help="The experiment's id", metavar="ID")]
Ids = Annotated[list[str], typer.Argument(help="Ids of experiments or of sweeps", metavar="ID...")]
Priority = Annotated[int | None, typer.Option(min=-100, max=100, help="Higher ones are taken first")]
StartAfter = Annotated[str | None, typer.Option(help="Not before: 22:00 (the next one, local time) or an ISO time")]
NightlyWindow = Annotated[
    str | None, typer.Option(help="Only in this part of every day, local time unless --zone says: 22:00-08:00")
]
Zone = Annotated[str | None, typer.Option(help="Time zone of the window, as in Europe/Berlin")]
Address = Annotated[str, typer.Option("--address", help="Where FedArena answers; default: what `serve` wrote down")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs")]
Watch = Annotated[bool, typer.Option("--watch", help="Show its progress until it has ended")]

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")


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
        refuse(f"--start-after takes a time like 22:00 or 2030-01-31T22:00, but got {text!r}")


def read_plan(priority: int | None, start_after: str | None, window: str | None, zone: str | None) -> dict[str, Any]:
    """The options of a plan as the client takes them; hours are those of the local clock unless a zone is given."""
    if window is not None and not all(_TIME_OF_DAY.fullmatch(part.strip()) for part in window.partition("-")[::2]):
        refuse(f"--window takes two times like 22:00-08:00, but got {window!r}")
    return {
        "priority": priority,
        "start_after": None if start_after is None else moment(start_after),
        "window": window,
        "zone": zone or datetime.now().astimezone().isoformat()[-6:],
    }


def read_settings(**changes: Any) -> Settings:
    """The settings of the environment with the options given over them."""
    try:
        return Settings(**{key: value for key, value in changes.items() if value is not None})
    except ValidationError as error:
        for item in error.errors():
            if not item["loc"]:
                # a rule between settings: its message names them, and the input is all of them, secrets too
                complain(item["msg"].removeprefix("Value error, "))
                continue
            name = "FEDARENA_" + ".".join(map(str, item["loc"])).upper()
            complain(f"{item['msg']}, but got {item['input']!r}", name)
        raise typer.Exit(BAD_INPUT) from None


def start_log(settings: Settings) -> None:
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("alembic", "celery", "kombu", "httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel("WARNING")


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"cannot read {path}: {error}")


def read_values(path: Path) -> Any:
    """The values of a spec's file, as sweeps are read too."""
    text = read_text(path)
    from engine.spec.problems import SpecError, read_document

    try:
        return read_document(text)
    except SpecError as error:
        refuse(f"{path}: {error}")


def read_spec(path: Path) -> "ExperimentSpec":
    values = read_values(path)
    from engine.spec.experiment import ExperimentSpec
    from engine.spec.problems import SpecError

    try:
        return ExperimentSpec.parse(values)
    except SpecError as error:
        refuse_spec(error)


def refuse_spec(error: "SpecError") -> NoReturn:
    """What is wrong with a spec, and the command that helps where there is one."""
    from app.advice import with_command

    refuse_all((problem.field, problem.message) for problem in map(with_command, error.problems))
