"""The methods: what each does, costs and reaches, made from its own file, the published numbers and the store."""

import difflib
import re
from itertools import zip_longest
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.comparison.palette import FAMILY_TITLES
from app.pages.equations import Run, typeset
from app.pages.rendering import database_of, error_page, render, settings_of
from app.pages.words import clients_text, dataset_text, partition_text
from app.store import changes, experiments
from app.store.sound import sound_spec
from app.store.tables import Experiment
from app.studies import costs, published
from app.views.experiments import judged, not_converged
from engine import catalogue
from engine.records import NO_CONVERGENCE, headline_rule

router = APIRouter(include_in_schema=False)

FAILED_TO_CONVERGE = "the papers print “-” for a run that did not converge; a finished run is then marked † here"
"""Stands for an accuracy in 56 places of the papers."""

_TOUCHING = re.compile(r"([),;:.]*)(.*?)(\(?)", re.DOTALL)

_SYMBOL = re.compile(r"^(\w[\u0300-\u036f]?\d?(?:_\w+)?): ")  # a description may begin with the paper's letter


@router.get("/methods")
def methods_page(request: Request) -> Response:
    known = _catalogue(request)["algorithms"]
    with database_of(request).read() as session:
        seq = changes.current(session)
        tried = experiments.counts_by_algorithm(session)
    groups = [
        {"title": title, "methods": [entry for entry in known if entry["family"] == family]}
        for family, title in FAMILY_TITLES.items()
    ]
    others = [entry for entry in known if entry["family"] not in FAMILY_TITLES]
    if others:
        groups.append({"title": "Other", "methods": others})
    return render(
        request,
        "methods.html",
        "methods",
        groups=groups,
        tried=tried,
        reference=costs.REFERENCE_WORDS,
        data={"seq": seq, "costs": {entry["id"]: costs.of(entry["id"]) for entry in known}},
    )


@router.get("/methods/{name}")
def method_page(request: Request, name: str) -> Response:
    known = {entry["id"]: entry for entry in _catalogue(request)["algorithms"]}
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, 3)
        rest = f"Did you mean {' or '.join(close)}?" if close else f"The methods are {', '.join(known)}."
        message = f"There is no method “{name}”. {rest}"
        return error_page(request, 404, message)
    method, head = known[name], catalogue.method_header(name)
    with database_of(request).read() as session:
        seq = changes.current(session)
        best = [_measured(row) for row in experiments.best_by_dataset(session, name)]
    equations = [
        {"label": line.label, "runs": typeset(line.text), "remark": typeset(line.remark)} for line in head.equations
    ]
    return render(
        request,
        "method.html",
        "methods",
        method=method,
        family=FAMILY_TITLES.get(method["family"], "Other"),
        header=head,
        title=head.purpose.partition(": ")[2],
        equations=equations,
        prose={"notes": _prose(head.notes), "readings": _prose(head.readings), "deviations": _prose(head.deviations)},
        parameters=[
            parameter(key, schema) for key, schema in method["parameters"]["properties"].items() if key != "name"
        ],
        published=_published(name),
        note=f"† {NO_CONVERGENCE}.",
        papers=published.papers(),
        measured=[row for row in best if row["accuracy"] is not None],
        reference=costs.REFERENCE_WORDS,
        data={"seq": seq, "costs": {name: costs.of(name)}},
    )


def _prose(text: str) -> list[tuple[list[Run], str]]:
    """Letters inside sentences are set like those of the equations; a name in backquotes is a field."""
    parts = text.replace("**", "").split("`")
    return [(_around(outside), name) for outside, name in zip_longest(parts[::2], parts[1::2], fillvalue="")]


def _around(text: str) -> list[Run]:
    """Marks and brackets that touch a field's name stay words."""
    before, middle, after = _TOUCHING.fullmatch(text.strip()).groups()  # type: ignore[union-attr] # it matches all
    ends = [[Run(words=mark)] if mark else [] for mark in (before, after)]
    return [*ends[0], *typeset(middle), *ends[1]]


def parameter(key: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter for a table: the letter of the paper, bounds in words, and what it means."""
    text = schema.get("description", "")
    letter = _SYMBOL.match(text)
    return {
        "name": key,
        "symbol": typeset(letter[1]) if letter else [],
        "help": _capital(text[letter.end() :] if letter else text),
        "default": schema.get("default", schema.get("const")),
        "range": _range(schema),
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _range(schema: dict[str, Any]) -> str:
    options = schema.get("anyOf", [schema])
    plain = next((option for option in options if option.get("type") != "null"), schema)
    nullable = " or null" if any(option.get("type") == "null" for option in options) else ""
    if "enum" in plain:
        return " | ".join(map(str, plain["enum"])) + nullable
    if plain.get("type") == "boolean":
        return "true | false"
    low, high = plain.get("minimum", plain.get("exclusiveMinimum")), plain.get("maximum", plain.get("exclusiveMaximum"))
    if low is None and high is None:
        return nullable.removeprefix(" or ")
    left = "(" if "exclusiveMinimum" in plain else "["
    right = ")" if "exclusiveMaximum" in plain else "]"
    return f"{left}{_number(low, '−∞')}, {_number(high, '∞')}{right}{nullable}"


def _number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:,g}" if abs(value) < 1e6 else f"{value:g}"


def _published(name: str) -> list[dict[str, Any]]:
    """Accuracies as rows of a table, most telling columns only."""
    return [
        {
            "id": row.id,
            "paper": row.paper,
            "place": row.place.replace("-", " "),
            "dataset": dataset_text(row.spec.get("dataset", {})),
            "partition": partition_text(row.spec.get("partition", {})),
            "models": row.spec.get("models", {}).get("family", ""),
            "clients": row.spec.get("clients", ""),
            "participation": row.spec.get("participation", ""),
            "value": row.printed or "",
            "status": row.status.replace("-", " "),
            "known": row.status == "value",
            "meaning": FAILED_TO_CONVERGE if row.status == "failed-to-converge" else None,
            "note": row.note or "",
        }
        for row in published.about(name)
    ]


def _measured(row: Experiment) -> dict[str, Any]:
    spec = sound_spec(row.spec)
    return {
        "id": row.id,
        "name": row.name or f"seed {spec['seed']}",
        "state": row.state.value,
        "dataset": dataset_text(spec["dataset"]),
        "partition": partition_text(spec["partition"]),
        "models": spec["models"]["family"],
        "clients": clients_text(spec),
        "accuracy": judged(row, spec),
        "round": "last" if headline_rule(spec) == "final" else row.best_round,
        "rounds": row.rounds,
        "no_convergence": not_converged(row, spec),
    }


def _catalogue(request: Request) -> dict[str, Any]:
    return catalogue.catalogue(settings_of(request).data_root)
