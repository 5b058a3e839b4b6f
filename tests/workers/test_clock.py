"""Clocks that jump under real processes: nobody writes twice, and nothing waits for the hour that was taken back."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.client import FedArena
from app.config import Settings
from app.store.database import Database
from app.store.states import State
from app.store.tables import Experiment
from tests.services import ROOT, look, served, spec_with, wait_until
from tests.workers.processes import ended, fences_in_order_of_commit, holdings, stored, undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LONG: dict[str, Any] = {"rounds": 200, "training": {"epochs": 50, "batch_size": 16}}
HOUR = 3600.0
JUMPS = (HOUR, 0.0, -1.0, -HOUR, HOUR)
"""What the clock is wrong by, one after the other: an hour ahead, right, a leap second, an hour behind, ahead."""
JUMPING_CLOCK = """
import os, time
real = time.time
def jumping():
    with open(os.environ["JUMP_FILE"]) as file:
        return real() + float(file.read())
time.time = jumping
"""
"""Read by every Python process before all else. Only the time of day jumps, as when somebody sets the clock."""


def test_clocks_that_jump_by_hours_change_no_record(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"port": 0, "lease_seconds": 10.0, "heartbeat_seconds": 2.0})
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK)
    jump = tmp_path / "jump"

    def set_clock(seconds: float) -> None:
        part = tmp_path / "part"
        part.write_text(str(seconds))
        part.rename(jump)

    set_clock(0.0)
    environment = {"JUMP_FILE": str(jump), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with served(settings, "--workers", "2", **environment) as (_, address), FedArena(address) as arena:
        database = Database(settings.database)
        keys = [arena.submit(spec_with(**LONG, seed=seed))["id"] for seed in range(6)]
        for number, seconds in enumerate(JUMPS, start=1):
            enough = number * len(keys) * LONG["rounds"] // (len(JUMPS) + 1)
            wait_until(partial(has_rounds, database, keys, enough), seconds=300, what="rounds")
            set_clock(seconds)
            if seconds in {-HOUR, 0.0}:  # whoever dies now leaves a lease that ends in an hour
                for held in holdings(settings, database):
                    os.kill(held.pid, signal.SIGKILL)
        wait_until(lambda: ended(database, *keys), seconds=300, what="the end")
        rows = [look(database, key) for key in keys]
        records = [stored(database, key) for key in keys]
        fences = [fences_in_order_of_commit(database, key) for key in keys]
        database.close()
    assert {row.state for row in rows} == {State.FINISHED}
    assert records == [undisturbed(**LONG, seed=seed) for seed in range(6)]
    assert fences == [sorted(written) for written in fences], "two owners wrote"


def has_rounds(database: Database, keys: list[str], enough: int) -> bool:
    return rounds(database, keys) >= enough


def rounds(database: Database, keys: list[str]) -> int:
    found: list[Experiment] = [look(database, key) for key in keys]
    return sum(row.next_round for row in found)
