"""Experiments: submit them, and look them up; every query begins with those that are not deleted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import ColumnElement, Select, and_, case, func, insert, inspect, select
from sqlmodel import Session, col

from app.store import changes, claims
from app.store.clock import read_clock
from app.store.ids import in_chunks, new_id
from app.store.plan import Plan
from app.store.sound import text_at
from app.store.states import NotNow, State
from app.store.tables import Experiment
from engine.spec.versions import SPEC_VERSION

if TYPE_CHECKING:
    from engine.spec.experiment import ExperimentSpec


@overload
def visible() -> Select[Experiment]: ...
@overload
def visible(*columns: Any) -> Select[Any]: ...
def visible(*columns: Any) -> Select[Any]:
    """The start of every query: the experiments that are not deleted, as rows or as these columns of them."""
    return with_deleted(*columns).where(col(Experiment.deleted_at).is_(None))


@overload
def with_deleted() -> Select[Experiment]: ...
@overload
def with_deleted(*columns: Any) -> Select[Any]: ...
def with_deleted(*columns: Any) -> Select[Any]:
    """The start of the few queries that must see deleted experiments; tests/test_architecture.py lists them."""
    return select(*(columns or (Experiment,))).select_from(Experiment)


ANNOTATIONS = ("name", "tags", "notes")
"""What of a spec is for people and no part of its fingerprint. It is kept in columns of its own, and may change."""


def full_spec(row: Experiment) -> dict[str, Any]:
    """The complete spec, as it was submitted and annotated since."""
    return {name: getattr(row, name) for name in ANNOTATIONS} | without_annotations(row.spec)


def without_annotations(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in ANNOTATIONS}


class NotUnderstood(NotNow):
    """Another version stored a spec that this one does not take."""

    field = "spec"

    def __init__(self, row: Experiment, error: Exception) -> None:
        super().__init__(f"this version does not understand the spec of experiment {row.id}: {error}", row.state)


def stored_spec(row: Experiment) -> "ExperimentSpec":
    """NotUnderstood: the spec was taken by another version, or the row is damaged."""
    from engine.spec.experiment import ExperimentSpec  # here: it brings torch, which a look for work does without
    from engine.spec.problems import SpecError

    try:
        return ExperimentSpec.parse(full_spec(row))
    except SpecError as error:
        raise NotUnderstood(row, error) from None


def submit(
    session: Session,
    spec: Mapping[str, Any],
    fingerprint: str,
    plan: Plan | None = None,
    *,
    sweep: str | None = None,
    cell: Mapping[str, Any] | None = None,
) -> Experiment:
    """A new row, queued. `spec` is the complete spec as plain JSON values."""
    entry = {"spec": spec, "fingerprint": fingerprint, "sweep": sweep, "cell": None if cell is None else dict(cell)}
    return _submit_one(session, {**entry, **(plan or Plan()).columns()})


def submit_again(session: Session, old: Experiment) -> Experiment:
    """The same spec and plan as a new row, from the first round on; NotUnderstood: it could not run."""
    stored_spec(old)
    kept = ("fingerprint", "priority", "window_from", "window_to", "stop", "sweep", "cell")
    columns = {name: getattr(old, name) for name in kept}
    return _submit_one(session, {**columns, "spec": full_spec(old), "retry_of": old.id})


def _submit_one(session: Session, entry: Mapping[str, Any]) -> Experiment:
    [experiment] = submit_many(session, [entry])
    return get_one(session, experiment)


def submit_many(session: Session, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Many rows in this order: each entry has spec, fingerprint, and other columns by name."""
    ids = write_rows(session, entries)
    changes.number_new(session, ids)
    return ids


def write_rows(session: Session, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows of `submit_many`, still without numbers: `changes.number_new` must follow, in the same transaction.

    Whoever has taken a number holds up all other changes until its commit, so it is done when all else is.
    """
    if not entries:
        return []
    blank = Experiment(
        id="",
        algorithm="",
        dataset="",
        spec={},
        fingerprint="",
        created_at=read_clock(session),
        place=0,
        rounds=0,
        totals={"bytes_up": 0, "bytes_down": 0, "client_flops": 0},
    )
    usual = {column.key: getattr(blank, column.key) for column in inspect(Experiment).columns}
    rows = []
    for number, entry in enumerate(entries):
        spec = entry["spec"]
        own = {name: spec[name] for name in (*ANNOTATIONS, "rounds")}
        own |= {"algorithm": spec["algorithm"]["name"], "dataset": spec["dataset"]["name"]}
        own |= {"id": new_id(), "place": number, "spec_version": SPEC_VERSION}
        rows.append({**usual, **own, **entry, "spec": without_annotations(spec)})
    session.execute(insert(Experiment), rows)
    ids = [row["id"] for row in rows]
    claims.own(session, ids)
    return ids


def get(session: Session, experiment: str) -> Experiment | None:
    """None: there is no such experiment, or it was deleted."""
    return session.scalars(visible().where(col(Experiment.id) == experiment)).first()


def get_one(session: Session, experiment: str) -> Experiment:
    """The row of an experiment that is known to be there."""
    return session.scalars(visible().where(col(Experiment.id) == experiment)).one()


def get_with_deleted(session: Session, experiment: str) -> Experiment | None:
    return session.scalars(with_deleted().where(col(Experiment.id) == experiment)).first()


def get_many(session: Session, ids: Sequence[str]) -> dict[str, Experiment]:
    """Those of the ids that exist, in their order."""
    query = visible().where(col(Experiment.id).in_(ids))
    found = {row.id: row for row in session.scalars(query)}
    return {key: found[key] for key in ids if key in found}


def ids_of(session: Session, ids: Sequence[str]) -> set[str]:
    """Which of the ids belong to an experiment."""
    return set(session.scalars(visible(col(Experiment.id)).where(col(Experiment.id).in_(ids))))


def ids_with_deleted(session: Session, ids: Sequence[str]) -> set[str]:
    """Which of the ids have a row."""
    found: set[str] = set()
    for chunk in in_chunks(ids):
        found.update(session.scalars(with_deleted(col(Experiment.id)).where(col(Experiment.id).in_(chunk))))
    return found


def count(session: Session) -> int:
    return int(session.execute(visible(func.count())).scalar_one())


def counts(session: Session) -> dict[State, int]:
    """How many experiments are in each state."""
    query = visible(col(Experiment.state), func.count()).group_by(col(Experiment.state))
    return dict(session.execute(query).all())


def counts_by_algorithm(session: Session) -> dict[str, int]:
    """How many experiments each method has."""
    query = visible(col(Experiment.algorithm), func.count()).group_by(col(Experiment.algorithm))
    return dict(session.execute(query).all())


def checkpoint_of(row: Experiment) -> tuple[str, str] | None:
    """The newest checkpoint that counts: its manifest and checksum."""
    if row.checkpoint is None or row.checkpoint_sha256 is None:
        return None
    return row.checkpoint, row.checkpoint_sha256


def judged_accuracy() -> ColumnElement[float]:
    """The accuracy that an experiment is judged by, as engine.records.headline_rule says it."""
    is_final = text_at(col(Experiment.spec), "evaluation.protocol") == "C"
    return case((is_final, col(Experiment.final_accuracy)), else_=col(Experiment.best_accuracy))


def best_by_dataset(session: Session, algorithm: str) -> list[Experiment]:
    """The experiment of a method with the highest accuracy on each data set, best known sets first."""
    judged = judged_accuracy()
    highest = (
        visible(col(Experiment.dataset), func.max(judged).label("best"))
        .where(col(Experiment.algorithm) == algorithm, judged.is_not(None))
        .group_by(col(Experiment.dataset))
        .subquery()
    )
    query = (
        visible()
        .join(
            highest,
            and_(col(Experiment.dataset) == highest.c.dataset, judged == highest.c.best),
        )
        .where(col(Experiment.algorithm) == algorithm)
        .order_by(col(Experiment.dataset), col(Experiment.id))
    )
    first: dict[str, Experiment] = {}
    for row in session.scalars(query):
        first.setdefault(row.dataset, row)
    return list(first.values())
