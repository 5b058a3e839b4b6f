"""A bounded, seeded storm of faults over real workers, broker and database, and what must be true when it is over."""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import col

from app.config import Settings
from app.storage import CHECKPOINTS
from app.store.database import Database
from app.store.states import State
from app.store.tables import Experiment
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.chaos.postgres import Postgres
from tests.services import ROOT, environment, fedarena, serving, spec_with, submit
from tests.workers.processes import children, holdings
from workers.embedded import Broker
from workers.pulse import Holding

MOST_DEATHS = 3
"""An experiment fails after five deaths without a new round; the storm spares one that had so many."""
LOOK_SECONDS = 0.2
LOCK_SECONDS = (3.0, 12.0)
"""Shorter and longer than a connection waits for a lock."""
FULL_SECONDS = 3.0
FROZEN_LEASES = 2.4
"""At most: one that is frozen wakes up when another worker has taken its experiment over."""
AWAKE_SECONDS = 5.0
"""And is left alone for so long."""
ALGORITHMS: tuple[dict[str, Any], ...] = (
    {"name": "fedavg"},
    {"name": "standalone"},
    {"name": "ditto"},
    {"name": "fedproto"},
    {"name": "scaffold"},
)


@dataclass(frozen=True)
class Plan:
    """How much happens. Kills are shared out over the worker, its child, both, and a polite SIGTERM."""

    experiments: int
    rounds: int
    kills: int
    epochs: int = 100
    """How much there is to do in a round: with 100 about a tenth of a second."""
    broker_kills: int = 0
    freezes: int = 0
    locks: int = 0
    damages: int = 0
    fills: int = 0
    cuts: int = 0
    restarts: int = 0
    workers: int = 2
    limit: float = 4 * 3600.0
    """A safety net: after so many seconds the test fails with what it has."""

    def faults(self, dice: random.Random) -> list[tuple[int, str]]:
        """Each with the number of rounds that must be stored before it comes.

        Counted in rounds, not in seconds: a slow machine is not hit more often for the same work.
        """
        kinds = ("kill worker", "kill child", "kill group", "terminate")
        faults = [kinds[number % len(kinds)] for number in range(self.kills)]
        faults += ["kill broker"] * self.broker_kills + ["freeze"] * self.freezes + ["lock"] * self.locks
        faults += ["damage"] * self.damages + ["fill"] * self.fills
        faults += ["cut connections"] * self.cuts + ["restart database"] * self.restarts
        dice.shuffle(faults)
        most = int(0.95 * self.experiments * self.rounds)
        return sorted((dice.randint(0, most), fault) for fault in faults)


@dataclass
class Storm:
    """Keeps the workers running and lets the faults happen, one after the other."""

    settings: Settings
    plan: Plan
    seed: int
    postgres: Postgres | None = None
    happened: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    """How many of the frozen woke up when somebody else had their experiment."""

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._database = Database(self.settings.database, wal_checkpoints=False)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._groups: set[int] = set()
        self._frozen: list[tuple[float, Holding]] = []
        self._awake: list[tuple[float, int]] = []
        self._broker = Broker(self.settings)
        self._log = (self.settings.home / "workers.log").open("ab")

    def run(self) -> dict[str, str]:
        """Submit the experiments, and more while faults are left; wait for the last end; returns state by id."""
        ids = self._submit([], self.plan.experiments)
        faults = self.plan.faults(self._dice)
        deadline = time.monotonic() + self.plan.limit
        if not self.settings.broker_url:
            self._broker.start()
        try:
            with serving(self.settings):
                while faults or not self._all_ended(ids):
                    if self._all_ended(ids):  # the rest of the faults needs something to hit
                        ids = self._submit(ids, 2 * self.plan.workers)
                    self._keep_workers()
                    self._let_thaw()
                    if faults and faults[0][0] <= self._rounds() and self._happens(faults[0][1]):
                        self.happened[faults.pop(0)[1]] += 1
                    if time.monotonic() > deadline:
                        raise AssertionError(f"after {self.plan.limit} s: {self._states(ids)}, left: {faults}")
                    time.sleep(LOOK_SECONDS)
        finally:
            self._end_everything()
        return dict(zip(ids, self._states(ids), strict=True))

    def _submit(self, ids: list[str], count: int) -> list[str]:
        numbers = range(len(ids), len(ids) + count)
        return ids + [submit(self._database, **spec_of(number, self.plan)) for number in numbers]

    def report(self) -> str:
        """What happened, in one line."""
        log = (self.settings.home / "workers.log").read_text()
        query = select(func.count(), func.sum(col(Experiment.attempts)), func.max(col(Experiment.attempts)))
        [(experiments, claims, most)] = self._read(query)
        return (
            f"storm {self.seed}: {dict(self.happened)}; {experiments} experiments, {claims} claims, at most {most} for "
            f"one; {self.takeovers} frozen owners woke up after a takeover; {log.count('was taken by another worker')} "
            f"jobs noticed that they had lost their claim, {log.count(': lost at round')} by a refused round; "
            f"{log.count('nothing is due')} superfluous hints; {log.count('goes on after round')} resumed after a "
            f"checkpoint, {log.count('cannot be read') + log.count('does not have the checksum')} met a damaged one"
        )

    # -- the faults ---------------------------------------------------------------------------------------------

    def _happens(self, fault: str) -> bool:
        """False: there is nothing to hit just now; it is tried again."""
        hits: dict[str, Callable[[], bool]] = {
            "kill worker": lambda: self._hit(lambda worker, _: os.kill(worker, signal.SIGKILL)),
            "kill child": lambda: self._hit(lambda _, child: os.kill(child, signal.SIGKILL)),
            "kill group": lambda: self._hit(lambda worker, _: os.killpg(worker, signal.SIGKILL)),
            "terminate": lambda: self._hit(lambda worker, _: os.kill(worker, signal.SIGTERM)),
            "freeze": lambda: self._hit(self._freeze),
            "kill broker": self._kill_broker,
            "lock": self._lock,
            "damage": self._damage,
            "fill": self._fill,
            "cut connections": lambda: self._to_postgres(Postgres.cut_connections),
            "restart database": lambda: self._to_postgres(Postgres.restart),
        }
        return hits[fault]()

    def _hit(self, blow: Callable[[int, int], object]) -> bool:
        """A worker with a child at work; not while an experiment has seen too many deaths in a row.

        Who is frozen is to wake up again and try to write.
        """
        if self._tired():
            return False
        spared = {held.pid for _, held in self._frozen} | {
            pid for until, pid in self._awake if until > time.monotonic()
        }
        candidates = [
            (worker.pid, child)
            for worker in self._workers
            if worker.poll() is None and not spared & set(children(worker.pid))
            for child in children(worker.pid)
            if is_at_work(child)
        ]
        if not candidates:
            return False
        try:
            blow(*self._dice.choice(candidates))
        except (ProcessLookupError, DBAPIError):
            return False
        return True

    def _tired(self) -> bool:
        query = select(col(Experiment.id)).where(
            col(Experiment.deaths) >= MOST_DEATHS, col(Experiment.state) == State.RUNNING
        )
        return self._read(query) != []

    def _freeze(self, _worker: int, child: int) -> None:
        held = self._holding(child)
        os.kill(child, signal.SIGSTOP)
        self._frozen.append((time.monotonic() + FROZEN_LEASES * self.settings.lease_seconds, held))

    def _let_thaw(self) -> None:
        fences = dict(self._read(select(col(Experiment.id), col(Experiment.fence)))) if self._frozen else {}
        for entry in list(self._frozen):
            until, held = entry
            lost = fences[held.experiment] > held.fence
            if lost or until < time.monotonic():
                self._frozen.remove(entry)
                with contextlib.suppress(ProcessLookupError):  # a watchdog or another fault was quicker
                    os.kill(held.pid, signal.SIGCONT)
                    self._awake.append((time.monotonic() + AWAKE_SECONDS, held.pid))
                    self.takeovers += lost

    def _to_postgres(self, blow: Callable[[Postgres], None]) -> bool:
        assert self.postgres is not None
        blow(self.postgres)
        return True

    def _kill_broker(self) -> bool:
        pid = int((self.settings.home / "broker.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        while self._broker.answers():
            time.sleep(0.05)
        self._broker.start()
        return True

    def _lock(self) -> bool:
        """An outsider holds the database."""
        try:
            with self._database.write() as session:
                if not self.settings.database.startswith("sqlite"):
                    session.execute(text("LOCK TABLE experiment IN ACCESS EXCLUSIVE MODE"))
                time.sleep(self._dice.choice(LOCK_SECONDS))
        except DBAPIError:
            return False
        return True

    def _damage(self) -> bool:
        """One file of the newest checkpoint, and then its owner dies, so that somebody has to do without it."""
        return self._hit(self._damage_and_kill)

    def _damage_and_kill(self, _worker: int, child: int) -> None:
        held = self._holding(child)
        [(manifest,)] = self._read(select(col(Experiment.checkpoint)).where(col(Experiment.id) == held.experiment))
        if manifest is None:
            raise ProcessLookupError("it has no checkpoint yet")
        os.kill(child, signal.SIGSTOP)
        folder = checkpoint_root(self.settings) / held.experiment
        try:
            names = json.loads((folder / manifest).read_text())
            files = [manifest, names["server"]["file"], *(entry["file"] for entry in names["clients"].values())]
            path, kind = folder / self._dice.choice(files), self._dice.choice(["delete", "cut", "flip"])
            content = path.read_bytes()
            if kind == "delete":
                path.unlink()
            elif kind == "cut":
                path.write_bytes(content[: len(content) // 2])
            else:
                place = self._dice.randrange(len(content))
                path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        except (OSError, ValueError, KeyError) as error:  # replaced meanwhile, or damaged before
            raise ProcessLookupError from error
        finally:
            os.kill(child, signal.SIGKILL)

    def _holding(self, child: int) -> Holding:
        for holding in holdings(self.settings, self._database):
            if holding.pid == child:
                return holding
        raise ProcessLookupError(f"process {child} holds nothing")

    def _fill(self) -> bool:
        """Not a byte is left beside the checkpoints for a while."""
        ballast = checkpoint_root(self.settings) / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:  # until there is no space left
            while True:
                file.write(bytes(1 << 20))
        time.sleep(FULL_SECONDS)
        ballast.unlink()
        return True

    # -- the processes --------------------------------------------------------------------------------------------

    def _keep_workers(self) -> None:
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < self.plan.workers:
            worker = subprocess.Popen(
                fedarena("worker"),
                env=environment(self.settings),
                cwd=ROOT,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            self._workers.append(worker)
            self._groups.add(worker.pid)

    def _end_everything(self) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for worker in self._workers:
            worker.wait()
        if not self.settings.broker_url:
            self._broker.stop()
        self._log.close()

    # -- the store ------------------------------------------------------------------------------------------------

    def _states(self, ids: list[str]) -> list[str]:
        found = dict(self._read(select(col(Experiment.id), col(Experiment.state))))
        return [found[key].value for key in ids]

    def _rounds(self) -> int:
        [(rounds,)] = self._read(select(func.sum(col(Experiment.next_round))))
        return int(rounds)

    def _all_ended(self, ids: list[str]) -> bool:
        return all(State(state).is_finished() for state in self._states(ids))

    def _read(self, query: Any) -> list[Any]:
        """The store may be away just now: that is one of the faults."""
        while True:
            try:
                with self._database.read() as session:
                    return list(session.execute(query).all())
            except DBAPIError:
                time.sleep(0.2)


def spec_of(number: int, plan: Plan) -> dict[str, Any]:
    """Different methods and seeds."""
    return {
        "rounds": plan.rounds,
        "algorithm": ALGORITHMS[number % len(ALGORITHMS)],
        "clients": 4,
        "participation": 0.5,
        "training": {"epochs": plan.epochs, "batch_size": 16},
        "seed": number,
    }


def undisturbed(number: int, plan: Plan) -> list[dict[str, Any]]:
    """The records of the same experiment, run without faults."""
    spec = ExperimentSpec.parse(spec_with(**spec_of(number, plan)))
    return [record.without_times() for record in Run(spec, threads=1).rounds()]


def undisturbed_sweep(count: int, plan: Plan) -> list[list[dict[str, Any]]]:
    """All of them; many are shared out to two processes, which first have to import torch."""
    if count * plan.rounds * plan.epochs < 10_000:
        return [undisturbed(number, plan) for number in range(count)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(undisturbed, range(count), [plan] * count))


def checkpoint_root(settings: Settings) -> Path:
    return Path(settings.storage) / CHECKPOINTS


def is_at_work(pid: int) -> bool:
    """A pool child with torch in memory has claimed something."""
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
