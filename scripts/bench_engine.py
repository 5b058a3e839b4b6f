"""Measures the engine against loops written by hand, as ratios inside one run: `make bench`.

The plain loop is what a research script does: NCHW, default SGD, one client after the other. The tuned loop is the same
arithmetic with every trick of the engine but none of its structure. Times are medians of interleaved repeats.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, max_pool2d, relu

from engine.models import build
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.executor import prepare_process
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec

BATCH, LR = 64, 0.01


def spec(clients: int, per_client: int, *, cohort: int, rounds: int, family: str = "cnn-1") -> ExperimentSpec:
    classes = 10
    samples = -(-clients * per_client * 5 // 4 // classes)
    return ExperimentSpec.parse(
        {
            "algorithm": {"name": "fedavg" if family == "cnn-1" else "standalone"},
            "dataset": {"name": "synthetic", "samples_per_class": samples},
            "partition": {"name": "iid"},
            "models": {"family": family},
            "clients": clients,
            "participation": cohort / clients,
            "rounds": rounds,
            "training": {"epochs": 1, "batch_size": BATCH, "lr": LR, "momentum": 0, "weight_decay": 0, "clip": None},
            "evaluation": {"every": 100_000},
        }
    )


class PlainNet(torch.nn.Module):
    """CNN-1 as a research script writes it: ReLU before the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, 16, 5), torch.nn.Conv2d(16, 32, 5)
        self.fc1, self.fc2, self.fc3 = (
            torch.nn.Linear(800, 2000),
            torch.nn.Linear(2000, 500),
            torch.nn.Linear(500, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2).flatten(1)
        logits: torch.Tensor = self.fc3(relu(self.fc2(relu(self.fc1(x)))))
        return logits


def loop(model: torch.nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]], *, fused: bool | None) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, fused=fused)
    model.train()
    for images, labels in batches:
        optimiser.zero_grad()
        cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def plain_epoch(images: torch.Tensor, labels: torch.Tensor) -> None:
    order = torch.randperm(len(labels))
    loop(PlainNet(), ((images[i], labels[i]) for i in torch.split(order, BATCH)), fused=None)


def tuned_epoch(images: torch.Tensor, labels: torch.Tensor) -> None:
    model = build("cnn-1", (3, 32, 32), 10).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    order = torch.randperm(len(labels))
    batches = (
        (images[i].permute(0, 3, 1, 2).to(torch.float32).div_(255), labels[i]) for i in torch.split(order, BATCH)
    )
    loop(model, batches, fused=True)


def plain_process(pipe: Connection, clients: int, per_client: int) -> None:
    """The plain loop as a research script has it: its own process, torch's and malloc's defaults, one thread."""
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(0)
    data = [
        (torch.rand(per_client, 3, 32, 32, generator=draws), torch.randint(10, (per_client,), generator=draws))
        for _ in range(clients)
    ]
    while pipe.recv():
        for images, labels in data:
            plain_epoch(images, labels)
        pipe.send("done")


class PlainLoop:
    """Runs a round of the plain loop on request, so that it can be interleaved with the others."""

    def __init__(self, clients: int, per_client: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=plain_process, args=(theirs, clients, per_client))
        self._process.start()

    def __call__(self) -> None:
        self._pipe.send(True)
        self._pipe.recv()

    def close(self) -> None:
        self._pipe.send(False)
        self._process.join()


def round_seconds(run: Run, repeats: int) -> Callable[[], None]:
    iterator = run.rounds()
    next(iterator)

    def rounds() -> None:
        for _ in range(repeats):
            next(iterator)

    return rounds


def interleaved(work: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats + 1):  # the first pass warms up
        for name, step in work.items():
            started = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def show(title: str, seconds: dict[str, float], reference: str) -> None:
    print(f"\n{title}")
    for name, value in seconds.items():
        print(f"  {name:<42}{value:9.3f} s   × {seconds[reference] / value:.2f}")


def bench_round(clients: int, per_client: int, repeats: int) -> None:
    engine = spec(clients, per_client, cohort=clients, rounds=1000)
    run = Run(engine)
    shares = [(run.dataset.images[share.train], run.dataset.labels[share.train]) for share in run.partition.shares]
    plain = PlainLoop(clients, per_client)

    def tuned() -> None:
        for images, labels in shares:
            tuned_epoch(images, labels)

    work: dict[str, Callable[[], None]] = {
        "plain loop, one client after the other": plain,
        "tuned loop, one client after the other": tuned,
        "engine, one thread": round_seconds(run, 1),
        "engine, two threads": round_seconds(Run(engine, threads=2), 1),
    }
    show(
        f"A FedAvg round of {clients} clients × {per_client} images, CNN-1, batch {BATCH}",
        interleaved(work, repeats),
        "plain loop, one client after the other",
    )
    plain.close()


def bench_overhead(folder: str) -> None:
    engine = spec(100, 480, cohort=10, rounds=24, family="cnn-1-5")
    total = training = 0.0
    started = 0.0
    checkpoints = Checkpoints(Path(folder))
    written = []
    for record, saved in rounds_with_checkpoints(Run(engine), checkpoints):
        if saved is not None:
            checkpoints.prune()
            written.append(record.round)
        if record.round == 0:
            started = time.perf_counter()
        else:
            total += record.seconds
            training += record.client_seconds
    elapsed = time.perf_counter() - started
    print("\nN = 100, C = 10 %, CNN-1..5, 480 images a client, one thread, 24 rounds")
    print(f"  around training inside a round            {100 * (1 - training / total):9.2f} %")
    print(f"  checkpoints, of the whole                 {100 * (1 - total / elapsed):9.2f} %, after rounds {written}")


def measured_alone(engine: ExperimentSpec) -> tuple[float, float, int]:
    """Median seconds a round, largest resident MiB and clients with a state, of a run in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, engine).result()


def measured(engine: ExperimentSpec) -> tuple[float, float, int]:
    run = Run(engine)
    records = list(run.rounds())
    seconds = [record.seconds for record in records[2:] or records[1:]]
    seen = {client for record in records for client in record.cohort}
    return statistics.median(seconds), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(seen)


def bench_memory() -> None:
    print("\nResident memory, CNN-1..5, 16 images a client, one thread, each in its own process")
    for clients, cohort, rounds in ((100, 100, 2), (2000, 10, 60)):
        _, memory, seen = measured_alone(spec(clients, 16, cohort=cohort, rounds=rounds, family="cnn-1-5"))
        print(f"  N = {clients:<5} cohort {cohort:<4} {seen:5} clients took part   {memory:8.0f} MiB at most")


def bench_growth(sizes: list[int]) -> None:
    print("\nGrowth: a cohort of 10 clients × 16 images, CNN-1..5, one thread, each in its own process")
    for clients in sizes:
        seconds, memory, _ = measured_alone(spec(clients, 16, cohort=10, rounds=12, family="cnn-1-5"))
        print(f"  N = {clients:<6} {seconds:8.3f} s a round   {memory:8.0f} MiB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("growth", "memory", "round", "checkpoints")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all if none is named")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 100, 1000, 10_000])
    options = parser.parse_args()
    prepare_process()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} intra-op thread")
    asked = options.parts or parts
    if unknown := set(asked) - set(parts):
        parser.error(f"a part must be one of {', '.join(parts)}, but got {', '.join(sorted(unknown))}")
    if "growth" in asked:
        bench_growth(options.sizes)
    if "memory" in asked:
        bench_memory()
    if "round" in asked:
        bench_round(10, 500, options.repeats)
        bench_round(100, 50, options.repeats)
    if "checkpoints" in asked:
        with tempfile.TemporaryDirectory() as folder:
            bench_overhead(folder)


if __name__ == "__main__":
    main()
