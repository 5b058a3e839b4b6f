"""The watchdog: kills a worker's child that is frozen or does not obey a cancel, and gives up what dead ones held."""

import logging
import os
import signal
import threading
import time
from collections import deque
from pathlib import Path

from app.config import Settings
from app.store import orphans
from app.store.database import Database
from workers.pulse import Holding, read_pulses
from workers.watcher import Watcher

log = logging.getLogger(__name__)

TICKS = 20
"""A child whose pulse stood still for so many looks is frozen. Looks are counted, not seconds: when the whole machine
slept, the watchdog slept too."""
TERMINATE_SECONDS, KILL_SECONDS = 60.0, 90.0
"""A cancel that was not obeyed: first a signal that asks, then one that does not."""
PACE_SECONDS = 600.0
"""Rounds a minute are averaged over so long."""


class Watchdog:
    """A thread of the worker's main process. It looks at files and processes only: the database may be locked."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._settings = settings
        self._worker = worker
        self._still: dict[Path, tuple[int, int]] = {}  # last beat, and for how many looks it has been the last
        self._asked: set[tuple[str, int]] = set()
        self._orphaned: list[Holding] = []
        self._lock = threading.Lock()
        self._main = main_pulse(settings, os.getpid())
        self._watcher = Watcher("watchdog", self._watch, settings.watchdog_seconds / TICKS)
        self._rounds: dict[Path, int] = {}
        self._counted = 0

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        self._watcher.stop(5)
        self._main.unlink(missing_ok=True)

    def look(self) -> None:
        """Kill what is frozen, note what the dead held."""
        pulses = read_pulses(self._settings, self._worker)
        self._still = {path: still for path, still in self._still.items() if path in pulses}
        self._count_rounds({path: holding.rounds for path, (holding, _) in pulses.items()})
        for path, (holding, beat) in pulses.items():
            if not is_alive(holding.pid):
                self._bury(path, holding)
                continue
            last, looks = self._still.get(path, (beat, 0))
            looks = looks + 1 if last == beat else 0
            self._still[path] = (beat, looks)
            if looks >= TICKS:
                log.error("process %d is frozen and is killed; it held experiment %s", holding.pid, holding.experiment)
                _kill(holding.pid, signal.SIGKILL)

    def holdings(self) -> list[Holding]:
        return [holding for holding, _ in read_pulses(self._settings, self._worker).values()]

    def rounds(self) -> int:
        """Rounds that the children completed so far."""
        return self._counted

    def settle(self, database: Database) -> None:
        """With the database: let others take what dead children held, and enforce cancels."""
        with self._lock:
            orphaned, self._orphaned = self._orphaned, []
        try:
            if orphaned:
                with database.write() as session:
                    for holding in orphaned:
                        orphans.give_up(session, holding.experiment, holding.fence)
            with database.read() as session:
                unobeyed = orphans.unobeyed(session, self._worker)
        except Exception:
            with self._lock:
                self._orphaned += orphaned
            raise
        self._enforce(unobeyed)

    def _enforce(self, unobeyed: dict[str, tuple[int, float]]) -> None:
        for holding in self.holdings():
            fence, seconds = unobeyed.get(holding.experiment, (0, 0.0))
            if fence != holding.fence:
                continue
            claim = (holding.experiment, fence)
            if seconds > KILL_SECONDS:
                log.error("experiment %s does not obey its cancel; process %d is killed", claim[0], holding.pid)
                _kill(holding.pid, signal.SIGKILL)
            elif seconds > TERMINATE_SECONDS and claim not in self._asked:
                self._asked.add(claim)
                log.warning("experiment %s does not obey its cancel; asking process %d to end", claim[0], holding.pid)
                _kill(holding.pid, signal.SIGTERM)

    def _count_rounds(self, now: dict[Path, int]) -> None:
        self._counted += sum(max(0, count - self._rounds.get(path, 0)) for path, count in now.items())
        self._rounds = now

    def _bury(self, path: Path, holding: Holding) -> None:
        log.warning("process %d died; it held experiment %s", holding.pid, holding.experiment)
        path.unlink(missing_ok=True)
        with self._lock:
            self._orphaned.append(holding)

    def _watch(self) -> None:
        self._main.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._main.touch()
        self.look()


def main_pulse(settings: Settings, pid: int) -> Path:
    """Touched by the worker's main process, for the one who started it."""
    return settings.home / "pulse" / f"main-{pid}"


class Pace:
    """Rounds a minute over the last while: one heartbeat is shorter than most rounds."""

    def __init__(self, seconds: float) -> None:
        self._counts: deque[tuple[float, int]] = deque([(seconds, 0)])

    def after(self, seconds: float, rounds: int) -> float:
        """At this moment so many rounds are complete in all."""
        self._counts.append((seconds, rounds))
        while len(self._counts) > 2 and self._counts[1][0] <= seconds - PACE_SECONDS:
            self._counts.popleft()
        then, before = self._counts[0]
        return 60 * (rounds - before) / max(1.0, seconds - then)


class Stillness:
    """Whether a file stopped being touched, in looks of the one who asks."""

    def __init__(self, path: Path, seconds: float, period: float) -> None:
        self._path = path
        self._looks_allowed = max(1, round(seconds / period))
        self._beat = 0
        self._looks = 0

    def is_too_long(self) -> bool:
        """Ask once a period. A file that never appeared is no sign: the process may still be starting."""
        try:
            beat = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        self._looks = self._looks + 1 if beat == self._beat else 0
        self._beat = beat
        return self._looks >= self._looks_allowed


def is_alive(pid: int) -> bool:
    """Not gone, and no zombie that waits for its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        log.debug("process %d is gone already", pid)


def delete_old_pulses(settings: Settings, older_than_seconds: float = 86_400.0) -> None:
    """Remove what workers that were killed long ago left."""
    folder = settings.home / "pulse"
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            if path.is_file() and path.stat().st_mtime < time.time() - older_than_seconds:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue
