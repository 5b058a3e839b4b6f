"""Estimates for the web: rehearsed one by one in a process of their own, for clients that wait in a short line.

The web server neither builds networks nor grows, and a rehearsal that waits takes no thread from other requests.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request

from app.config import Settings
from app.errors import Refusal
from engine.catalogue import Estimate, RoundCost, priced
from engine.spec.experiment import ExperimentSpec

log = logging.getLogger(__name__)

MOST_WAITING = 8
"""Clients in the line; the next one is refused."""
RETRY_SECONDS = 5
REMEMBERED = 512
REMEMBERED_SECONDS = 60.0
"""How long a failure counts that another moment or setting may change: a lack of time or memory."""
SILENCE_SECONDS = 60.0
"""To start and to answer, beyond the time of the rehearsal; then the process is replaced."""
STOP_SECONDS = 2.0

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """An estimate, or in words why there is none."""

    estimate: Estimate | None
    reason: str | None = None
    lasting: bool = False
    """Another try would end in the same way."""


class Memory:
    """The answers asked for last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[Answer, float]] = OrderedDict()

    def get(self, key: str) -> Answer | None:
        answer, since = self._known.get(key, (None, 0.0))
        if answer is None or not (answer.lasting or self._clock() < since + REMEMBERED_SECONDS):
            return None
        self._known.move_to_end(key)
        return answer

    def put(self, key: str, answer: Answer) -> None:
        self._known[key] = answer, self._clock()
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


class Rehearsals:
    """All methods but `close_soon` belong to the event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._memory = Memory()
        self._line: OrderedDict[str, asyncio.Future[None]] = OrderedDict()
        self._busy = False
        self._process: asyncio.subprocess.Process | None = None
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()

    async def estimate(self, spec: ExperimentSpec, client: str) -> Answer:
        """Of a spec that `engine.catalogue.check` accepts. Refusal: too many wait, or a newer one took its place."""
        spec = priced(spec)
        key = spec.model_dump_json()
        if (known := self._memory.get(key)) is not None:
            return known
        await self._turn(client)
        try:
            answer = self._memory.get(key)  # the one before may have asked for the same
            if answer is None:
                answer = await self._rehearse(spec)
                self._memory.put(key, answer)
            return answer
        finally:
            self._next()

    def close_soon(self) -> None:
        """From a signal handler or another thread: end what runs, refuse what waits."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    async def close(self) -> None:
        """Afterwards no child is left."""
        self._stop()
        if self._process is not None:
            await self._end(self._process)

    async def _turn(self, client: str) -> None:
        """Wait in the line, first come first served; a client's newer request takes the place of its older one."""
        if self._closed.is_set():
            raise _stopping()
        if not self._busy:
            self._busy = True
            return
        older = self._line.get(client)
        if older is None and len(self._line) >= MOST_WAITING:
            raise _refusal(f"{MOST_WAITING} estimates wait already; try again in a few seconds")
        if older is not None and not older.done():
            older.set_exception(_refusal("a newer estimate of the same client took the place of this one"))
        turn = self._line[client] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if self._line.get(client) is turn:
                del self._line[client]
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()  # its turn had come
            raise

    def _next(self) -> None:
        """Whoever waits longest; nobody: the next one that comes need not wait."""
        while self._line:
            turn = self._line.popitem(last=False)[1]
            if not turn.done():  # else its client went a moment ago
                turn.set_result(None)
                return
        self._busy = False

    async def _rehearse(self, spec: ExperimentSpec) -> Answer:
        for _ in range(2):  # it may have ended for lack of work just now
            if self._closed.is_set():
                break
            process = await self._started()
            if self._closed.is_set():  # meanwhile
                await self._end(process)
                break
            self._number += 1
            job = {
                "number": self._number,
                "spec": spec.canonical(),
                "data_root": str(self._settings.data_root),
                "memory_mb": self._settings.estimate_memory_mb,
                "seconds": self._settings.estimate_seconds,
            }
            try:
                patience = self._settings.estimate_seconds + SILENCE_SECONDS
                answer = await asyncio.wait_for(self._ask(process, job), patience)
            except asyncio.CancelledError:
                self._write(process, None)
                raise
            except TimeoutError:
                log.error("the process %d that rehearses is silent and is replaced", process.pid)
                answer = None
            if answer is not None:
                return answer
            await self._end(process)
        if self._closed.is_set():
            raise _stopping()
        return Answer(None, "the process that rehearses does not work; the server's log says more")

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._loop = asyncio.get_running_loop()
            root = str(Path(__file__).parent.parent)
            path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app.rehearsal_child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},  # a process with threads cannot fork
                start_new_session=True,  # Ctrl-C in the terminal is the server's matter
            )
        return self._process

    async def _ask(self, process: asyncio.subprocess.Process, job: dict[str, Any]) -> Answer | None:
        """None: it ended without an answer."""
        self._write(process, job)
        assert process.stdout is not None
        while line := await process.stdout.readline():
            found = json.loads(line)
            if found["number"] == job["number"]:  # else that of a job that was given up too late
                told = found["estimate"]
                return Answer(told and _estimate(told), found["reason"], found["lasting"])
        return None

    def _write(self, process: asyncio.subprocess.Process, job: dict[str, Any] | None) -> None:
        assert process.stdin is not None
        if not process.stdin.is_closing():
            process.stdin.write(json.dumps(job).encode() + b"\n")

    def _stop(self) -> None:
        self._closed.set()
        for turn in self._line.values():
            if not turn.done():
                turn.set_exception(_stopping())
        self._line.clear()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # it ends with what it rehearses

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled when the client hangs up. The body must have been read."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Refusal(499, "the client has gone")  # so nobody reads this
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def client_of(request: Request) -> str:
    """Whose place in the line it is. A connection says less: a browser opens several."""
    host = request.client.host if request.client else ""
    return f"{host} {request.headers.get('user-agent', '')}"


def _estimate(told: dict[str, Any]) -> Estimate:
    return Estimate(RoundCost(**told["round"]), RoundCost(**told["opening"]))


def _refusal(message: str) -> Refusal:
    return Refusal(429, message, headers={"Retry-After": str(RETRY_SECONDS)})


def _stopping() -> Refusal:
    return Refusal(503, "the server is stopping", headers={"Retry-After": str(RETRY_SECONDS)})
