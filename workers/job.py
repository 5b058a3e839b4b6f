"""One job: claim an experiment, run it, store every round, and stop at once when the claim is gone."""

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from app.config import Settings
from app.queue import Queue
from app.store import experiments, rounds, workers
from app.store.database import Database
from app.store.experiments import Claim
from app.store.rounds import Verdict
from workers.artifacts import make_wanted, order_artifacts, weights_finder
from workers.drain import Drain

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often the watching thread looks for a cancel, a drain or a lost claim."""
SLOTS_VARIABLE = "FEDARENA_WORKER_SLOTS"
"""Set by the worker for its children: how many of them share the cores."""

Result = TypeVar("Result")


def run_next(settings: Settings, owner: str) -> str | None:
    """Run the first due experiment to its end; returns its id, or None when there was nothing to do.

    Torch is imported only after a claim, so that a superfluous hint costs next to nothing.
    """
    if Drain(settings, owner).is_asked():
        return None
    database = Database(settings.database, checkpoints=False)
    try:
        make_wanted(settings, database, owner)  # short, so it never waits behind an experiment that is due
        with database.write() as session:
            claim = experiments.claim(session, owner, settings.lease_seconds)
        if claim is None:
            return None
        Job(settings, database, claim).run()
        make_wanted(settings, database, owner)
        with database.read() as session:
            more = experiments.due(session) > 0
        if more:
            queue = Queue(settings)
            queue.send()
            queue.close()
        return claim.experiment
    finally:
        database.close()


class Job:
    """One claimed experiment in this process."""

    def __init__(self, settings: Settings, database: Database, claim: Claim) -> None:
        self._settings = settings
        self._database = database
        self._claim = claim
        self._drain = Drain(settings, claim.owner)
        self._lost = False
        self._cancelled = False
        self._drain_deadline: float | None = None
        self._done = threading.Event()

    def run(self) -> None:
        """Ends with the experiment finished, failed, diverged, cancelled, given back, or taken by another worker."""
        watcher = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
        previous = self._catch_sigterm()
        watcher.start()
        try:
            self._run_rounds()
        except KeyboardInterrupt:
            self._give_back()
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._done.set()
            watcher.join(timeout=10)
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)

    def _run_rounds(self) -> None:
        # only now: these bring torch
        from engine.checkpoint import Checkpoints, rounds_with_checkpoints
        from engine.run import Diverged, Interrupted, Run
        from engine.spec import ExperimentSpec

        settings, claim = self._settings, self._claim
        folder = settings.checkpoint_folder(claim.experiment)
        checkpoints = Checkpoints(folder, writer=str(claim.fence), keep=settings.checkpoint_keep)
        spec = ExperimentSpec.parse(claim.spec)
        try:
            run = Run(
                spec,
                data_root=settings.data_root,
                threads=threads_of_a_slot(settings),
                **settings.compute,
                should_stop=self.should_stop,
                resume_from=self._snapshot(checkpoints, spec.fingerprint()),
                weights=weights_finder(settings),
            )
            partition, environment, device = run.partition_fingerprint, run.environment, str(run.compute.device)
            self._write(lambda session: workers.set_device(session, self._claim.owner, device))
            if not self._write(lambda session: experiments.begin(session, self._claim, partition, environment)):
                log.info("experiment %s was taken by another worker", self._claim.experiment)
                return
            self._write(lambda session: order_artifacts(session, self._claim))
            every = settings.checkpoint_every or None
            for record, saved in rounds_with_checkpoints(run, checkpoints, every, is_last=self._is_draining):
                verdict = self._hand_in(record, None if saved is None else (saved.manifest, saved.sha256))
                if saved is not None and verdict is not Verdict.LOST:
                    checkpoints.prune()
                if not verdict.goes_on():
                    return
                if self._is_draining():
                    self._give_back()
                    return
        except Interrupted:
            self._after_interruption()
        except Diverged as error:
            reason = str(error)
            self._write(lambda session: experiments.diverge(session, self._claim, reason))
            log.warning("experiment %s diverged: %s", self._claim.experiment, reason)

    def _snapshot(self, checkpoints: Any, fingerprint: str) -> Any:
        """The checkpoint the row names, else an older one that is whole, else None: then all is computed again."""
        from engine.checkpoint import CheckpointDamaged

        if self._claim.checkpoint is None:
            return None
        try:
            return checkpoints.load(*self._claim.checkpoint)
        except CheckpointDamaged as error:
            older = checkpoints.newest(fingerprint, before=self._claim.next_round)
            where = "from the start" if older is None else f"after round {older.round}"
            log.warning("experiment %s goes on %s: %s", self._claim.experiment, where, error)
            return older

    def _is_draining(self) -> bool:
        return self._drain_deadline is not None

    def _hand_in(self, record: Any, checkpoint: tuple[str, str] | None) -> Verdict:
        """Store the round with the checkpoint behind it."""
        verdict = self._write(
            lambda session: rounds.commit_round(session, self._claim, record, self._settings.lease_seconds, checkpoint)
        )
        if not verdict.goes_on():
            level = logging.WARNING if verdict in {Verdict.DIFFERENT, Verdict.LOST} else logging.INFO
            log.log(level, "experiment %s: %s at round %d", self._claim.experiment, verdict.value, record.round)
        return verdict

    def should_stop(self) -> bool:
        """Polled by the engine between batches: everything it reads was fetched by the watching thread."""
        if self._lost or self._cancelled:
            return True
        return self._drain_deadline is not None and time.monotonic() > self._drain_deadline

    def _after_interruption(self) -> None:
        if self._lost:
            log.warning("experiment %s was taken by another worker", self._claim.experiment)
        elif self._cancelled:
            self._write(lambda session: experiments.obey_cancel(session, self._claim))
            log.info("experiment %s cancelled", self._claim.experiment)
        else:
            self._give_back()

    def _give_back(self) -> None:
        self._write(lambda session: experiments.release(session, self._claim))
        log.info("experiment %s given back to the queue", self._claim.experiment)

    def _fail(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            reason += "; try a smaller batch_size or smaller models"
        detail = "".join(traceback.format_exception(error))
        log.error("experiment %s failed: %s", self._claim.experiment, reason)
        self._write(lambda session: experiments.fail(session, self._claim, reason, detail))

    def _write(self, work: Callable[[Any], Result]) -> Result:
        """One transaction, tried again while the database is locked or restarting.

        Safe to repeat: if the first commit did arrive, the second finds the round stored, or the claim gone.
        """
        wait = 0.1
        while True:
            try:
                with self._database.write() as session:
                    return work(session)
            except DBAPIError as error:
                if not _passes(error):
                    raise
                log.warning("the store is busy, trying again: %s", str(error.orig).splitlines()[0])
                time.sleep(wait)
                wait = min(2 * wait, 5.0)

    def _watch(self) -> None:
        renewed = time.monotonic()
        while not self._done.wait(LOOK_SECONDS):
            if self._drain_deadline is None and self._drain.is_asked():
                self._start_draining()
            try:
                if time.monotonic() - renewed >= self._settings.heartbeat_seconds:
                    with self._database.write() as session:
                        standing = experiments.renew(session, self._claim, self._settings.lease_seconds)
                    renewed = time.monotonic()
                else:
                    with self._database.read() as session:
                        standing = experiments.standing(session, self._claim)
            except DBAPIError as error:
                log.warning("cannot look at the store: %s", str(error.orig).splitlines()[0])
                continue
            if standing is None:
                self._lost = True
                return
            self._cancelled = standing.cancel

    def _start_draining(self) -> None:
        self._drain_deadline = time.monotonic() + self._settings.grace_seconds

    def _catch_sigterm(self) -> Any:
        """A terminated child ends like a drained one. Signals reach only the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return None

        def drain(_number: int, _frame: FrameType | None) -> None:
            if self._drain_deadline is None:
                self._start_draining()

        return signal.signal(signal.SIGTERM, drain)


def threads_of_a_slot(settings: Settings) -> int:
    """The setting, or the cores divided by the slots that share them."""
    if settings.threads:
        return settings.threads
    slots = int(os.environ.get(SLOTS_VARIABLE, "1"))
    return max(1, (os.cpu_count() or 1) // max(1, slots))


def _passes(error: DBAPIError) -> bool:
    """Waiting helps: the database is locked, restarting, or the connection was cut."""
    if error.connection_invalidated:
        return True
    text = str(error.orig).lower()
    return any(
        sign in text
        for sign in ("locked", "busy", "timeout", "connection", "starting up", "shutting down", "deadlock", "terminat")
    )
