"""Writes the tables of the documentation, the types of the API's answers, the networks' sizes and the methods' costs
from the code.

A table stands between <!-- table: NAME --> and <!-- end -->; everything around it is written by hand. With `--check`
nothing is written: it says whether the pages are current.
"""

import argparse
import json
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config import Settings
from app.main import create_app
from app.studies import costs
from engine.data.spec import DatasetSpec, PartitionSpec
from engine.methods import REGISTRY
from engine.models import FAMILIES, sizes
from engine.records import Headline, RoundRecord
from engine.spec.evaluation import EvaluationSpec
from engine.spec.experiment import ExperimentSpec
from engine.spec.models import ModelsSpec
from engine.spec.training import TrainingSpec

ROOT = Path(__file__).resolve().parent.parent


PAGES = ("README.md", "docs/settings.md", "docs/spec.md")
ANSWERS = "static/js/api.d.ts"
BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"

    head = list(head)
    return line(head) + line("---" for _ in head) + "".join(map(line, rows))


def kind(annotation: Any, field: FieldInfo) -> str:
    """The type and its bounds in a few words: `number, > 0, ≤ 1`."""
    words = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path", type(None): "null"}
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        text = ", ".join(f"`{value}`" for value in arguments)
    elif annotation in words:
        text = words[annotation]
    elif typing.get_origin(annotation) in {list, tuple}:
        text = "list"
    elif typing.get_origin(annotation) is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        text = "object"
    elif arguments and type(None) in arguments:
        text = " or ".join(kind(part, FieldInfo()) for part in arguments)
    else:
        text = "object"
    bounds = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "max_length": "length ≤"}
    limits = [
        f"{sign} {getattr(part, name):,}"
        for part in field.metadata
        for name, sign in bounds.items()
        if getattr(part, name, None) is not None
    ]
    return ", ".join([text, *limits])


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, tuple) else f"`{value}`" if value != "" else "empty"


def meaning(name: str, field: FieldInfo) -> str:
    if not field.description:
        raise ValueError(f"the field {name!r} needs a description")
    return field.description


def keys(model: type[BaseModel], *, skip: Iterable[str] = ()) -> str:
    return table(
        ("key", "value", "default", "meaning"),
        (
            (f"`{name}`", kind(field.annotation, field), default(field), meaning(name, field))
            for name, field in model.model_fields.items()
            if name not in skip
        ),
    )


def fields(model: type[BaseModel]) -> str:
    return table(
        ("key", "value", "meaning"),
        ((f"`{name}`", kind(item.annotation, item), meaning(name, item)) for name, item in model.model_fields.items()),
    )


def variants(union: Any) -> str:
    """Data sets or partitions: each name with what it is and its own keys."""
    members = typing.get_args(typing.get_args(union)[0])
    common = set.intersection(*(set(member.model_fields) for member in members))
    rows = []
    for member in members:
        own = [
            f"`{name}` ({kind(field.annotation, field)}; {default(field)}): {field.description}"
            for name, field in member.model_fields.items()
            if name not in common
        ]
        names = typing.get_args(member.model_fields["name"].annotation)
        purpose = (member.__doc__ or "").strip().splitlines()[0]
        rows.append((", ".join(f"`{name}`" for name in names), purpose, "<br>".join(own)))
    return table(("name", "what it is", "own keys"), rows)


def settings() -> str:
    return table(
        ("variable", "value", "default", "meaning"),
        (
            (f"`FEDARENA_{name.upper()}`", kind(field.annotation, field), default(field), meaning(name, field))
            for name, field in Settings.model_fields.items()
        ),
    )


def methods() -> str:
    def source(method: Any) -> str:
        source = method.source
        text = f"{source.venue} {source.year}".strip() if source.year else "–"
        return f"[{text}]({source.link})" if source.link else text

    return table(
        ("id", "method", "published", "what is shared", "models"),
        (
            (
                f"`{name}`",
                algorithm.method.title,
                source(algorithm.method),
                algorithm.method.shares,
                algorithm.method.heterogeneous,
            )
            for name, algorithm in REGISTRY.items()
        ),
    )


def parameters() -> str:
    rows = [
        (f"`{name}`", f"`{key}`", kind(field.annotation, field), default(field), meaning(key, field))
        for name, algorithm in REGISTRY.items()
        for key, field in algorithm.Params.model_fields.items()
        if key != "name"
    ]
    without = [f"`{name}`" for name, algorithm in REGISTRY.items() if set(algorithm.Params.model_fields) == {"name"}]
    text = table(("method", "key", "value", "default", "meaning"), rows) if rows else ""
    return text + (f"\nWithout keys of their own: {', '.join(without)}.\n" if without else "")


def families() -> str:
    return table(
        ("family", "members, in client order", "feature width"),
        (
            (f"`{family.name}`", ", ".join(f"`{name}`" for name in family.members), str(family.feature_dim or "own"))
            for family in FAMILIES.values()
            if len(family.members) > 1
        ),
    )


TABLES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "settings": settings,
    "spec": lambda: keys(ExperimentSpec),
    "models": lambda: keys(ModelsSpec),
    "training": lambda: keys(TrainingSpec),
    "evaluation": lambda: keys(EvaluationSpec),
    "datasets": lambda: variants(DatasetSpec),
    "partitions": lambda: variants(PartitionSpec),
    "parameters": parameters,
    "families": families,
    "record": lambda: fields(RoundRecord),
    "headline": lambda: fields(Headline),
}


def current(text: str) -> str:
    """The page with every table as the code says it now."""
    return BLOCK.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)


def typescript(schema: dict[str, Any]) -> str:
    """A JSON schema as a TypeScript type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(typescript(part) for part in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "object" if "properties" in schema:
            lines = (f"  {name}: {typescript(part)};\n" for name, part in schema["properties"].items())
            return f"{{\n{''.join(lines)}}}"
        case "object":
            inside = schema.get("additionalProperties")
            return f"Record<string, {typescript(inside) if isinstance(inside, dict) else 'any'}>"
        case "array":
            inside = typescript(schema.get("items", {}))
            return f"({inside})[]" if "|" in inside else f"{inside}[]"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as name:
            return str(name)
    return "any"


def answers() -> str:
    """The types of everything that the API answers: a field with a default is there as well."""
    with tempfile.TemporaryDirectory() as home:
        description = create_app(Settings(home=Path(home))).openapi()
    schemas = description["components"]["schemas"]
    pattern = re.compile(r'"#/components/schemas/(\w+)"')
    replies = [
        reply["content"]
        for operations in description["paths"].values()
        for operation in operations.values()
        for reply in operation["responses"].values()
        if "content" in reply
    ]
    names = list(dict.fromkeys(pattern.findall(json.dumps(replies))))
    for name in names:
        names += [other for other in dict.fromkeys(pattern.findall(json.dumps(schemas[name]))) if other not in names]
    types = (f"export type {name} = {typescript(schemas[name])};\n" for name in sorted(names))
    return "// The answers of the API, for the type checker; written by `make docs`.\n\n" + "\n".join(types)


def write_rows(file: Path, rows: Mapping[str, Any]) -> None:
    """JSON with one line for every key."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items())
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, end with 1 if a page is out of date")
    check = parser.parse_args().check
    stale = []
    for page in (*PAGES, ANSWERS):
        path = ROOT / page
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = answers() if page == ANSWERS else current(before)
        if after != before:
            stale.append(page)
            if not check:
                path.write_text(after, encoding="utf-8")
    if not check:
        write_rows(sizes.FILE, sizes.all_counted())
        write_rows(costs.FILE, {name: costs.rehearsed(name) for name in REGISTRY})
    for page in stale:
        sys.stdout.write(f"{page} {'is out of date: make docs' if check else 'written'}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
