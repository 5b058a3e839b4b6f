"""Name, tags and notes of an experiment: for people, not part of the fingerprint, so they may change at any time."""

from collections.abc import Mapping
from typing import Any

from sqlmodel import Session

from app.store import experiments
from app.store.tables import Experiment

FIELDS = ("name", "tags", "notes")


def relabel(session: Session, experiment: str, labels: Mapping[str, Any]) -> Experiment | None:
    """Write the labels given, in the row and in its spec alike; None: there is no such experiment."""
    row = session.get(Experiment, experiment, with_for_update=True)
    if row is None:
        return None
    for name in FIELDS:
        if name in labels:
            setattr(row, name, labels[name])
    row.spec = {**row.spec, **{name: labels[name] for name in FIELDS if name in labels}}
    experiments.touch(session, row)
    return row
