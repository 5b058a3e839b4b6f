"""Runs a sweep of docs/results and writes its table: `scripts/results.py docs/results/NAME.yaml`.

The sweep goes through the queue of a FedArena of its own, which keeps everything in results/home and runs one
experiment a core. What is finished is not run again, whichever document asked for it, so the command can be stopped and
repeated. Finished folders of `fedarena run SPEC --out results/FOLDER` count too. The table is written to
docs/results/NAME.md, the curves beside it as NAME.svg and NAME.csv, and every finished run to docs/results/runs, from
where the next machine takes it instead of running it again.
"""

import argparse
import csv
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from app.client import FedArena, Unreachable
from app.comparison import figure
from app.comparison.curves import mean_curves
from app.config import Settings
from app.store import experiments, lifecycle, queue, rounds, sweeps
from app.store.database import Database
from app.store.migrate import migrate
from app.store.plan import Plan
from app.store.states import State
from app.sweep_table import convergence_mark
from app.sweeps import Cell, SweepPlan, SweepSpec, label, make_plan
from app.views.experiments import not_converged
from engine.methods import REGISTRY
from engine.records import NO_CONVERGENCE, CostToTarget, RoundRecord, cost_to_target, headline
from engine.spec.experiment import ExperimentSpec

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 120.0
CURVE = ("round", "accuracy", "loss", "bytes_up", "bytes_down", "client_flops", "server_flops", "eval_flops")
"""Columns of NAME.csv after method and seed: what does not depend on the machine."""
SMOOTH = 5
"""Tests that a point of NAME.svg is the mean of: a round tests its cohort alone, which differs from round to round."""


def private_settings(outputs: Path) -> Settings:
    """A home of its own, but the data sets of the usual one."""
    usual = Settings()
    return usual.model_copy(
        update={"home": outputs / "home", "data": usual.data_root, "port": 0, "threads": 1, "starter": False}
    )


def adopt(database: Database, outputs: Path, shipped: Path) -> int:
    """Store what `fedarena run` has finished below `outputs` and the runs shipped, unless they are stored already."""
    adopted = 0
    for file in [*sorted(outputs.glob("*/result.json")), *sorted(shipped.glob("*.json.gz"))]:
        result = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
        spec = ExperimentSpec.parse(result["spec"])
        records = [RoundRecord.model_validate(record) for record in result["rounds"]]
        if not records or records[-1].round != spec.rounds:
            continue
        with database.write() as session:
            if sweeps.reusable(session, [spec.fingerprint()], Plan()):
                continue
            row = experiments.submit(session, spec.canonical(), spec.fingerprint())
            row.priority = 2**30  # claimed next, whatever else is queued
            session.flush()
            claim = queue.claim(session, f"{file}", 60)
            if claim is None or claim.experiment != row.id:
                raise RuntimeError(f"{file} could not be stored: another process works in {database}")
            found = (result["partition_fingerprint"], result.get("environment") or {}, result.get("majority_share"))
            lifecycle.begin(session, claim, *found)
            for record in records:
                rounds.commit_round(session, claim, record, 60)
        adopted += 1
    return adopted


def ship(database: Database, runs: Sequence[Sequence["Finished"]], shipped: Path) -> None:
    """Write every finished run as one compressed file, in the words of `fedarena run --out` and with the same bytes."""
    shipped.mkdir(exist_ok=True)
    with database.read() as session:
        rows = experiments.get_many(session, [run.id for found in runs for run in found])
    for run in (run for found in runs for run in found):
        row = rows[run.id]
        result = {
            "spec": experiments.full_spec(row),
            "fingerprint": row.fingerprint,
            "partition_fingerprint": row.partition_fingerprint,
            "environment": row.environment,
            "majority_share": row.majority_share,
            "rounds": run.records,
        }
        file = shipped / f"{row.fingerprint[:16]}.json.gz"
        if not file.exists():
            file.write_bytes(
                gzip.compress(json.dumps(result, separators=(",", ":"), allow_nan=False).encode(), mtime=0)
            )


@contextmanager
def serving(settings: Settings) -> Iterator[FedArena]:
    """A FedArena with these settings, as long as the block lasts."""
    settings.address_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "app.cli", "serve", "--workers", str(os.cpu_count() or 1)]
    with (settings.home / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **settings.environment()}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        with FedArena(_address(settings, process)) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def _address(settings: Settings, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if settings.address_file.is_file() and (address := settings.address_file.read_text().strip()):
            try:
                with FedArena(address) as client:
                    client.sweeps(limit=1)
            except Unreachable:
                pass
            else:
                return address
        time.sleep(1)
    raise RuntimeError(f"FedArena did not start; see {settings.home / 'serve.log'}")


def run(settings: Settings, sweep: SweepSpec) -> None:
    """Submit the sweep and tell how it goes until all its experiments have ended."""
    with serving(settings) as client:
        key = client.submit_sweep(sweep.document())["id"]
        print(f"{client.address}/sweeps/{key}", flush=True)
        for view in client.follow_sweep(key, every=10):
            counts = ", ".join(f"{count} {state}" for state, count in view["counts"].items())
            print(f"{view['rounds_done']} of {view['rounds_total']} rounds: {counts}", flush=True)


@dataclass(frozen=True)
class Finished:
    """One finished experiment."""

    id: str
    seed: int
    records: list[dict[str, Any]]
    clients: list[float]
    """The newest accuracy of every client."""
    no_convergence: bool


def finished(database: Database, plan: SweepPlan) -> list[list[Finished]]:
    """The finished experiments of every cell."""
    found: list[list[Finished]] = [[] for _ in plan.cells]
    with database.read() as session:
        known = sweeps.reusable(session, [point.fingerprint for point in plan.points], Plan())
        for point in plan.points:
            key, state = known.get(point.fingerprint, ("", None))
            if state is State.FINISHED:
                newest = rounds.latest_client_accuracy(session, key, point.spec.clients)
                clients = [value for value in newest.values() if value is not None]
                row = experiments.get_many(session, [key])[key]
                mark = not_converged(row, row.spec)
                found[point.cell].append(Finished(key, point.seed, rounds.after(session, key), clients, mark))
    return found


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """Mean ± standard deviation over seeds; one seed has no deviation."""
    mean = statistics.fmean(values) * scale
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(values) * scale:.{digits}f}"


def row(title: str, runs: Sequence[Finished], target: float) -> str:
    records = [[RoundRecord.model_validate(record) for record in run.records] for run in runs]
    numbers = [headline(found) for found in records]
    costs: list[CostToTarget] = [cost_to_target(found, target) for found in records]
    cells = [
        title + convergence_mark(sum(run.no_convergence for run in runs), len(runs)),
        str(len(runs)),
        spread([number.best_accuracy or 0.0 for number in numbers], 100),
        spread([number.final_accuracy or 0.0 for number in numbers], 100),
        spread([statistics.fmean(run.clients) for run in runs], 100),
    ]
    reached = [cost for cost in costs if cost.rounds is not None]
    if len(reached) < len(costs):
        cells += [f"reached by {len(reached)} of {len(costs)}", *["–"] * 4]
    else:
        cells += [
            spread([float(cost.rounds or 0) for cost in reached], digits=1),
            spread([(cost.bytes or 0) / 1e6 for cost in reached], digits=1),
            spread([(cost.flops or 0) / 1e12 for cost in reached], digits=2),
            spread([(cost.spent_bytes or 0) / 1e6 for cost in reached], digits=1),
            spread([(cost.spent_flops or 0) / 1e12 for cost in reached], digits=2),
        ]
    return "| " + " | ".join(cells) + " |"


def title(cell: Cell) -> str:
    """The method's title and what was set of it where only methods are compared; otherwise the swept values."""
    method = cell.get("algorithm")
    if len(cell) > 1 or not isinstance(method, dict):
        return label(cell)
    settings = [f"{name} {value}" for name, value in method.items() if name != "name"]
    return ", ".join([REGISTRY[str(method["name"])].method.title, *settings])


def table(plan: SweepPlan, runs: Sequence[Sequence[Finished]], name: str) -> str:
    report = plan.sweep.report
    if report is None or report.target is None:
        raise SystemExit("the document needs report: {target: …} for the costs of the table")
    target = report.target
    lines = [
        f"# {plan.sweep.name}",
        "",
        f"Measured by `.venv/bin/python scripts/results.py docs/results/{name}.yaml` ([the experiments]({name}.yaml))",
        f"on {os.cpu_count()} cores ({platform.machine()}) with torch {torch.__version__}.",
        "Accuracies in %, mean ± standard deviation over seeds: of the best and of the last round, both over the",
        "clients tested in that round, and of all clients, each with its newest test. Costs to target are the papers':",
        "the mean of all rounds times the rounds to the target; beside them what was spent until then, the opening",
        "included. Bytes are those of the whole cohort, FLOPs those of one participant.",
        "",
        f"![Accuracy by round]({name}.svg)",
        "",
        f"Each point is the mean of the last {SMOOTH} tests and of all seeds, with a band of one standard deviation.",
        f"[Every round as CSV]({name}.csv).",
        "",
        "| method | seeds | best round | last round | all clients "
        f"| rounds to {target:.0%} | MB to {target:.0%} | TFLOP to {target:.0%} | MB spent | TFLOP spent |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [row(title(cell), found, target) for cell, found in zip(plan.cells, runs, strict=True) if found]
    if any(run.no_convergence for found in runs for run in found):
        lines += ["", f"† {NO_CONVERGENCE}."]
    notes = ROOT / "docs" / "results" / f"{name}.notes.md"
    return "\n".join(lines) + "\n" + (f"\n{notes.read_text()}" if notes.is_file() else "")


def write_curves(database: Database, plan: SweepPlan, runs: Sequence[Sequence[Finished]], stem: Path) -> None:
    """STEM.csv with every round and STEM.svg with the means over seeds."""
    with stem.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("method", "seed", *CURVE))
        for cell, found in zip(plan.cells, runs, strict=True):
            for run in found:
                writer.writerows((title(cell), run.seed, *(record[name] for name in CURVE)) for record in run.records)
    keys = [run.id for found in runs for run in found]
    with database.read() as session:
        rows = list(experiments.get_many(session, keys).values())
        lines = mean_curves(session, rows, x="round", y="accuracy", smooth=SMOOTH)
    frame = figure.Frame("round", "accuracy", plan.sweep.report.target if plan.sweep.report else None)
    stem.with_suffix(".svg").write_bytes(figure.draw(lines, frame, "svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", help="only these seeds")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the table of what is there")
    parser.add_argument("--outputs", type=Path, help="folder of the experiments; default: results")
    parser.add_argument("--table", type=Path, help="where to write the table; default: docs/results/NAME.md")
    options = parser.parse_args()
    name = options.sweep.stem
    sweep = SweepSpec.from_text(options.sweep.read_text())
    outputs = options.outputs or ROOT / "results"
    settings = private_settings(outputs.absolute())
    plan = make_plan(sweep, settings.data_root)
    if not options.table_only:  # a table alone needs no data
        plan.or_raise()
    settings.prepare_home()
    database = Database(settings.database)
    migrate(database)
    written = options.table or ROOT / "docs" / "results" / f"{name}.md"
    shipped = written.parent / "runs"
    adopt(database, outputs, shipped)
    if not options.table_only:
        run(settings, sweep.model_copy(update={"seeds": tuple(options.seeds)}) if options.seeds else sweep)
    found = finished(database, plan)
    ship(database, found, shipped)
    written.write_text(table(plan, found, name))
    write_curves(database, plan, found, written)
    database.close()


if __name__ == "__main__":
    main()
