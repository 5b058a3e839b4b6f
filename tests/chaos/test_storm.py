"""Whatever is killed, frozen, locked, filled or damaged: every experiment ends, with the records of a quiet run."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.config import Settings
from app.store.database import Database
from app.store.migrate import migrate
from tests.chaos.storm import Plan, Storm, checkpoint_root, fences_in_order_of_commit, stored, undisturbed
from tests.services import postgres_database, short_folder

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="the storm finds processes in /proc"),
]

BREEZE = Plan(experiments=4, rounds=80, kills=5, broker_kills=1, freezes=1, damages=2, pace=1.0)
HURRICANE = Plan(
    experiments=50, rounds=40, kills=200, broker_kills=20, freezes=10, locks=10, damages=20, fills=3, pace=2.5
)
ON_POSTGRES = Plan(experiments=12, rounds=40, kills=40, broker_kills=4, freezes=3, locks=4, damages=5, pace=2.5)


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def stormy(home: Path, **changes: object) -> Settings:
    """A lease so short that faults bite."""
    settings = Settings(home=home, starter=False, lease_seconds=4.0, heartbeat_seconds=1.0, grace_seconds=5.0)
    return settings.model_copy(update=changes)


def check(settings: Settings, plan: Plan, seed: int) -> None:
    database = Database(settings.database)
    migrate(database)
    storm = Storm(settings, plan, seed)
    states = storm.run()
    print(f"storm {seed}: {dict(storm.happened)}")
    assert set(states.values()) == {"finished"}
    for number, key in enumerate(states):
        assert stored(database, key) == undisturbed(number, plan)
        fences = fences_in_order_of_commit(database, key)
        assert fences == sorted(fences), "a worker that had lost its claim wrote a round"
    database.close()


def test_a_breeze_of_faults_changes_no_record(home: Path) -> None:
    check(stormy(home), BREEZE, seed=1)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """64 MB for the checkpoints, so that they can be filled; needs root."""
    folder.mkdir(parents=True)
    mount = shutil.which("mount") or "mount"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("filling a disk needs the right to mount one")
    try:
        yield
    finally:
        subprocess.run([shutil.which("umount") or "umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_a_hurricane_of_faults_changes_no_record(home: Path, seed: int) -> None:
    settings = stormy(home)
    with small_disk(checkpoint_root(settings)):
        check(settings, HURRICANE, seed)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_storm_over_postgresql_changes_no_record(home: Path, postgres_server: str) -> None:
    with postgres_database(postgres_server) as url:
        check(stormy(home, database_url=url), ON_POSTGRES, seed=3)


@pytest.mark.slow
def test_a_storm_with_hints_in_files_changes_no_record(home: Path) -> None:
    plan = Plan(experiments=8, rounds=40, kills=20, freezes=2, damages=3, pace=2.5)
    check(stormy(home, broker_url="filesystem://"), plan, seed=4)
