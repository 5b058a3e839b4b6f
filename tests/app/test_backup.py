"""A copy made while an experiment runs goes on elsewhere with the same bits."""

import threading
from pathlib import Path
from typing import Any

import pytest

from app.backup import BackupRefused, back_up
from app.config import Settings
from app.store import orphans, rounds
from app.store.database import Database
from app.store.states import State
from engine.records import RoundRecord
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.services import look, short_folder, spec_with, submit, wait_until
from workers.drain import Drain
from workers.job import run_next

ROUNDS = 120


def stored(database: Database, key: str) -> list[dict[str, Any]]:
    with database.read() as session:
        return [RoundRecord(**row).without_times() for row in rounds.after(session, key)]


def test_a_copy_made_while_an_experiment_runs_goes_on_elsewhere_with_the_same_bits(
    settings: Settings, sqlite_database: Database
) -> None:
    settings = settings.model_copy(update={"checkpoint_every": 1, "threads": 1})
    key = submit(sqlite_database, rounds=ROUNDS)
    thread = threading.Thread(target=run_next, args=(settings, "here"))
    thread.start()
    wait_until(lambda: look(sqlite_database, key).next_round > 10, what="the first rounds")
    with short_folder() as elsewhere:
        copied = back_up(settings, elsewhere / "copy")
        Drain(settings, "here").ask()
        thread.join(timeout=60)
        assert (copied.experiments, copied.without_checkpoint) == (1, 0)
        there = Settings(home=elsewhere / "copy", threads=1)
        restored = Database(there.database)
        row = look(restored, key)
        assert (row.state, row.next_round > 10) == (State.RUNNING, True)
        kept = stored(restored, key)
        with restored.write() as session:
            orphans.expire_leases(session, "here")
        assert run_next(there, "there") == key
        finished = look(restored, key)
        assert (finished.state, finished.bit_identical) == (State.FINISHED, True)
        expected = [item.without_times() for item in Run(ExperimentSpec.parse(spec_with(rounds=ROUNDS))).rounds()]
        assert stored(restored, key) == expected
        assert kept == expected[: len(kept)]
        restored.close()


def test_what_cannot_be_copied_is_refused(settings: Settings, sqlite_database: Database, tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(BackupRefused, match="is not empty"):
        back_up(settings, tmp_path)
    with pytest.raises(BackupRefused, match="pg_dump"):
        back_up(settings.model_copy(update={"database_url": "postgresql://user@host/name"}), tmp_path / "new")
    with pytest.raises(BackupRefused, match="there is no database"):
        back_up(settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/none.db"}), tmp_path / "new")
