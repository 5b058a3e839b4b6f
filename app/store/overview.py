"""The state of the night in a few reads: what runs, waits, failed and finished."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import case, func
from sqlmodel import Session, col

from app.store.clock import now
from app.store.experiments import visible
from app.store.pace import Pace
from app.store.states import BAD, State
from app.store.tables import Experiment

SHOWN = 12
QUEUE_SHOWN = 50
DAY = 86_400.0


@dataclass(frozen=True)
class Later:
    """Work that waits: experiments, how many of them have their opening before them, and rounds."""

    experiments: int
    openings: int
    rounds: int


@dataclass(frozen=True)
class Overview:
    """Rows of each kind, and how many there are in all."""

    running: list[Experiment]
    queued: list[Experiment]
    later: dict[tuple[str, str], Later]
    """The queue behind those that are shown, by method and data set."""
    failed: list[Experiment]
    finished: list[Experiment]
    counts: dict[State, int]
    finished_today: int
    failed_today: int


def overview(session: Session) -> Overview:
    busy = visible().where(col(Experiment.state).in_((State.RUNNING, State.CANCELLING)))
    # ids first: sorting whole rows would carry every spec through the sorter
    next_ids = (
        visible(col(Experiment.id))
        .where(col(Experiment.state) == State.QUEUED)
        .order_by(col(Experiment.priority).desc(), col(Experiment.place))
        .limit(QUEUE_SHOWN)
    )
    soon = list(session.scalars(next_ids))
    waiting = visible().where(col(Experiment.id).in_(soon))
    opens = case((col(Experiment.next_round) == 0, 1), else_=0)
    open_rounds = col(Experiment.rounds) + 1 - col(Experiment.next_round) - opens
    kind = (col(Experiment.algorithm), col(Experiment.dataset))
    later = (
        visible(*kind, func.count(), func.sum(opens), func.sum(open_rounds))
        .where(col(Experiment.state) == State.QUEUED, col(Experiment.id).not_in(soon))
        .group_by(*kind)
    )
    ended = visible().order_by(col(Experiment.finished_at).desc()).limit(SHOWN)
    today = col(Experiment.finished_at) > now() - DAY
    per_state = visible(col(Experiment.state), func.count()).group_by(col(Experiment.state))
    counts: dict[State, int] = dict(session.execute(per_state).all())
    lately = dict(session.execute(per_state.where(today)).all())
    return Overview(
        running=list(session.scalars(busy.order_by(col(Experiment.started_at)))),
        queued=list(session.scalars(waiting.order_by(col(Experiment.priority).desc(), col(Experiment.place)))),
        later={
            (algorithm, dataset): Later(count, int(openings), int(rounds))
            for algorithm, dataset, count, openings, rounds in session.execute(later)
        },
        failed=list(session.scalars(ended.where(col(Experiment.state).in_(BAD), today))),
        finished=list(session.scalars(ended.where(col(Experiment.state) == State.FINISHED))),
        counts=counts,
        finished_today=lately.get(State.FINISHED, 0),
        failed_today=sum(lately.get(state, 0) for state in BAD),
    )


def later_seconds(later: Mapping[tuple[str, str], Later], pace: Pace) -> float | None:
    """Seconds of all that together, one after the other; None: of some of it nothing is known."""
    total = 0.0
    for kind, work in later.items():
        timing = pace.alike(*kind)
        if timing is None:
            return None
        total += work.experiments * timing.startup + work.openings * timing.opening + work.rounds * timing.a_round
    return total
