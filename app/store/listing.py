"""The list of experiments: filtered, sorted and cut into pages by the database."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Float, Text, cast, func, or_
from sqlmodel import Session, col

from app.store.experiments import judged_accuracy, visible
from app.store.sound import number_at, read_json
from app.store.states import State
from app.store.tables import Experiment


class Sort(StrEnum):
    """What the list can be sorted by."""

    CREATED = "created"
    NAME = "name"
    STATE = "state"
    METHOD = "method"
    DATA = "data"
    CLIENTS = "clients"
    PROGRESS = "progress"
    ACCURACY = "accuracy"
    BEST = "best"
    FINAL = "final"
    BYTES = "bytes"
    FLOPS = "flops"
    TIME = "time"
    FINISHED = "finished"


@dataclass(frozen=True)
class Filter:
    """What must hold for an experiment to be listed; every word must occur somewhere."""

    state: State | None = None
    algorithm: str = ""
    dataset: str = ""
    tag: str = ""
    search: str = ""
    before: str | None = None
    """Only experiments older than this id."""


def find(
    session: Session,
    wanted: Filter,
    *,
    sort: Sort = Sort.CREATED,
    descending: bool = True,
    limit: int = 50,
    offset: int = 0,
) -> list[Experiment]:
    """A page of the list. Equal values stand newest first, and missing ones last."""
    key, newest = _key(sort), col(Experiment.id).desc()
    if sort is Sort.CREATED:  # by the id alone, which is unique and never null: an index can be followed
        order = [newest if descending else col(Experiment.id).asc()]
    else:
        order = [key.desc().nulls_last() if descending else key.asc().nulls_last(), newest]
    # ids first: sorting whole rows would carry every spec through the sorter
    ids = visible(col(Experiment.id)).where(*_conditions(wanted)).order_by(*order).limit(limit).offset(offset)
    places = {key: place for place, key in enumerate(session.scalars(ids))}
    rows = session.scalars(visible().where(col(Experiment.id).in_(places)))
    return sorted(rows, key=lambda row: places[row.id])


def count(session: Session, wanted: Filter) -> int:
    """How many match, on all pages."""
    query = visible(func.count()).where(*_conditions(wanted))
    return int(session.execute(query).scalar_one())


def choices(session: Session) -> dict[str, list[str]]:
    """What the filters can be set to: methods, data sets and tags that occur."""
    algorithms = session.scalars(visible(col(Experiment.algorithm)).distinct())
    datasets = session.scalars(visible(col(Experiment.dataset)).distinct())
    text = cast(col(Experiment.tags), Text)
    tagged = map(read_json, session.scalars(visible(text).where(text != "[]").distinct()))
    return {
        "algorithms": sorted(algorithms),
        "datasets": sorted(datasets),
        "tags": sorted({tag for tags in tagged if isinstance(tags, list) for tag in tags if isinstance(tag, str)}),
    }


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.state is not None:
        conditions.append(col(Experiment.state) == wanted.state)
    if wanted.algorithm:
        conditions.append(col(Experiment.algorithm) == wanted.algorithm)
    if wanted.dataset:
        conditions.append(col(Experiment.dataset) == wanted.dataset)
    if wanted.tag:
        conditions.append(_tagged(wanted.tag))
    if wanted.before is not None:
        conditions.append(col(Experiment.id) < wanted.before)
    return conditions + [_mentions(word) for word in wanted.search.split()]


def _mentions(word: str) -> ColumnElement[bool]:
    """Name, method, data set, id, fingerprint or a tag contains the word."""
    texts = (Experiment.name, Experiment.algorithm, Experiment.dataset, Experiment.id, Experiment.fingerprint)
    inside = [col(text).icontains(word, autoescape=True) for text in texts]
    return or_(*inside, cast(col(Experiment.tags), Text).icontains(word, autoescape=True))


def _tagged(tag: str) -> ColumnElement[bool]:
    """Tags are a JSON list: the tag with its quotes is one whole entry, its letters as the database keeps them."""
    return cast(col(Experiment.tags), Text).contains(json.dumps(tag, ensure_ascii=False), autoescape=True)


def _key(sort: Sort) -> Any:
    totals = col(Experiment.totals)
    keys: dict[Sort, Any] = {
        Sort.CREATED: col(Experiment.id),
        Sort.NAME: func.lower(func.coalesce(col(Experiment.name), col(Experiment.algorithm))),
        Sort.STATE: col(Experiment.state),
        Sort.METHOD: col(Experiment.algorithm),
        Sort.DATA: col(Experiment.dataset),
        Sort.CLIENTS: number_at(col(Experiment.spec), "clients"),
        Sort.PROGRESS: cast(col(Experiment.next_round), Float)
        / func.nullif(cast(col(Experiment.rounds), Float) + 1, 0),
        Sort.ACCURACY: judged_accuracy(),
        Sort.BEST: col(Experiment.best_accuracy),
        Sort.FINAL: col(Experiment.final_accuracy),
        Sort.BYTES: number_at(totals, "bytes_up") + number_at(totals, "bytes_down"),
        Sort.FLOPS: number_at(totals, "client_flops"),
        Sort.TIME: col(Experiment.seconds),
        Sort.FINISHED: col(Experiment.finished_at),
    }
    return keys[sort]
