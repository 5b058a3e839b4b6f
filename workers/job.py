"""One job: claim an experiment, run it, store every round, and stop at once when the claim is gone."""

import logging
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from enum import StrEnum
from types import FrameType
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app import disk
from app.advice import sentence
from app.config import Settings
from app.queue import Queue
from app.store import continuing, experiments, lifecycle, logs, queue, rounds, workers
from app.store.claims import Claim
from app.store.database import Database
from app.store.rounds import Verdict
from app.store.states import State
from workers import machine
from workers.artifacts import make_wanted, order_artifacts, weights_finder
from workers.device import DeviceTrouble, why_unusable
from workers.drain import Drain
from workers.files import checkpoint_files
from workers.log_lines import LogLines
from workers.patience import passes, read, write
from workers.pulse import Pulse
from workers.watcher import Watcher

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often the watching thread looks for a cancel, a drain or a lost claim."""
LOG_SECONDS = 2.0
JOBS_A_PROCESS, PROCESS_SECONDS = 20, 600.0
"""How much one process may do before a fresh one takes over: importing torch costs seconds, old processes grow."""
NO_MEMORY = (
    "out of memory",
    "outofmemory",
    "allocate memory",
    "not enough memory",
    "bad_alloc",
    "alloc_failed",
    "could not create a primitive",
)
"""How CUDA and its libraries, torch's allocator for the CPU, C++ and oneDNN say it."""
SLOTS_VARIABLE = "FEDARENA_WORKER_SLOTS"
"""Set by the worker for its children: how many of them share the cores."""
CORES_VARIABLE = "FEDARENA_WORKER_CORES"
"""Set where several workers share a machine: how many cores are this one's. Unset: all."""

Result = TypeVar("Result")


def run_next(settings: Settings, owner: str) -> str | None:
    """Run the first due experiment to its end; returns its id, or None when there was nothing to do.

    Torch is imported only after a claim, so that a superfluous hint costs next to nothing.
    """
    if Drain(settings, owner).is_asked():
        return None
    if (reason := disk.shortage(settings)) is not None:
        log.warning("no new experiment is taken: %s", reason)
        return None
    if (reason := DeviceTrouble(settings, owner).persists()) is not None:
        log.warning("no new experiment is taken: %s", reason)
        return None
    database = Database(settings.database, wal_checkpoints=False)
    try:
        make_wanted(settings, database, owner)  # short, so it never waits behind an experiment that is due
        with database.write() as session:
            claim = queue.claim(session, owner, settings.lease_seconds)
            if claim is None:
                log.debug("nothing is due")
                return None
            busy = queue.running(session, owner) + queue.due(session, settings.lease_seconds)
        Job(settings, database, claim, threads=threads_of_a_slot(settings, busy)).run()
        make_wanted(settings, database, owner)
        return claim.experiment
    finally:
        database.close()


def run_due(settings: Settings, owner: str) -> int:
    """Run due experiments one after the other in this process, which has torch by then; returns how many.

    After a while, or one that failed, a fresh process takes the next one: a hint is sent for it.
    """
    done, started = 0, time.monotonic()
    while (experiment := run_next(settings, owner)) is not None:
        done += 1
        if (
            done >= JOBS_A_PROCESS
            or time.monotonic() - started > PROCESS_SECONDS
            or not _went_well(settings, experiment)
        ):
            _hint_if_due(settings)
            break
    return done


def _went_well(settings: Settings, experiment: str) -> bool:
    database = Database(settings.database, wal_checkpoints=False)
    try:
        with database.read() as session:
            row = experiments.get(session, experiment)
            return row is not None and row.state is State.FINISHED
    finally:
        database.close()


def _hint_if_due(settings: Settings) -> None:
    database = Database(settings.database, wal_checkpoints=False)
    try:
        with database.read() as session:
            more = queue.due(session, settings.lease_seconds) > 0
    finally:
        database.close()
    if more:
        hints = Queue(settings)
        hints.send()
        hints.close()


class Leaving(StrEnum):
    """Why a job gives its experiment back after the present round."""

    DRAIN = "the worker stops"
    PAUSE = "it is to be paused"
    WINDOW = "its window has closed"
    BLIND = "its lease cannot be kept"


class Job:
    """One claimed experiment in this process."""

    def __init__(self, settings: Settings, database: Database, claim: Claim, threads: int = 1) -> None:
        self._settings = settings
        self._database = database
        self._claim = claim
        self._threads = threads
        self._drain = Drain(settings, claim.owner)
        self._pulse = Pulse(settings, claim.owner, claim.experiment, claim.fence)
        self._lines = LogLines()
        self._rounds = 0  # handed in by this job, not those of its predecessors
        self._lost = False
        self._cancelled = False
        self._leaving: tuple[Leaving, float] | None = None  # why, and until when the round may end
        self._renewed = self._logged = time.monotonic()
        # blind as soon as the lease could end before the experiment is given back
        patience = max(settings.heartbeat_seconds, settings.lease_seconds - 2 * settings.heartbeat_seconds)
        self._watcher = Watcher(
            "heartbeat", self._watch, LOOK_SECONDS, patience=patience, blind=lambda: self._leave(Leaving.BLIND)
        )

    def run(self) -> None:
        """Ends with the experiment finished, failed, diverged, cancelled, given back, or taken by another worker."""
        previous = self._catch_sigterm()
        try:
            with self._lines:
                if self._starts():
                    self._run()
        finally:
            self._watcher.stop(10)
            self._pulse.stop()
            self._keep_log()
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)

    def _starts(self) -> bool:
        """Show that it lives and keep the lease; False: that cannot be done here, and the experiment is not to pay."""
        try:
            self._pulse.start()
            self._watcher.start()
        except (OSError, RuntimeError) as error:  # nowhere to write; no more threads
            if disk.is_full(error):
                self._wait_for_room(error)
            else:
                self._give_back(f"{type(error).__name__}: {error}")
            return False
        return True

    def _run(self) -> None:
        try:
            self._run_rounds()
        except KeyboardInterrupt:
            self._give_back("the worker was interrupted")
            raise
        except Exception as error:
            if disk.is_full(error):
                self._wait_for_room(error)
            elif not _wants_memory(error) and (reason := why_unusable(self._settings.device)) is not None:
                self._leave_device(reason, error)
            else:
                self._fail(error)

    def _run_rounds(self) -> None:
        # only now: these bring torch
        from engine.runtime.checkpoint import CheckpointDamaged, Checkpoints, rounds_with_checkpoints
        from engine.runtime.run import Diverged, Interrupted, Run
        from engine.spec.experiment import ExperimentSpec
        from workers.checkpoints import PatientCheckpoints

        settings, claim = self._settings, self._claim
        files = checkpoint_files(settings, claim.experiment)
        checkpoints = PatientCheckpoints(
            Checkpoints(files, writer=str(claim.fence), keep=settings.checkpoint_keep), self.should_stop
        )
        spec = ExperimentSpec.parse(claim.spec)
        try:
            snapshot = self._snapshot(checkpoints, spec.fingerprint())
            run = Run(
                spec,
                data_root=settings.data_root,
                threads=self._threads,
                **settings.compute,
                should_stop=self.should_stop,
                resume_from=snapshot,
                weights=weights_finder(settings),
            )
            partition, environment, device = run.partition_fingerprint, run.environment, str(run.compute.device)
            self._write(lambda session: workers.set_device(session, self._claim.owner, device))
            if not self._write(
                lambda session: lifecycle.begin(session, claim, partition, environment, run.majority_share)
            ):
                log.info("experiment %s was taken by another worker", self._claim.experiment)
                return
            self._write(lambda session: order_artifacts(session, self._claim))
            log.info(
                "experiment %s: worker %s on %s with %d threads %s",
                claim.experiment,
                claim.owner,
                device,
                self._threads,
                "starts" if snapshot is None else f"goes on after round {snapshot.round}",
            )
            every = settings.checkpoint_every or None
            for record, saved in rounds_with_checkpoints(run, checkpoints, every, is_last=self._is_leaving):
                leaving = self._leaving
                if saved is None and record.round > 0 and (leaving is not None or self._is_stopped_by(record)):
                    saved = checkpoints.save(run)
                verdict = self._hand_in(record, None if saved is None else (saved.manifest, saved.sha256))
                if saved is not None and verdict is not Verdict.LOST:
                    checkpoints.prune()
                if not verdict.goes_on():
                    return
                if leaving is not None:
                    self._give_back(leaving[0])
                    return
        except Interrupted:
            self._after_interruption()
        except CheckpointDamaged as error:
            # after it was verified: whoever takes the experiment next finds it and starts from an older one
            self._give_back(str(error))
        except Diverged as error:
            reason = str(error)
            self._write(lambda session: lifecycle.diverge(session, self._claim, reason))
            log.warning("experiment %s diverged: %s", self._claim.experiment, reason)

    def _snapshot(self, checkpoints: Any, fingerprint: str) -> Any:
        """The checkpoint the row names, else an older one that is whole, else None: then all is computed again."""
        from engine.runtime.checkpoint import CheckpointDamaged

        if self._claim.checkpoint is None:
            return self._adopted(checkpoints, fingerprint)
        try:
            return checkpoints.load(*self._claim.checkpoint)
        except CheckpointDamaged as error:
            older = checkpoints.newest(fingerprint, before=self._claim.next_round)
            where = "from the start" if older is None else f"after round {older.round}"
            log.warning("experiment %s resumes %s: %s", self._claim.experiment, where, error)
            return older

    def _adopted(self, checkpoints: Any, fingerprint: str) -> Any:
        """What the experiment left that this one continues, copied, so that it may be deleted; None: nothing usable.

        Dying in between costs nothing: the copy counts when the row names it, and the next worker copies anew.
        """
        from engine.runtime.checkpoint import CheckpointDamaged, Checkpoints
        from workers.checkpoints import PatientCheckpoints

        claim = self._claim
        source = read(self._database, lambda session: continuing.source_of(session, claim))
        if source is None:
            return None
        files = checkpoint_files(self._settings, source.experiment)
        left = PatientCheckpoints(Checkpoints(files), self.should_stop)
        try:
            old = left.counting(source.checkpoint, source.fingerprint, before=claim.next_round)
            saved = None if old is None else checkpoints.adopt(old, fingerprint)
            if saved is not None:
                copied = (saved.manifest, saved.sha256)
                snapshot = checkpoints.load(*copied)
                self._write(lambda session: continuing.adopt(session, claim, copied))
                log.info("took over the state of %s after round %d", source.experiment, saved.round)
                return snapshot
        except CheckpointDamaged as error:
            log.warning("the checkpoint of %s cannot be copied: %s", source.experiment, error)
        log.warning("no checkpoint of %s can be used: its rounds are computed again and compared", source.experiment)
        return None

    def _is_leaving(self) -> bool:
        return self._leaving is not None

    def _is_stopped_by(self, record: Any) -> bool:
        """The stop rule will end it with this round, whose state should then be on disk."""
        if not self._claim.has_stop_rule:
            return False
        return read(self._database, lambda session: rounds.would_stop(session, self._claim, record))

    def _hand_in(self, record: Any, checkpoint: tuple[str, str] | None) -> Verdict:
        """Store the round with the checkpoint behind it."""
        verdict = self._write(
            lambda session: rounds.commit_round(session, self._claim, record, self._settings.lease_seconds, checkpoint)
        )
        self._rounds += 1
        self._pulse.note(rounds=self._rounds, device_memory=_device_memory())
        if not verdict.goes_on():
            level = logging.WARNING if verdict in {Verdict.DIFFERENT, Verdict.LOST} else logging.INFO
            log.log(level, "experiment %s: %s at round %d", self._claim.experiment, verdict.value, record.round)
        return verdict

    def should_stop(self) -> bool:
        """Polled by the engine between batches: everything it reads was fetched by the watching thread."""
        if self._lost or self._cancelled:
            return True
        return self._leaving is not None and time.monotonic() > self._leaving[1]

    def _after_interruption(self) -> None:
        if self._lost:
            log.warning("experiment %s was taken by another worker", self._claim.experiment)
        elif self._cancelled:
            self._write(lambda session: lifecycle.obey_cancel(session, self._claim))
            log.info("experiment %s cancelled", self._claim.experiment)
        else:
            is_blind = self._leaving is not None and self._leaving[0] is Leaving.BLIND
            self._give_back(Leaving.BLIND if is_blind else "the present round did not end in time")

    def _give_back(self, why: str) -> None:
        self._write(lambda session: lifecycle.release(session, self._claim))
        log.info("experiment %s given back: %s", self._claim.experiment, why)

    def _fail(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {sentence(error)}"
        if _wants_memory(error):
            reason += "; try a smaller batch_size, smaller models, or clients one by one (FEDARENA_STACKED=off)"
        detail = "".join(traceback.format_exception(error))
        log.error("experiment %s failed: %s", self._claim.experiment, reason)
        self._write(lambda session: lifecycle.fail(session, self._claim, reason, detail))

    def _leave_device(self, reason: str, error: Exception) -> None:
        """The worker's fault, not the experiment's: give it back, and let this worker take nothing more."""
        log.error("no more work is taken here: %s", reason, exc_info=error)
        self._give_back(reason)
        DeviceTrouble(self._settings, self._claim.owner).note(reason)

    def _wait_for_room(self, error: Exception) -> None:
        """Pause the experiment; the reconciler resumes it. The ballast makes room for this one transaction."""
        reason = f"{disk.HOLD}: {' '.join(str(error).split())[:300]}; it goes on by itself when there is room"
        log.error("experiment %s paused: %s", self._claim.experiment, reason)
        disk.Ballast(self._settings).give_up()
        self._write(lambda session: lifecycle.hold(session, self._claim, reason), although_full=True)

    def _write(self, work: Callable[[Session], Result], *, although_full: bool = False) -> Result:
        def helps(error: DBAPIError) -> bool:
            return passes(error) or (although_full and disk.is_full(error))

        return write(self._database, work, helps)

    def _watch(self) -> None:
        if self._drain.is_asked():
            self._leave(Leaving.DRAIN)
        if time.monotonic() - self._renewed >= self._settings.heartbeat_seconds:
            with self._database.write() as session:
                standing = lifecycle.renew(session, self._claim, self._settings.lease_seconds)
            self._renewed = time.monotonic()
        else:
            with self._database.read() as session:
                standing = lifecycle.standing(session, self._claim)
        if standing is None:
            self._lost = True
            self._watcher.end()
            return
        self._cancelled = standing.cancel
        self._leave(Leaving.PAUSE if standing.pause else None if standing.in_window else Leaving.WINDOW)
        if time.monotonic() - self._logged >= LOG_SECONDS:
            self._keep_log()
            self._logged = time.monotonic()

    def _leave(self, why: Leaving | None) -> None:
        """Give the experiment back after the present round. A pause can be taken back in time, a drain cannot.

        A stopping worker and a pause wait for the round only so long; a window that closes lets it end; without a
        lease there is no waiting.
        """
        before = self._leaving[0] if self._leaving is not None else None
        if before is why or before is Leaving.BLIND or (before is Leaving.DRAIN and why is not Leaving.BLIND):
            return
        if why is None:
            self._leaving = None
        else:
            patience = {Leaving.WINDOW: math.inf, Leaving.BLIND: 0.0}.get(why, self._settings.grace_seconds)
            self._leaving = (why, time.monotonic() + patience)

    def _keep_log(self) -> None:
        lines = self._lines.take()
        if not lines:
            return
        try:
            with self._database.write() as session:
                logs.append(session, self._claim, lines)
        except DBAPIError as error:
            self._lines.put_back(lines)
            log.debug("the log waits: %s", error.orig)

    def _catch_sigterm(self) -> Any:
        """A terminated child ends like a drained one, an orphan at once. Signals reach only the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return None
        parent = os.getppid()

        def drain(_number: int, _frame: FrameType | None) -> None:
            if os.getppid() != parent:
                os._exit(1)  # nobody watches over it any more
            self._leave(Leaving.DRAIN)

        return signal.signal(signal.SIGTERM, drain)


def _wants_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(
        sign in f"{type(error).__name__}: {error}".lower() for sign in NO_MEMORY
    )


def threads_of_a_slot(settings: Settings, busy: int | None = None) -> int:
    """The setting, or the cores divided by the slots that share them now: `busy` experiments run or wait here.

    The number of threads never changes a result. It is fixed when an experiment starts.
    """
    if settings.threads:
        return settings.threads
    slots = int(os.environ.get(SLOTS_VARIABLE, "1"))
    sharing = slots if busy is None else min(slots, busy)
    cores = int(os.environ.get(CORES_VARIABLE, "0")) or machine.cores()
    return max(1, cores // max(1, sharing))


def _device_memory() -> tuple[int, int] | None:
    """Bytes free and total on the CUDA device in use; None on a CPU."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    free, total = torch.cuda.mem_get_info()
    return int(free), int(total)
