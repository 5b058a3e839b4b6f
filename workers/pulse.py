"""The pulse: a file by which a worker's child shows that it lives and what it holds. It needs no database."""

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from app.config import Settings
from workers.watcher import Watcher

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0


@dataclass(frozen=True)
class Holding:
    """What a child works on."""

    pid: int
    experiment: str
    fence: int
    rounds: int = 0  # handed in under this claim
    device_memory: tuple[int, int] | None = None  # bytes free and total


def pulse_folder(settings: Settings, worker: str) -> Path:
    return settings.home / "pulse" / hashlib.sha256(worker.encode()).hexdigest()[:32]


class Pulse:
    """The child's side: a thread touches the file, and a stopped process does not."""

    def __init__(self, settings: Settings, worker: str, experiment: str, fence: int) -> None:
        self._path = pulse_folder(settings, worker) / f"{os.getpid()}-{experiment}.json"
        self._holding = Holding(os.getpid(), experiment, fence)
        self._written = self._holding
        self._watcher = Watcher("pulse", self._beat, BEAT_SECONDS)

    def start(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write()
        self._watcher.start()

    def note(self, *, rounds: int, device_memory: tuple[int, int] | None = None) -> None:
        """After a round."""
        self._holding = Holding(self._holding.pid, self._holding.experiment, self._holding.fence, rounds, device_memory)

    def stop(self) -> None:
        """Also where it could not start."""
        self._watcher.stop(5)
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:  # a dead process's file is removed by the watchdog
            log.debug("the pulse stays: %s", error)

    def _beat(self) -> None:
        os.utime(self._path)  # needs no room on the disk, and counts as a beat
        if (holding := self._holding) != self._written:
            self._write()
            self._written = holding

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(asdict(self._holding)))
            temporary.rename(self._path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def read_pulses(settings: Settings, worker: str) -> dict[Path, tuple[Holding, int]]:
    """The files of a worker's children: what each holds, and the time of its last beat."""
    found: dict[Path, tuple[Holding, int]] = {}
    folder = pulse_folder(settings, worker)
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            values = json.loads(path.read_text())
            memory = values.pop("device_memory")
            holding = Holding(**values, device_memory=None if memory is None else (memory[0], memory[1]))
            found[path] = (holding, path.stat().st_mtime_ns)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # gone meanwhile, or not one of ours
    return found
