"""Compare experiments: curves for the screen, clients, cost to a target, tests of significance, printed figures."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field
from pydantic_core import to_json
from sqlmodel import Session

from app.api.experiments import NOT_FOUND
from app.api.services import SOME_IDS, Using
from app.comparison import figure, significance
from app.comparison.costs import costs_to_target
from app.comparison.curves import mean_curves, read
from app.comparison.groups import group
from app.errors import Refusal, not_found
from app.store import changes, experiments, rounds
from app.store.sound import sound_spec
from app.store.tables import Experiment
from engine.records import CostToTarget

router = APIRouter(prefix="/compare", tags=["compare"], responses=NOT_FOUND)

MOST = 200
MEDIA = {"pdf": "application/pdf", "svg": "image/svg+xml", "pgf": "application/x-tex"}

Ids = Annotated[
    str,
    Query(
        max_length=27 * MOST,
        description=f"Ids of 1 to {MOST} experiments, separated by commas",
        json_schema_extra=SOME_IDS,
    ),
]
Moment = Annotated[
    Literal["best", "last", "each"],
    Query(description="The best round, the last tested round, or each client's own last test"),
]
By = Annotated[
    str,
    Query(max_length=500, description="Fields of the spec that tell groups apart, as in training.lr; all when empty"),
]


class Curves(BaseModel):
    """Curves of several experiments; costs are sums from round 0 on."""

    experiments: dict[str, dict[str, Any]]
    seq: int = Field(description="Number of the last change contained; events after it are new")


class ClientValues(BaseModel):
    """Accuracy of the clients of one experiment."""

    round: int | None = Field(description="The round; null when each client's own last test was asked for")
    accuracy: dict[str, float | None] = Field(description="Client id to test accuracy")


class ClientTable(BaseModel):
    """Accuracy of the clients of several experiments."""

    experiments: dict[str, ClientValues]


class Costs(BaseModel):
    """Cost to a target accuracy, of several experiments."""

    experiments: dict[str, CostToTarget]


class Significance(BaseModel):
    """Paired tests between groups of experiments that differ in their seed only."""

    groups: dict[str, list[str]] = Field(description="Label to ids, in the order of the request")
    pairs: list[significance.Pair]
    note: str


@router.get("/curves", response_model=Curves)
def get_curves(
    use: Using,
    ids: Ids,
    points: Annotated[
        int | None,
        Query(
            ge=50, le=100_000, description="Approximate number of rounds per curve, the same for all; peaks are kept"
        ),
    ] = None,
) -> Response:
    """Accuracy, loss and summed costs. Without `points` nothing is left out."""
    with use.database.read() as session:
        seq = changes.current(session)
        answer = {"experiments": read(session, _rows(session, ids), points), "seq": seq}
    # the store's values are JSON already: checking ten thousands of numbers again would only cost time
    return Response(to_json(answer, inf_nan_mode="null"), media_type="application/json")


@router.get("/clients", response_model=ClientTable)
def get_clients(use: Using, ids: Ids, at: Moment = "last") -> ClientTable:
    """What each client reached, for box plots and win rates."""
    with use.database.read() as session:
        return ClientTable(experiments=_clients(session, _rows(session, ids), at))


@router.get("/target", response_model=Costs)
def get_costs(
    use: Using, ids: Ids, target: Annotated[float, Query(gt=0, le=1, description="Accuracy as a fraction")]
) -> Costs:
    """Rounds, communication and computation until a target accuracy, as the papers count them."""
    with use.database.read() as session:
        keys = [row.id for row in _rows(session, ids)]
        return Costs(experiments=costs_to_target(session, keys, target))


@router.get("/significance", response_model=Significance)
def get_significance(
    use: Using,
    ids: Ids,
    at: Moment = "last",
    by: By = "",
    reference: Annotated[
        str | None, Query(max_length=300, description="Label of a group: only its pairs, so fewer tests to correct for")
    ] = None,
) -> Significance:
    """Wilcoxon's signed-rank test over clients, the paired t test over seeds, effect sizes, Holm's correction."""
    with use.database.read() as session:
        rows = _rows(session, ids)
        groups = group(rows, _fields(by))
        if reference is not None and reference not in {item.label for item in groups}:
            labels = ", ".join(item.label for item in groups)
            raise Refusal(
                422, f"there is no group {reference!r}; there are {labels}", field="reference", value=reference
            )
        clients = {key: found.accuracy for key, found in _clients(session, rows, at).items()}
    level = {row.id: row.best_accuracy if at == "best" else row.final_accuracy for row in rows}
    pairs = significance.compare([significance.sample(item, clients, level) for item in groups], reference)
    notes = [
        "Clients of one federation learn from each other, so the test over clients speaks about these clients only."
    ]
    if len(pairs) > 1:
        notes.append(f"p values are corrected for {len(pairs)} pairs by Holm's method, clients and seeds apart.")
    return Significance(
        groups={item.label: [row.id for row in item.members] for item in groups}, pairs=pairs, note=" ".join(notes)
    )


@router.get(
    "/figure.{kind}",
    response_class=Response,
    responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in MEDIA.values()}}},
)
def get_figure(
    use: Using,
    kind: figure.Kind,
    ids: Ids,
    x: Literal["round", "bytes", "flops", "seconds"] = "round",
    y: Literal["accuracy", "loss"] = "accuracy",
    target: Annotated[float | None, Query(gt=0, le=1, description="Accuracy as a fraction")] = None,
    log_x: bool = False,
    log_y: bool = False,
    smooth: Annotated[int, Query(ge=1, le=1000, description="Number of the latest tests to average")] = 1,
    by: By = "",
) -> Response:
    """Mean over seeds with a band of one standard deviation, in the methods' colours, for a column of a paper."""
    with use.database.read() as session:
        lines = mean_curves(session, _rows(session, ids), x=x, y=y, smooth=smooth, by=_fields(by))
    frame = figure.Frame(x, y, target if y == "accuracy" else None, log_x, log_y)
    headers = {"Content-Disposition": f'attachment; filename="compare-{y}-by-{x}.{kind}"'}
    return Response(figure.draw(lines, frame, kind), media_type=MEDIA[kind], headers=headers)


def _fields(by: str) -> list[str]:
    return [part for part in by.split(",") if part]


def _rows(session: Session, ids: str) -> Sequence[Experiment]:
    wanted = list(dict.fromkeys(part for part in ids.split(",") if part))
    if not 1 <= len(wanted) <= MOST:
        raise Refusal(422, f"give 1 to {MOST} ids, but got {len(wanted)}", field="ids", value=ids)
    found = experiments.get_many(session, wanted)
    if missing := [key for key in wanted if key not in found]:
        raise not_found("experiment", missing[0])
    return list(found.values())


def _clients(session: Session, rows: Sequence[Experiment], at: str) -> dict[str, ClientValues]:
    if at == "each":
        return {
            row.id: ClientValues(
                round=None, accuracy=rounds.latest_client_accuracy(session, row.id, sound_spec(row.spec)["clients"])
            )
            for row in rows
        }
    ids = [row.id for row in rows]
    if at == "best":
        places = {row.id: row.best_round for row in rows if row.best_round is not None}
    else:
        places = rounds.last_tested(session, ids)
    values = rounds.client_accuracy(session, places)
    return {key: ClientValues(round=places.get(key), accuracy=values.get(key, {})) for key in ids}
