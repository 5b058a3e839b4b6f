"""Measures a sweep through the queue against the same experiments without it: `make bench`.

Eight small experiments of different length. The queue's two slots take them as they come; the best static split knows
how long each takes and deals them out to two processes beforehand; one at a time uses both cores for each. The clock
runs from the submission, or from the start of the processes, to the last round. Times are medians of interleaved
repeats.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.client import FedArena
from app.config import Settings

SLOTS = 2
DOCUMENT: dict[str, Any] = {
    "name": "bench",
    "base": {
        "dataset": {"name": "synthetic", "samples_per_class": 600},
        "partition": {"name": "iid"},
        "models": {"family": "cnn-1"},
        "clients": 10,
        "rounds": 6,
        "training": {"epochs": 1, "batch_size": 64},
    },
    "grid": {"algorithm.name": ["fedavg", "standalone", "ditto", "fedproto"]},
    "seeds": [1, 2],
    "reuse": False,
}


def specs() -> list[dict[str, Any]]:
    names, seeds = DOCUMENT["grid"]["algorithm.name"], DOCUMENT["seeds"]
    return [{**DOCUMENT["base"], "algorithm": {"name": name}, "seed": seed} for seed in seeds for name in names]


def run_here(values: Sequence[dict[str, Any]], threads: int, times: Any) -> None:
    from engine.runtime.executor import prepare_process
    from engine.runtime.run import Run
    from engine.spec.experiment import ExperimentSpec

    prepare_process()
    measured = []
    for value in values:
        started = time.perf_counter()
        for _ in Run(ExperimentSpec.parse(value), threads=threads).rounds():
            continue
        measured.append(time.perf_counter() - started)
    times.put(measured)


def in_processes(shares: Sequence[Sequence[dict[str, Any]]], threads: int) -> tuple[float, list[list[float]]]:
    """Each share in a process of its own, all at once: seconds until the last has ended, and of each experiment."""
    context = multiprocessing.get_context("spawn")
    queues = [context.Queue() for _ in shares]
    started = time.perf_counter()
    processes = [
        context.Process(target=run_here, args=(share, threads, queue))
        for share, queue in zip(shares, queues, strict=True)
    ]
    for process in processes:
        process.start()
    measured = [queue.get() for queue in queues]
    for process in processes:
        process.join()
    return time.perf_counter() - started, measured


def best_split(seconds: Sequence[float]) -> list[list[int]]:
    """The two shares whose longer one is shortest, of all there are."""
    numbers = range(len(seconds))
    splits = (
        [list(some), [number for number in numbers if number not in some]]
        for size in numbers
        for some in itertools.combinations(numbers, size)
    )
    return min(splits, key=lambda split: max(sum(seconds[number] for number in share) for share in split))


class Service:
    """`fedarena serve` with two slots, in a home of its own."""

    def __init__(self, folder: str) -> None:
        self._settings = Settings(home=Path(folder), starter=False, port=0)
        environment = {**os.environ, **self._settings.environment(), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "app.cli", "serve", "--workers", str(SLOTS)]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is ready
        self._arena = FedArena(self._settings.address_file.read_text())
        while not self._arena.workers():
            time.sleep(0.1)

    def sweep(self) -> float:
        started = time.perf_counter()
        key = self._arena.submit_sweep(DOCUMENT)["id"]
        view = self._arena.wait_sweep(key, every=0.1)
        seconds = time.perf_counter() - started
        if view["counts"] != {"finished": len(specs())}:
            raise SystemExit(f"the sweep did not finish: {view['counts']}")
        return seconds

    def stop(self) -> None:
        self._arena.close()
        self._process.terminate()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    values = specs()
    _, measured = in_processes([values[:4], values[4:]], threads=1)  # both cores busy, as they will be
    split = best_split([*measured[0], *measured[1]])
    times: dict[str, list[float]] = {"through the queue": [], "best static split": [], "one at a time": []}
    with tempfile.TemporaryDirectory(prefix="fa-") as folder:
        service = Service(folder)
        try:
            for _ in range(options.repeats):
                times["through the queue"].append(service.sweep())
                shares = [[values[number] for number in share] for share in split]
                times["best static split"].append(in_processes(shares, threads=1)[0])
                times["one at a time"].append(in_processes([values], threads=SLOTS)[0])
        finally:
            service.stop()
    print(f"\nA sweep of {len(values)} small experiments, {SLOTS} slots")
    best = statistics.median(times["best static split"])
    for name, seconds in times.items():
        print(
            f"  {name:<42}{statistics.median(seconds):9.3f} s   × {statistics.median(seconds) / best:.2f} of the split"
        )


if __name__ == "__main__":
    main()
