"""Commands that need no service: run a spec here and now, list what a spec may name."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.cli.arguments import (
    AsJson,
    Compile,
    Device,
    Precision,
    SpecFile,
    Stacked,
    read_settings,
    read_spec,
    refuse_spec,
)
from app.cli.output import complain, err, print_json, refuse, say, show
from app.exits import DIVERGED, FAILED, INTERRUPTED, OK

if TYPE_CHECKING:
    from engine.records import RoundRecord
    from engine.runtime.run import Run
    from engine.spec.experiment import ExperimentSpec


def run(
    spec_file: SpecFile,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for result.json, rounds.csv and checkpoints")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; default: all cores")] = None,
    device: Device = None,
    precision: Precision = None,
    compile: Compile = None,
    stacked: Stacked = None,
    weights: Annotated[
        list[Path] | None, typer.Option("--weights", help="A weights file that models.pretrained names; repeatable")
    ] = None,
    features: Annotated[Path | None, typer.Option("--features", help="Write features and their t-SNE here")] = None,
    save_weights: Annotated[Path | None, typer.Option("--save-weights", help="Write the trained networks here")] = None,
) -> None:
    """Run a spec here and now, without any service. With --out, a run that was killed resumes where it stopped."""
    settings = read_settings(device=device, precision=precision, compile=compile, stacked=stacked, threads=threads)
    spec = read_spec(spec_file)
    from engine import catalogue
    from engine.runtime.device import DeviceUnavailable
    from engine.runtime.journal import Journal, OtherExperiment
    from engine.runtime.run import Run
    from engine.spec.problems import SpecError
    from workers import machine

    try:
        shelf = _shelf(weights or [])
        catalogue.check(spec, settings.data_root, shelf.__getitem__)
    except SpecError as error:
        refuse_spec(error)
    records: list[RoundRecord] = []
    options: dict[str, Any] = {
        "data_root": settings.data_root,
        "threads": settings.threads or machine.cores(),
        **settings.compute,
        "weights": shelf.__getitem__,
    }
    if out_dir is not None:
        _make_folder(out_dir)
    try:
        if out_dir is None:
            job = Run(spec, **options)
            rounds = job.rounds()
        else:
            job, rounds = Journal(out_dir, spec).run(**options)
    except (OtherExperiment, DeviceUnavailable) as error:
        refuse(str(error))
    code = _train(spec, rounds, records)
    if out_dir is not None:
        try:
            _write_result(out_dir, spec, job, records)
        except OSError as error:
            complain(f"cannot write the result to {out_dir}: {error}")
            code = code or FAILED
    if code == OK:
        for kind, target in (("features", features), ("weights", save_weights)):
            if target is not None:
                _write_artifact(job, kind, target)
    _summary(spec, job, records, out_dir)
    raise typer.Exit(code)


def _train(spec: "ExperimentSpec", rounds: "Iterator[RoundRecord]", records: "list[RoundRecord]") -> int:
    """Collect the rounds behind a progress bar; gives the exit code. What came before an error stays collected."""
    from engine.runtime.device import DeviceMemoryError
    from engine.runtime.run import Diverged

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[accuracy]}"), console=err) as progress:
        bar = progress.add_task(escape(spec.name or spec.algorithm.name), total=spec.rounds, accuracy="")
        try:
            for record in rounds:
                records.append(record)
                shown = "" if record.accuracy is None else f"accuracy {record.accuracy:.1%}"
                progress.update(bar, completed=record.round, accuracy=shown)
        except Diverged as error:
            complain(f"{error}; try a smaller learning rate", "diverged")
            return DIVERGED
        except DeviceMemoryError as error:
            complain(str(error))
            return FAILED
        except OSError as error:
            complain(f"stopped, a file cannot be read or written: {error}")
            return FAILED
        except KeyboardInterrupt:
            complain("stopped; the rounds so far are kept")
            return INTERRUPTED
    return OK


def catalog(as_json: AsJson = False) -> None:
    """List algorithms, data sets, partitions and model families."""
    settings = read_settings()
    from engine.catalogue import catalogue

    known = catalogue(settings.data_root)
    if as_json:
        print_json(known)
        return
    for title, key in (("Algorithms", "algorithms"), ("Data sets", "datasets"), ("Partitions", "partitions")):
        table = Table("id", "what", title=title, title_justify="left")
        for item in known[key]:
            table.add_row(str(item["id"]), escape(str(item.get("title") or "")))
        show(table)
    table = Table("id", "members", "parameters (3×32×32, 10 classes)", title="Model families", title_justify="left")
    for family in known["models"]:
        members = family["members"]
        names = ", ".join(member["id"] for member in members)
        table.add_row(family["id"], names, ", ".join(f"{member['parameters']:,}" for member in members))
    show(table)


def _make_folder(folder: Path) -> None:
    """Before hours of training, which would have nowhere to go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        refuse(f"--out must be a folder that can be written, but {folder}: {error.strerror or error}")


def _shelf(files: list[Path]) -> dict[str, bytes]:
    """Weights files by their checksum."""
    shelf = {}
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            refuse(f"cannot read {file}: {error.strerror}")
        shelf[hashlib.sha256(content).hexdigest()] = content
    return shelf


def _write_artifact(run: "Run", kind: str, target: Path) -> None:
    """The first file under the name given, further ones beside it."""
    from engine.artifacts import parse_request

    try:
        for number, file in enumerate(parse_request(run.spec, kind, {}).make(run)):
            place = target if number == 0 else target.with_suffix(Path(file.name).suffix)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
            say(f"{place}  sha256 {hashlib.sha256(file.content).hexdigest()}")
    except (OSError, ValueError) as error:
        complain(f"no {kind}: {error}")
        raise typer.Exit(FAILED) from None


def _write_result(folder: Path, spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]") -> None:
    from app.numbers import finite
    from app.round_table import csv_lines
    from engine.records import headline

    rounds = [finite(record.model_dump()) for record in records]
    result = {
        "spec": spec.canonical(),
        "fingerprint": spec.fingerprint(),
        "partition_fingerprint": job.partition_fingerprint,
        "environment": job.environment,
        "rounds": rounds,
        "headline": headline(records).model_dump(),
        "majority_share": job.majority_share,
        "no_convergence": _not_converged(spec, job, records),
    }
    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    with (folder / "rounds.csv").open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_lines(rounds))


def _not_converged(spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]") -> bool:
    from engine.records import headline, headline_rule, no_convergence

    finished = bool(records) and records[-1].round == spec.rounds
    return finished and no_convergence(headline(records).judged(headline_rule(spec.canonical())), job.majority_share)


def _summary(spec: "ExperimentSpec", job: "Run", records: "list[RoundRecord]", folder: Path | None) -> None:
    from engine.records import NO_CONVERGENCE, headline

    numbers = headline(records)
    table = Table(show_header=False, title=escape(spec.name or spec.algorithm.name), title_justify="left")
    table.add_row("algorithm", spec.algorithm.name)
    table.add_row("data set", spec.dataset.name)
    table.add_row("rounds", f"{max(0, len(records) - 1)} of {spec.rounds}")
    if numbers.best_accuracy is not None and numbers.final_accuracy is not None:
        table.add_row("best accuracy", f"{numbers.best_accuracy:.2%} (round {numbers.best_round})")
        table.add_row("final accuracy", f"{numbers.final_accuracy:.2%}")
    if _not_converged(spec, job, records):
        table.add_row("", f"{NO_CONVERGENCE}: {job.majority_share:.2%}")
    if spec.evaluation.protocol == "C" and numbers.final_validation_accuracy is not None:
        table.add_row("final validation accuracy", f"{numbers.final_validation_accuracy:.2%}")
    elif numbers.best_validation_accuracy is not None and numbers.accuracy_at_best_validation is not None:
        where = f"round {numbers.best_validation_round}: {numbers.best_validation_accuracy:.2%} on validation"
        table.add_row("chosen on validation", f"{numbers.accuracy_at_best_validation:.2%} ({where})")
    table.add_row("bytes up", f"{sum(record.bytes_up for record in records):,}")
    table.add_row("bytes down", f"{sum(record.bytes_down for record in records):,}")
    table.add_row("client FLOPs", f"{sum(record.client_flops for record in records):.3g}")
    table.add_row("time", f"{sum(record.seconds for record in records):.1f} s")
    if folder is not None:
        table.add_row("written", escape(str(folder / "result.json")))
    show(table)
