"""Makes wanted artifacts: puts an experiment back into the state after its last round and asks the engine."""

import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.config import Settings
from app.storage import Storage, find_weights
from app.store import artifacts
from app.store.artifacts import ArtifactClaim, StoredFile
from app.store.claims import Claim
from app.store.database import Database
from workers.device import DeviceTrouble, why_unusable
from workers.drain import Drain
from workers.files import checkpoint_files
from workers.patience import wait_for_storage, write
from workers.watcher import Watcher

if TYPE_CHECKING:
    from engine.artifacts import File
    from engine.runtime.run import Run
    from engine.spec.experiment import ExperimentSpec

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
STORAGE_SECONDS = 60.0
"""A storage that is out of reach is waited for so long."""


def weights_finder(settings: Settings) -> Callable[[str], bytes]:
    """What the engine asks for the files that models.pretrained names."""
    storage = Storage(settings.storage)
    return lambda sha256: wait_for_storage(lambda: find_weights(storage, sha256), STORAGE_SECONDS, lambda: False)


def order_artifacts(session: Session, claim: Claim) -> None:
    """Want what every experiment of this spec gets at its end. Nothing is made before it has finished."""
    from engine.artifacts import made_by_itself
    from engine.spec.experiment import ExperimentSpec

    for kind, parameters in made_by_itself(ExperimentSpec.parse(claim.spec)).items():
        artifacts.want(session, claim.experiment, kind, parameters, again=False)


def make_wanted(settings: Settings, database: Database, owner: str) -> int:
    """Make every artifact that is due, one after the other; returns how many were taken."""
    taken = 0
    while not Drain(settings, owner).is_asked() and DeviceTrouble(settings, owner).reason() is None:
        with database.write() as session:
            claim = artifacts.claim(session, owner, settings.lease_seconds)
        if claim is None:
            break
        taken += 1
        ArtifactJob(settings, database, claim).run()
    return taken


class ArtifactJob:
    """One claimed artifact in this process."""

    def __init__(self, settings: Settings, database: Database, claim: ArtifactClaim) -> None:
        self._settings = settings
        self._database = database
        self._claim = claim
        self._storage = Storage(settings.storage)
        self._drain = Drain(settings, claim.owner)
        self._stopping = False
        self._renewed = time.monotonic()
        patience = max(settings.heartbeat_seconds, settings.lease_seconds - 2 * settings.heartbeat_seconds)
        self._watcher = Watcher("artifact heartbeat", self._watch, LOOK_SECONDS, patience=patience, blind=self._stop)

    def run(self) -> None:
        """Ends with the artifact ready, failed, given back, or taken by another worker."""
        from engine.runtime.run import Interrupted  # only now: it brings torch

        claim = self._claim
        self._watcher.start()
        try:
            files = [self._store(file) for file in self._make()]
            kept = write(self._database, lambda session: artifacts.finish(session, claim, files))
            log.info("artifact %s: %s", claim.artifact, "ready" if kept else "made by another worker")
        except (Interrupted, KeyboardInterrupt) as stop:
            write(self._database, lambda session: artifacts.release(session, claim))
            log.info("artifact %s given back", claim.artifact)
            if isinstance(stop, KeyboardInterrupt):
                raise
        except Exception as error:
            if (trouble := why_unusable(self._settings.device)) is not None:
                log.error("artifact %s given back: %s", claim.artifact, trouble, exc_info=error)
                write(self._database, lambda session: artifacts.release(session, claim))
                DeviceTrouble(self._settings, claim.owner).note(trouble)
                return
            log.exception("artifact %s failed", claim.artifact)
            reason = f"{type(error).__name__}: {error}"
            write(self._database, lambda session: artifacts.fail(session, claim, reason))
        finally:
            self._watcher.stop(10)

    def _make(self) -> "list[File]":
        from engine.artifacts import parse_request
        from engine.spec.experiment import ExperimentSpec

        spec = ExperimentSpec.parse(self._claim.spec)
        return parse_request(spec, self._claim.kind, self._claim.parameters).make(self._run_at_its_end(spec))

    def _run_at_its_end(self, spec: "ExperimentSpec") -> "Run":
        """From the last checkpoint; rounds after it are computed again, without one all of them."""
        from engine.runtime.run import Run

        snapshot, last = self._snapshot(spec), self._claim.last_round
        run = Run(
            spec,
            data_root=self._settings.data_root,
            threads=max(1, self._settings.threads),
            **self._settings.compute,
            should_stop=self._is_stopping,
            resume_from=snapshot,
            weights=weights_finder(self._settings),
        )
        if snapshot is None or snapshot.round < last:
            next(record for record in run.rounds() if record.round == last)
        return run

    def _snapshot(self, spec: "ExperimentSpec") -> Any:
        from engine.runtime.checkpoint import CheckpointDamaged, Checkpoints
        from workers.checkpoints import PatientCheckpoints

        if self._claim.checkpoint is None:
            return None
        files = checkpoint_files(self._settings, self._claim.experiment)
        checkpoints = PatientCheckpoints(Checkpoints(files), self._is_stopping)
        try:
            return checkpoints.load(*self._claim.checkpoint)
        except CheckpointDamaged as error:
            log.warning("artifact %s: %s; computing again from an older one", self._claim.artifact, error)
            return checkpoints.newest(spec.fingerprint(), before=self._claim.last_round + 1)

    def _store(self, file: "File") -> StoredFile:
        """Weights lie under their own checksum, by which other experiments name them."""
        digest = hashlib.sha256(file.content).hexdigest()
        name = f"{artifacts.WEIGHTS}/{digest}.safetensors" if file.kind == "weights" else self._name(file)
        wait_for_storage(lambda: self._storage.write(name, file.content), STORAGE_SECONDS, lambda: False)
        return StoredFile(file.kind, file.media_type, name, digest, len(file.content))

    def _is_stopping(self) -> bool:
        return self._stopping

    def _name(self, file: "File") -> str:
        """With the fence: a worker that lost its claim never touches a successor's file."""
        return f"artifacts/{self._claim.experiment}/{self._claim.artifact}-{self._claim.fence}-{file.name}"

    def _stop(self) -> None:
        self._stopping = True

    def _watch(self) -> None:
        if self._drain.is_asked():
            self._stop()
        if time.monotonic() - self._renewed < self._settings.heartbeat_seconds:
            return
        with self._database.write() as session:
            if not artifacts.renew(session, self._claim, self._settings.lease_seconds):
                self._stop()
        self._renewed = time.monotonic()
