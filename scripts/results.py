"""Runs the experiments of a results file and writes their table: `scripts/results.py docs/results/NAME.yaml`.

Every experiment is one `fedarena run` with one thread; as many run at once as there are cores. What is finished already
is not run again, so the command can be stopped and repeated. Outputs lie in results/NAME, the table in
docs/results/NAME.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import yaml

from engine.algorithms import REGISTRY
from engine.records import CostToTarget, RoundRecord, cost_to_target
from engine.spec import ExperimentSpec

ROOT = Path(__file__).resolve().parent.parent


def plan(study: dict[str, Any]) -> list[tuple[str, int, ExperimentSpec]]:
    """The first seed of every method before the second, so that the table fills evenly."""
    return [
        (
            algorithm["name"],
            seed,
            ExperimentSpec.parse(
                {**study["base"], "algorithm": algorithm, "seed": seed, "name": f"{algorithm['name']}-{seed}"}
            ),
        )
        for seed in study["seeds"]
        for algorithm in study["algorithms"]
    ]


def run(spec: ExperimentSpec, folder: Path) -> str:
    """One experiment; returns what is to say about it."""
    result = folder / "result.json"
    if result.is_file() and json.loads(result.read_text())["fingerprint"] == spec.fingerprint():
        return "there already"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.canonical(), sort_keys=False, allow_unicode=True))
    command = [sys.executable, "-m", "app.cli", "run", str(file), "--out", str(folder)]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "FEDARENA_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    return "done" if ended.returncode == 0 else f"exit code {ended.returncode}: {ended.stderr.strip()[-300:]}"


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """Mean ± standard deviation over seeds; one seed has no deviation."""
    mean = statistics.fmean(values) * scale
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(values) * scale:.{digits}f}"


def row(name: str, runs: list[dict[str, Any]], target: float) -> str:
    costs: list[CostToTarget] = [
        cost_to_target([RoundRecord.model_validate(record) for record in run["rounds"]], target) for run in runs
    ]
    best = spread([run["headline"]["best_accuracy"] for run in runs], 100)
    final = spread([run["headline"]["final_accuracy"] for run in runs], 100)
    reached = [cost for cost in costs if cost.rounds is not None]
    cells = [REGISTRY[name].method.title, str(len(runs)), best, final]
    if len(reached) < len(costs):
        cells += [f"reached by {len(reached)} of {len(costs)}", "–", "–"]
    else:
        cells += [
            spread([float(cost.rounds or 0) for cost in reached], digits=1),
            spread([(cost.bytes or 0) / 1e6 for cost in reached], digits=1),
            spread([(cost.flops or 0) / 1e12 for cost in reached], digits=2),
        ]
    return "| " + " | ".join(cells) + " |"


def table(study: dict[str, Any], outputs: Path, name: str) -> str:
    target = study["target"]
    lines = [
        f"# {study['title']}",
        "",
        f"Measured by `.venv/bin/python scripts/results.py docs/results/{name}.yaml` ([the experiments]({name}.yaml))",
        f"on {os.cpu_count()} cores ({platform.machine()}) with torch {torch.__version__}.",
        "Best and final accuracy in %, mean ± standard deviation over seeds. Costs to target are the papers': the mean",
        "of a round times the rounds to the target; bytes of the whole cohort, FLOPs of one participant.",
        "",
        f"| method | seeds | best | final | rounds to {target:.0%} | MB to {target:.0%} | TFLOP to {target:.0%} |",
        "|---|---|---|---|---|---|---|",
    ]
    for algorithm in study["algorithms"]:
        runs = [
            json.loads(path.read_text())
            for seed in study["seeds"]
            if (path := outputs / f"{algorithm['name']}-{seed}" / "result.json").is_file()
        ]
        if runs:
            lines.append(row(algorithm["name"], runs, target))
    notes = ROOT / "docs" / "results" / f"{name}.notes.md"
    return "\n".join(lines) + "\n" + (f"\n{notes.read_text()}" if notes.is_file() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", help="only these seeds")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the table of what is there")
    options = parser.parse_args()
    study = yaml.safe_load(options.study.read_text())
    name = options.study.stem
    outputs = ROOT / "results" / name
    if not options.table_only:
        jobs = [(f"{method}-{seed}", spec) for method, seed, spec in plan(study) if seed in (options.seeds or [seed])]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            told = pool.map(lambda job: (job[0], run(job[1], outputs / job[0])), jobs)
            for number, (job, outcome) in enumerate(told, 1):
                print(f"{number}/{len(jobs)} {job}: {outcome}", flush=True)
    (ROOT / "docs" / "results" / f"{name}.md").write_text(table(study, outputs, name))


if __name__ == "__main__":
    main()
