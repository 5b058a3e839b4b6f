"""The process that rehearses for the web server, which must not grow: `python -m app.rehearsal_child`.

It imports torch once, which takes seconds, and forks for each rehearsal. The fork gives back all memory when it ends,
may be killed at any moment, and has limits of its own. Jobs come as lines of JSON on the standard input, answers leave
as lines on the standard output. A new line ends the job before it, `null` is no job, and the end of the input, which
comes with the end of the server however that came, ends everything.
"""

import ctypes
import json
import logging
import math
import os
import resource
import select
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.advice import with_command
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

log = logging.getLogger(__name__)

IDLE_SECONDS = 600.0
"""Without work for so long it ends; the next job starts another."""
PR_SET_PDEATHSIG = 1
NO_MEMORY = ("allocate memory", "not enough memory", "bad_alloc", "could not create a primitive")
"""How torch's allocator, C++ and oneDNN say it."""


@dataclass
class Job:
    """A fork at work."""

    request: dict[str, Any]
    pid: int
    pipe: int
    deadline: float
    text: bytearray = field(default_factory=bytearray)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # it is not waited for yet, so the number is still its own
        self.reap()

    def reap(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def answer(self) -> dict[str, Any]:
        """After the end of its pipe."""
        code = self.reap()
        if self.text:
            told: dict[str, Any] = json.loads(self.text)
            return told
        if code == -signal.SIGKILL:
            return untold("the rehearsal was killed, probably because this machine has too little memory")
        log.error("a rehearsal ended with code %d and without an answer", code)
        return untold(f"the rehearsal ended with code {code}; the server's log may say more")


def main() -> int:
    """Until the input ends or nothing was asked for a long time."""
    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    answers = os.dup(1)
    os.dup2(2, 1)  # what others print is no answer
    job: Job | None = None
    rest = b""
    while True:
        wait = IDLE_SECONDS if job is None else max(0.0, job.deadline - time.monotonic())
        ready = select.select([0] if job is None else [0, job.pipe], [], [], wait)[0]
        if not ready and job is None:
            return 0
        if job is not None and not ready:
            job.kill()
            seconds = f"{job.request['seconds']:g} s"
            send(
                answers,
                job,
                untold(f"a rehearsal of two rounds takes longer than {seconds} (FEDARENA_ESTIMATE_SECONDS)"),
            )
            job = None
        if job is not None and job.pipe in ready:
            read = os.read(job.pipe, 65_536)
            job.text += read
            if not read:
                send(answers, job, job.answer())
                job = None
        if 0 in ready:
            read = os.read(0, 65_536)
            *lines, rest = (rest + read).split(b"\n")
            for request in map(json.loads, lines):
                if job is not None:
                    job.kill()
                job = None if request is None else begin(request, answers)
            if not read:
                if job is not None:
                    job.kill()
                return 0


def send(answers: int, job: Job, told: dict[str, Any]) -> None:
    os.write(answers, json.dumps({"number": job.request["number"], **told}).encode() + b"\n")


def begin(request: dict[str, Any], answers: int) -> Job:
    parent = os.getpid()
    pipe, end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(end)
        return Job(request, pid, pipe, time.monotonic() + request["seconds"])
    code = 1
    try:
        os.close(answers)
        os.close(pipe)
        be_expendable(parent)
        os.write(end, json.dumps(perform(request)).encode())
        code = 0
    except BaseException:
        log.exception("a rehearsal failed")
    finally:
        os._exit(code)  # never back into the loop of the parent


def be_expendable(parent: int) -> None:
    """On Linux: end with the parent, and be the first to go when the machine has no memory left."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
    Path("/proc/self/oom_score_adj").write_text("1000")


def perform(request: dict[str, Any]) -> dict[str, Any]:
    root = request["data_root"] and Path(request["data_root"])
    limit = request["memory_mb"]
    try:
        spec = ExperimentSpec.parse(request["spec"])
        catalogue.check(spec, root)  # the data set is in memory then, and is no matter of the limit
        limit_memory(limit)
        return {"estimate": asdict(catalogue.rehearse(spec, root, math.inf)), "reason": None, "lasting": True}
    except catalogue.Untold as error:
        return untold(str(error), lasting=error.lasting)
    except SpecError as error:
        return untold(str(with_command(error.problems[0])))
    except Exception as error:
        if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in NO_MEMORY):
            return untold(
                f"a rehearsal of two rounds takes more than {limit:,} MB of memory (FEDARENA_ESTIMATE_MEMORY_MB)"
            )
        log.exception("a rehearsal failed")
        return untold(f"the rehearsal failed ({type(error).__name__}); the server's log has the details")


def limit_memory(megabytes: int) -> None:
    """From now on it may take so much more. Only Linux counts what a process maps for itself alone."""
    if sys.platform != "linux":
        return
    status = Path("/proc/self/status").read_text()
    taken = 1024 * int(status.partition("VmData:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_DATA, (taken + 1_000_000 * megabytes,) * 2)


def untold(reason: str, *, lasting: bool = False) -> dict[str, Any]:
    return {"estimate": None, "reason": reason, "lasting": lasting}


if __name__ == "__main__":
    sys.exit(main())
