"""Worker processes, one for each device: started, watched, started again when they die or freeze, and stopped."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from app.config import Settings
from workers import machine
from workers.job import CORES_VARIABLE, SLOTS_VARIABLE
from workers.watchdog import Stillness, main_pulse

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
LONGEST_BACKOFF = 30.0
STEADY_SECONDS = 60.0
"""A worker that lived so long starts again without a delay."""
KILL_SECONDS = 15.0
"""Beyond the grace period a worker gets this long before it is killed."""
LOOK_SECONDS = 0.5


def dies_with_parent() -> Callable[[], None] | None:
    """For a child on Linux: get SIGTERM when the process that started it is gone, however it went."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return prepare


def ask_for_sigterm() -> None:
    """For this process on Linux: be told of its parent's end by SIGTERM, whatever was asked for before."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class WorkerProcess:
    """One worker in a process group of its own. Its methods belong to the thread that started it, `ask` to anybody."""

    def __init__(self, settings: Settings, slots: int, cores: int) -> None:
        self._settings = settings
        self._slots = slots
        self.cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._backoff = self._start_at = 0.0
        self._asked_pid = 0
        self._stillness: Stillness | None = None

    def start(self) -> None:
        shares = {SLOTS_VARIABLE: str(self._slots), CORES_VARIABLE: str(self.cores)}
        environment = {**os.environ, **self._settings.environment(), **shares}
        root = str(Path(__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.launch"],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal reaches the one who started it alone
            preexec_fn=dies_with_parent(),
        )
        self._started = time.monotonic()
        self._start_at = 0.0
        pulse = main_pulse(self._settings, self._process.pid)
        pulse.unlink(missing_ok=True)
        self._stillness = Stillness(pulse, self._settings.watchdog_seconds, LOOK_SECONDS)

    def look(self) -> None:
        """Once every LOOK_SECONDS: kill it when it is frozen, start it again when it died."""
        if self._process is None or self._stillness is None:
            return
        if self._stillness.is_too_long():
            log.error("worker process %d is frozen and is killed", self._process.pid)
            self._kill_group()
        if self._process.poll() is None:
            return
        if not self._start_at:
            if time.monotonic() - self._started > STEADY_SECONDS:
                self._backoff = 0.0
            self._kill_group()  # what it left behind
            code = self._process.returncode
            log.warning("the worker ended with code %d and is started again in %.0f s", code, self._backoff)
            self._start_at = time.monotonic() + self._backoff
            self._backoff = min(max(1.0, 2 * self._backoff), LONGEST_BACKOFF)
        if time.monotonic() >= self._start_at:
            self.start()

    def ask(self) -> None:
        """Let it drain. Safe in a signal handler."""
        process = self._process
        if process is not None and process.pid != self._asked_pid:
            self._asked_pid = process.pid  # once: Celery takes a second signal for impatience
            process.terminate()

    def wait(self) -> None:
        """After `ask`: until it is gone with all its children."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=self._settings.grace_seconds + KILL_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            log.warning("the worker did not stop in time and is killed; its experiments will be taken up again")
        self._kill_group()
        self._process.wait()

    def _kill_group(self) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # the worker, or what it left behind
        except ProcessLookupError:
            log.debug("the worker and its children are gone")
        main_pulse(self._settings, self._process.pid).unlink(missing_ok=True)


def fleet(settings: Settings, places: Sequence[tuple[str, int]]) -> list[WorkerProcess]:
    """A worker for each device and its slots, not started yet. They divide the cores of the machine by their slots."""
    cores, slots_of_all = machine.cores(), sum(slots for _, slots in places)
    return [
        WorkerProcess(settings.model_copy(update={"device": device}), slots, max(1, cores * slots // slots_of_all))
        for device, slots in places
    ]


def work_on(settings: Settings, places: Sequence[tuple[str, int]]) -> int:
    """A worker for each device and its slots, until SIGTERM or Ctrl-C; returns the exit code."""
    workers = fleet(settings, places)
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        for worker in workers:
            worker.ask()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    for worker in workers:
        worker.start()
    while not stopping.wait(LOOK_SECONDS):
        for worker in workers:
            worker.look()
    for worker in workers:
        worker.ask()  # also one that was started again just then
        worker.wait()
    return 0
