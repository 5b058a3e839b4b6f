"""The rounds of a run kept in a folder, so that a run that was killed goes on where it stopped."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.records import RoundRecord
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec


class OtherExperiment(Exception):
    """The folder belongs to another spec."""


class Journal:
    """One line for the spec, one a round; beside it the checkpoints."""

    def __init__(self, folder: Path, spec: ExperimentSpec) -> None:
        self.path = folder / "rounds.jsonl"
        self.spec = spec
        self._checkpoints = Checkpoints(folder / "checkpoints", writer=str(os.getpid()))
        self.records = self._read()

    def _read(self) -> list[RoundRecord]:
        """What an earlier run left; the last line may be torn."""
        if not self.path.is_file():
            return []
        head, *lines = self.path.read_text(encoding="utf-8").splitlines() or [""]
        found = _fingerprint(head)
        if found != self.spec.fingerprint():
            raise OtherExperiment(
                f"{self.path.parent} holds the experiment {(found or 'unknown')[:12]}, "
                f"not {self.spec.fingerprint()[:12]}; choose another folder or remove it"
            )
        records: list[RoundRecord] = []
        for line in lines:
            try:
                record = RoundRecord.model_validate_json(line)
            except ValidationError:
                break
            if record.round != len(records):
                break
            records.append(record)
        return records

    def run(self, **options: Any) -> tuple[Run, Iterator[RoundRecord]]:
        """The run and its records: those that are there already, then the rest, each written before it is handed on."""
        snapshot = self._checkpoints.newest(self.spec.fingerprint(), before=len(self.records))
        self.records = self.records[: 0 if snapshot is None else snapshot.round + 1]
        run = Run(self.spec, resume_from=snapshot, **options)
        return run, self._rounds(run)

    def _rounds(self, run: Run) -> Iterator[RoundRecord]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"fingerprint": self.spec.fingerprint()}), *(r.model_dump_json() for r in self.records)]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        temporary.rename(self.path)
        yield from list(self.records)
        with self.path.open("a", encoding="utf-8") as file:
            for record, saved in rounds_with_checkpoints(run, self._checkpoints):
                file.write(record.model_dump_json() + "\n")
                file.flush()
                if saved is not None:
                    self._checkpoints.prune()
                self.records.append(record)
                yield record


def _fingerprint(line: str) -> str | None:
    try:
        head = json.loads(line)
    except ValueError:
        return None
    return head.get("fingerprint") if isinstance(head, dict) else None
