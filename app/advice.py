"""How to get a data set, as a command of this service: the engine says what is missing, not who fetches it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.data.errors import DataMissing, HowToGet, Remedy

if TYPE_CHECKING:  # brings torch
    from engine.spec.problems import Problem


def command(name: str, how: HowToGet) -> str:
    """fedarena data get cifar10."""
    return f"fedarena data get {name}" if how == "fetch" else f"fedarena data import {name} --from FOLDER"


def with_command(problem: "Problem") -> "Problem":
    """The same problem; where a data set is missing, its message names the command that gets it."""
    if problem.remedy is None:
        return problem
    return replace(problem, message=_advised(problem.message, problem.remedy), remedy=None)


def sentence(error: Exception) -> str:
    """What an error says; for a missing data set with the command that gets it."""
    if isinstance(error, DataMissing) and error.remedy is not None:
        return _advised(error.reason, error.remedy)
    return str(error)


def _advised(reason: str, remedy: Remedy) -> str:
    return f"{reason}; {remedy} with: {command(remedy.name, remedy.how)}"
