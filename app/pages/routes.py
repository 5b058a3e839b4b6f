"""One route a page; each reads the store once and leaves the rest to the live connection."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.comparison import curves
from app.comparison.palette import method_title
from app.pages.rendering import database_of, error_page, render, settings_of
from app.pages.vocabulary import state_title
from app.pages.words import clients_text, dataset_text, partition_text
from app.store import changes, continuing, experiments, listing, queue, rounds, steering, sweeps
from app.store.listing import Filter, Sort
from app.store.states import State
from app.store.tables import Experiment
from app.views.experiments import experiment_view
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

PAGE_SIZE = 50
MOST_COMPARED = 200
MOST_POINTS, FEWEST_POINTS = 40_000, 300
"""Of all curves of a comparison together, and of one: a screen shows no more, and a browser stays quick."""
MOST_CLIENT_VALUES, MOST_DETAILED = 500_000, 10_000
"""Accuracies of single clients that one page carries, and rounds that they come from."""

router = APIRouter(include_in_schema=False)


def _view(row: Experiment) -> dict[str, Any]:
    return experiment_view(row).model_dump(mode="json")


def _seq(session: Session) -> int:
    """Read before the data: events after it may repeat what the page has, but never leave a gap."""
    return changes.current(session)


@router.get("/experiments")
def list_page(
    request: Request,
    state: str = "",
    algorithm: Annotated[str, Query(max_length=64)] = "",
    dataset: Annotated[str, Query(max_length=64)] = "",
    tag: Annotated[str, Query(max_length=50)] = "",
    search: Annotated[str, Query(max_length=200)] = "",
    sort: str = Sort.CREATED,
    order: str = "down",
) -> Response:
    if state and state not in set(State):
        states = ", ".join(State).replace("_", " ")
        return error_page(request, 422, f"An experiment is never “{state}”. The states are {states}.")
    if sort not in set(Sort):
        return error_page(request, 422, f"The list cannot be sorted by “{sort}”. It can by {', '.join(Sort)}.")
    wanted = Filter(State(state) if state else None, algorithm, dataset, tag, search)
    with database_of(request).read() as session:
        choices = listing.choices(session)
        data = {
            "seq": _seq(session),
            "items": [
                _view(row)
                for row in listing.find(session, wanted, sort=Sort(sort), descending=order != "up", limit=PAGE_SIZE)
            ],
            "total": listing.count(session, wanted),
            "choices": choices,
        }
    titles = {
        "states": {state: state_title(state) for state in State},
        "methods": {method: method_title(method) for method in choices["algorithms"]},
    }
    return render(request, "experiments.html", "experiments", data=data, states=list(State), titles=titles)


@router.get("/experiments/{experiment}")
def experiment_page(request: Request, experiment: str) -> Response:
    with database_of(request).read() as session:
        seq = _seq(session)
        row = experiments.get(session, experiment)
        if row is None:
            hidden = experiments.get_with_deleted(session, experiment)
            if hidden is not None and steering.restorable(session, hidden):
                message = f"“{hidden.name or hidden.id}” was deleted. It can be restored within a day of that."
                return error_page(request, 404, message, title="Deleted", deleted=hidden.id)
            message = f"There is no experiment “{experiment}”. It may have been on another server."
            return error_page(request, 404, message)
        view = experiment_view(row, queue.position(session, row)).model_dump(mode="json")
        spec = view["spec"]
        clients = max(1, spec["clients"])
        most = max(2, min(MOST_DETAILED, MOST_CLIENT_VALUES // clients))
        records, tested = rounds.with_some_details(session, experiment, most)
        thinned = len(tested) > most
        sweep = None if row.sweep is None else sweeps.get(session, row.sweep)
        data = {
            "seq": seq,
            "experiment": view,
            "sweep": None if sweep is None else {"id": sweep.id, "name": sweep.name},
            "source": _beside(experiments.get(session, row.continues)) if row.continues else None,
            "heirs": [_beside(heir) for heir in continuing.heirs(session, experiment)],
            "rounds": records,
            "tested": len(tested),
            "detailed": most if thinned else None,
            "latest": rounds.latest_client_accuracy(session, experiment, clients) if thinned else None,
            **_understood(row.spec),
        }
    about = {
        "method": method_title(row.algorithm),
        "clients": clients_text(spec),
        "data": f"{dataset_text(spec['dataset'])}, {partition_text(spec['partition'])}",
    }
    return render(request, "experiment.html", "experiments", data=data, about=about)


def _beside(row: Experiment | None) -> dict[str, Any] | None:
    """An experiment with another number of rounds, for a link; None: it was deleted."""
    return None if row is None else {"id": row.id, "rounds": row.rounds}


def _understood(spec: dict[str, Any]) -> dict[str, Any]:
    """The networks that the spec asks for, and why its rounds are those of no other number of them.

    Or what this version does not understand of it, and how it is stored.
    """
    try:
        parsed = ExperimentSpec.parse(spec)
    except SpecError as error:
        return {"architectures": [], "problems": [str(problem) for problem in error.problems], "stored": spec}
    fixed = parsed.depends_on_rounds()
    return {"architectures": catalogue.architectures(parsed), "problems": [], "fixed_rounds": fixed}


@router.get("/compare")
def compare_page(request: Request, ids: str = "") -> Response:
    wanted = list(dict.fromkeys(part for part in ids.split(",") if part))
    if len(wanted) > MOST_COMPARED:
        message = f"At most {MOST_COMPARED} experiments can be compared at once, but the address names {len(wanted)}."
        return error_page(request, 422, message)
    with database_of(request).read() as session:
        seq = _seq(session)
        found = experiments.get_many(session, wanted)
        points = max(FEWEST_POINTS, MOST_POINTS // max(1, len(found)))
        data = {
            "seq": seq,
            "experiments": [_view(row) for row in found.values()],
            "curves": curves.read(session, list(found.values()), points),
            "points": points,
            "missing": [key for key in wanted if key not in found],
        }
    return render(request, "compare.html", "compare", data=data)


@router.get("/new")
def new_page(request: Request, copy_of: Annotated[str, Query(alias="from")] = "", algorithm: str = "") -> Response:
    with database_of(request).read() as session:
        seq = _seq(session)
        row = experiments.get(session, copy_of) if copy_of else None
    if copy_of and row is None:
        return error_page(request, 404, f"There is no experiment “{copy_of}” to start from.")
    known = catalogue.catalogue(settings_of(request).data_root)
    if algorithm and algorithm not in {item["id"] for item in known["algorithms"]}:
        return error_page(request, 404, f"There is no method “{algorithm}” to start from.")
    data = {
        "seq": seq,
        # a clone is about to differ: neither the name nor the notes of its model would be true of it
        "spec": None if row is None else {**experiments.full_spec(row), "name": None, "notes": ""},
        "algorithm": algorithm or None,
        "catalogue": _form(known),
    }
    return render(request, "new.html", "new", data=data)


def _form(known: dict[str, Any]) -> dict[str, Any]:
    """What the form needs of the catalogue; the schemas of methods, data sets and partitions come with each of them."""
    schema = known["spec"]
    parts = {"models": "ModelsSpec", "training": "TrainingSpec", "evaluation": "EvaluationSpec"}
    plain = ("name", "topology", "clients", "participation", "rounds", "seed")
    return {
        "algorithms": known["algorithms"],
        "datasets": known["datasets"],
        "partitions": known["partitions"],
        "models": [
            {
                **family,
                "members": [{"id": member["id"], "parameters": member["parameters"]} for member in family["members"]],
            }
            for family in known["models"]
        ],
        "presets": known["presets"],
        "fields": {key: schema["properties"][key] for key in plain}
        | {key: schema["$defs"][name]["properties"] for key, name in parts.items()},
    }


@router.get("/queue.json")
def queue_counts(request: Request) -> dict[str, int]:
    """The two numbers of the top bar."""
    with database_of(request).read() as session:
        counts = experiments.counts(session)
    return {
        "running": counts.get(State.RUNNING, 0) + counts.get(State.CANCELLING, 0),
        "queued": counts.get(State.QUEUED, 0) + counts.get(State.PAUSED, 0),
    }
