"""Specs of an earlier version: rewritten once, found by the fingerprint of today, and never in the way."""

import logging
from typing import Any

import pytest

from app.store import continuing, experiments, steering
from app.store.database import Database
from app.store.spec_versions import upgrade_specs
from engine.spec.experiment import ExperimentSpec
from engine.spec.versions import SPEC_VERSION
from tests.services import look, spec_with, submit


def renamed(spec: dict[str, Any]) -> dict[str, Any]:
    """As if version 2 had called `training.rate` by the name it has."""
    training = dict(spec["training"])
    return {**spec, "training": {"lr": training.pop("rate"), **training}}


def of_version_one(database: Database, **changes: Any) -> str:
    key = submit(database, **changes)
    with database.write() as session:
        row = experiments.get_one(session, key)
        training = dict(row.spec["training"])
        row.spec = {**row.spec, "training": {"rate": training.pop("lr"), **training}}
        row.fingerprint, row.spec_version = "1" * 64, 1
    return key


def test_a_new_experiment_has_the_newest_version(database: Database) -> None:
    assert look(database, submit(database)).spec_version == SPEC_VERSION


def test_an_old_spec_is_rewritten_once_and_found_by_its_fingerprint_of_today(database: Database) -> None:
    key, other = of_version_one(database, name="mine", tags=["night"]), of_version_one(database, seed=7)
    with database.write() as session:
        experiments.get_one(session, other).deleted_at = 1.0
    told: list[str] = []
    assert upgrade_specs(database, lambda: told.append("a copy"), (renamed,)) == 2
    assert upgrade_specs(database, lambda: told.append("a copy"), (renamed,)) == 0
    assert told == ["a copy"], "before the first row is changed, and only where there is one"
    spec = ExperimentSpec.parse(spec_with(name="mine", tags=["night"]))
    with database.read() as session:
        row = continuing.same(session, spec.fingerprint())
        assert row is not None
        assert (row.id, row.spec_version, experiments.full_spec(row)) == (key, 2, spec.canonical())
        hidden = experiments.get_with_deleted(session, other)
        assert hidden is not None
        assert (hidden.spec_version, experiments.stored_spec(hidden).seed) == (2, 7), "it may be restored"


def test_a_spec_that_cannot_be_rewritten_stays_and_can_be_deleted(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    old, key = of_version_one(database), submit(database)
    with database.write() as session:
        row = experiments.get_one(session, key)
        row.spec, row.spec_version = {"training": 3}, 1
        row.state = type(row.state).FAILED
    with caplog.at_level(logging.WARNING):
        assert upgrade_specs(database, lambda: None, (renamed,)) == 1
    assert f"the spec of experiment {key} stays as version 1 stored it" in caplog.text
    assert (look(database, key).spec, look(database, key).spec_version) == ({"training": 3}, 1)
    assert look(database, old).spec_version == 2, "it stops nobody else's"
    with database.write() as session, pytest.raises(experiments.NotUnderstood):
        steering.retry(session, key)
    with database.write() as session:
        assert steering.mark_deleted(session, key) is not None
