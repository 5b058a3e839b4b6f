"""Checkpoints in a storage that may be out of reach: it is waited for, and in the end an experiment goes on without."""

import logging
from collections.abc import Callable

from app import disk
from engine.runtime.checkpoint import CheckpointDamaged, Checkpoints, Saved, Snapshot, out_of_reach
from engine.runtime.run import Run
from workers.patience import wait_for_storage

log = logging.getLogger(__name__)

SAVE_SECONDS = 30.0
"""The training stands still meanwhile, and a checkpoint is only a guard against computing rounds again."""
LOAD_SECONDS = 600.0
"""Without it, all rounds since an older one are computed again: that costs more than waiting for a server's restart."""


class PatientCheckpoints:
    """One experiment's checkpoints, as its worker uses them. A full disk is the caller's to deal with."""

    def __init__(self, checkpoints: Checkpoints, should_stop: Callable[[], bool]) -> None:
        self._checkpoints = checkpoints
        self._should_stop = should_stop
        self._patience = SAVE_SECONDS

    def save(self, run: Run) -> Saved | None:
        """None: the storage does not take it. Then the next one is tried without waiting, until one succeeds."""
        return self._kept(lambda: self._checkpoints.save(run), run.last_round, self._patience)

    def _kept(self, write: Callable[[], Saved], round: int, patience: float) -> Saved | None:
        try:
            saved = wait_for_storage(write, patience, self._should_stop)
        except OSError as error:
            if disk.is_full(error):
                raise
            self._patience = 0.0
            log.warning("no checkpoint after round %d, the storage cannot be written: %s", round, error)
            return None
        self._patience = SAVE_SECONDS
        return saved

    def load(self, manifest: str, sha256: str) -> Snapshot:
        """CheckpointDamaged: it is not whole, or cannot be read for a long time."""

        def attempt() -> Snapshot:
            try:
                return self._checkpoints.load(manifest, sha256)
            except CheckpointDamaged as error:
                raise (out_of_reach(error) or error) from None

        try:
            return wait_for_storage(attempt, LOAD_SECONDS, self._should_stop)
        except OSError as error:
            if disk.is_full(error):
                raise
            raise CheckpointDamaged(f"{manifest} cannot be read: {error}") from error

    def counting(self, named: tuple[str, str] | None, fingerprint: str, before: int) -> Snapshot | None:
        """The checkpoint that a row names, or the newest that is whole, where that one is damaged or of a later round.

        None: there is none of an earlier round that can be read.
        """
        if named is None:
            return None
        try:
            snapshot = self.load(*named)
        except CheckpointDamaged as error:
            log.warning("an older checkpoint is looked for: %s", error)
        else:
            if snapshot.round < before:
                return snapshot
        return self.newest(fingerprint, before)

    def adopt(self, other: Snapshot, fingerprint: str) -> Saved | None:
        """None: the storage does not take it for a long time."""
        return self._kept(lambda: self._checkpoints.adopt(other, fingerprint), other.round, LOAD_SECONDS)

    def newest(self, fingerprint: str, before: int) -> Snapshot | None:
        """The newest of an earlier round that is whole; None: there is none that can be read."""
        try:
            return self._checkpoints.newest(fingerprint, before=before)
        except OSError as error:
            if disk.is_full(error):
                raise
            log.warning("older checkpoints cannot be read: %s", error)
            return None

    def prune(self) -> None:
        """What cannot be deleted now goes with the next prune, or with the experiment."""
        try:
            self._checkpoints.prune()
        except OSError as error:
            log.warning("old checkpoints could not be deleted: %s", error)
