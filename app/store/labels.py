"""Name, tags and notes of an experiment: for people, not part of the fingerprint, so they may change at any time."""

from collections.abc import Mapping
from typing import Any

from sqlmodel import Session

from app.store import changes, lifecycle
from app.store.claims import Locked

FIELDS = ("name", "tags", "notes")


def relabel(session: Session, experiment: str, labels: Mapping[str, Any]) -> Locked | None:
    """Write the labels given, in the row and in its spec alike; None: there is no such experiment."""
    row = lifecycle.locked(session, experiment)
    if row is None:
        return None
    given = {name: labels[name] for name in FIELDS if name in labels}
    for name, value in given.items():
        setattr(row, name, value)
    row.spec = {**row.spec, **given}
    changes.touch(session, row)
    return row
