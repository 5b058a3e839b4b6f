"""Jobs in processes of their own that die at a chosen point of a round, or tell what has reached the disk."""

import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

import engine.runtime.checkpoint
from app.config import Settings
from app.store import rounds
from engine.runtime.run import Run  # noqa: F401 imported before the fork, which saves each process torch's seconds
from workers.job import Job, run_next

POINTS = (
    "before write", "in write", "after write", "before fsync", "after fsync", "before rename", "after rename",
    "before BEGIN", "after BEGIN", "before INSERT", "before COMMIT", "after COMMIT", "before unlink", "after unlink",
)  # fmt: skip
"""A checkpoint is written, the round is stored, old checkpoints are removed."""


def start(work: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """In a process forked from one that has imported this module and done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=work, args=arguments)
    process.start()
    return process


def run(settings: Settings, owner: str) -> None:
    assert run_next(settings, owner) is not None


def run_with_little_memory(settings: Settings, owner: str, megabytes: int) -> None:
    """So much more than the process has already; the allocator is refused the rest."""
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = here + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    run(settings, owner)


def run_and_die(settings: Settings, owner: str, point: str, passes: int) -> None:
    """Killed, as by the kernel, when it comes to the point for the so-manieth time."""
    left = [passes]

    def at(where: str) -> bool:
        left[0] -= where == point
        return where == point and left[0] == 0

    def here(where: str) -> None:
        if at(where):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, name: str, what: tuple[str, str], *, of: Callable[..., bool] = lambda *_: True) -> None:
        original = getattr(owner, name)

        def deadly(*arguments: Any, **options: Any) -> Any:
            if not of(*arguments):
                return original(*arguments, **options)
            here(what[0])
            done = original(*arguments, **options)
            here(what[1])
            return done

        setattr(owner, name, deadly)

    def half(path: Path, content: bytes) -> int:
        if at("in write"):
            write(path, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(path, content)

    write = Path.write_bytes
    Path.write_bytes = half  # type: ignore[assignment, method-assign]
    around(Path, "write_bytes", ("before write", "after write"), of=_is_checkpoint)
    around(Path, "rename", ("before rename", "after rename"), of=_is_checkpoint)
    around(Path, "unlink", ("before unlink", "after unlink"), of=_is_checkpoint)
    around(os, "fsync", ("before fsync", "after fsync"))
    around(rounds, "commit_round", ("after BEGIN", "before COMMIT"))
    around(Job, "_hand_in", ("before BEGIN", "after COMMIT"))

    @event.listens_for(Engine, "before_cursor_execute")
    def look(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO round"):
            here("before INSERT")

    run(settings, owner)


def _is_checkpoint(path: Path, *_: Any) -> bool:
    return "checkpoints" in path.parts


def run_and_tell(settings: Settings, owner: str) -> None:
    """Keeps a list of the checkpoint files that a power cut would leave, as far as their owner made sure of it."""
    sync = engine.runtime.checkpoint._sync

    def noted(path: Path) -> None:
        sync(path)
        if path.is_dir():  # the names in it are on the disk; what they name was synced before it was renamed
            part = settings.home / "durable.tmp"
            part.write_text(json.dumps([file.name for file in path.iterdir()]))
            part.rename(settings.home / "durable.json")

    engine.runtime.checkpoint._sync = noted
    run(settings, owner)
