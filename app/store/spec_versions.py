"""Specs that an earlier version stored are rewritten for this one, so that equal ones have equal fingerprints again."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlmodel import col

from app.store.claims import lock
from app.store.database import Database
from app.store.experiments import full_spec, with_deleted, without_annotations
from app.store.tables import Experiment
from engine.spec.versions import UPGRADES, Upgrade, upgraded

if TYPE_CHECKING:
    from engine.spec.experiment import ExperimentSpec

AT_ONCE = 500

log = logging.getLogger(__name__)


def upgrade_specs(database: Database, before: Callable[[], None], upgrades: Sequence[Upgrade] = UPGRADES) -> int:
    """How many there were. `before` is called once, if there are any; what cannot be understood stays as it is."""
    version, changed, last = 1 + len(upgrades), 0, ""
    older = with_deleted().where(col(Experiment.spec_version) < version).order_by(col(Experiment.id)).limit(AT_ONCE)
    while True:
        with database.read() as session:
            rows = list(session.scalars(older.where(col(Experiment.id) > last)))
        if not rows:
            return changed
        last = rows[-1].id
        specs = {row.id: spec for row in rows if (spec := _upgraded(row, upgrades)) is not None}
        if specs and not changed:
            before()
        with database.write() as session:
            for row in lock(session, older.where(col(Experiment.id).in_(specs))):
                spec = specs[row.id]
                row.spec, row.fingerprint = without_annotations(spec.canonical()), spec.fingerprint()
                row.spec_version = version
        changed += len(specs)


def _upgraded(row: Experiment, upgrades: Sequence[Upgrade]) -> "ExperimentSpec | None":
    from engine.spec.experiment import ExperimentSpec  # here: it brings torch, and there is rarely anything to do

    try:
        return ExperimentSpec.parse(upgraded(full_spec(row), row.spec_version, upgrades))
    except (LookupError, TypeError, AttributeError, ValueError) as error:  # the row may hold anything
        log.warning("the spec of experiment %s stays as version %d stored it: %s", row.id, row.spec_version, error)
        return None
