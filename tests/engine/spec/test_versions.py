"""Versions of the spec: what was stored once can be read for good."""

import json
from pathlib import Path
from typing import Any

from engine.spec.experiment import ExperimentSpec
from engine.spec.versions import SPEC_VERSION, upgraded

STORED = [json.loads(line) for line in Path(__file__).with_name("stored_specs.jsonl").read_text().splitlines()]
"""Complete specs as versions wrote them; lines are added, never changed. See docs/decisions/0009."""


def test_every_spec_that_was_stored_once_is_read_and_one_of_this_version_keeps_its_fingerprint() -> None:
    """A new field that is not marked LATER fails here."""
    found = [(line, ExperimentSpec.parse(upgraded(line["spec"], line["version"]))) for line in STORED]
    changed = [
        (line["spec"]["algorithm"]["name"], line["spec"]["partition"]["name"])
        for line, spec in found
        if line["version"] == SPEC_VERSION and spec.fingerprint() != line["fingerprint"]
    ]
    assert changed == []


def test_specs_of_this_version_are_among_those_that_were_stored() -> None:
    """Whoever adds an upgrade adds lines as the new version writes them."""
    assert {line["version"] for line in STORED} == set(range(1, SPEC_VERSION + 1))


def test_upgrades_lead_from_the_version_of_the_spec_to_the_newest_in_order() -> None:
    def second(spec: dict[str, Any]) -> dict[str, Any]:
        return {**spec, "steps": [*spec["steps"], 2]}

    def third(spec: dict[str, Any]) -> dict[str, Any]:
        return {**spec, "steps": [*spec["steps"], 3]}

    steps = [upgraded({"steps": []}, version, (second, third))["steps"] for version in (1, 2, 3)]
    assert steps == [[2, 3], [3], []]
