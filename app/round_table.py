"""Rounds as a CSV file, the same from the command line and from the web."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.records import RoundRecord

COLUMNS = tuple(name for name in RoundRecord.model_fields if name != "traces")


def csv_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A header and a line a round; the cohort is written as `3 7`, client accuracies as `3=0.7 7=0.65`.

    What was left out is written as `3 message: 4 of its 9 numbers are not finite; 7 local work: …`.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow(["" if record[name] is None else _cell(record[name]) for name in COLUMNS])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _note(dropped: Mapping[str, Any]) -> str:
    who = "server" if dropped["client"] is None else dropped["client"]
    return f"{who} {dropped['part']}: {dropped['reason']}"


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "; ".join(_note(item) for item in value)
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value
