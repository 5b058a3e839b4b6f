"""Whatever is killed, frozen, locked, filled or damaged: every experiment ends, with the records of a quiet run."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.config import Settings
from app.store.database import Database
from app.store.migrate import migrate
from tests.chaos.postgres import Postgres, own_postgres
from tests.chaos.storm import Plan, Storm, checkpoint_root, undisturbed_sweep
from tests.services import short_folder
from tests.workers.processes import fences_in_order_of_commit, stored

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="the storm finds processes in /proc"),
]

BREEZE = Plan(experiments=4, rounds=20, epochs=50, kills=5, broker_kills=1, freezes=1, damages=2)
HURRICANE = Plan(experiments=50, rounds=40, kills=200, broker_kills=20, freezes=10, locks=10, damages=20, fills=3)
ON_POSTGRES = Plan(
    experiments=50, rounds=40, kills=200, broker_kills=20, freezes=10, locks=10, damages=20, cuts=20, restarts=20
)
THROUGH_FILES = Plan(experiments=20, rounds=25, kills=44, freezes=4, damages=5)


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def stormy(home: Path, **changes: object) -> Settings:
    """A lease so short that freezes bite, but longer than a busy machine keeps a heartbeat waiting."""
    settings = Settings(
        home=home, starter=False, lease_seconds=15.0, heartbeat_seconds=3.0, grace_seconds=5.0, log_level="debug"
    )
    return settings.model_copy(update=changes)


def check(settings: Settings, plan: Plan, seed: int, postgres: Postgres | None = None) -> None:
    database = Database(settings.database)
    migrate(database)
    storm = Storm(settings, plan, seed, postgres)
    states = storm.run()
    print(storm.report())
    assert set(states.values()) == {"finished"}
    for key, expected in zip(states, undisturbed_sweep(len(states), plan), strict=True):
        assert stored(database, key) == expected, "a round was lost, doubled or changed"
        fences = fences_in_order_of_commit(database, key)
        assert fences == sorted(fences), "a worker that had lost its claim wrote a round"
    database.close()


def test_a_breeze_of_faults_changes_no_record(home: Path) -> None:
    check(stormy(home, lease_seconds=6.0, heartbeat_seconds=1.5), BREEZE, seed=1)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """64 MB for the checkpoints, so that they can be filled; False: this user may not mount a disk."""
    folder.mkdir(parents=True)
    mount = shutil.which("mount") or "mount"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run([shutil.which("umount") or "umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_a_hurricane_of_faults_changes_no_record(home: Path, seed: int) -> None:
    settings = stormy(home, disk_low_mb=8)
    with small_disk(checkpoint_root(settings)) as can_be_filled:
        plan = HURRICANE if can_be_filled else replace(HURRICANE, fills=0)
        check(settings, plan, seed)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_storm_over_postgresql_changes_no_record(home: Path) -> None:
    with own_postgres() as postgres:
        check(stormy(home, database_url=postgres.url), ON_POSTGRES, seed=3, postgres=postgres)


@pytest.mark.slow
def test_a_storm_with_hints_in_files_changes_no_record(home: Path) -> None:
    check(stormy(home, broker_url="filesystem://"), THROUGH_FILES, seed=4)
