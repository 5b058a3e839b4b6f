"""The state of the night in a few reads: what runs, waits, failed and finished."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.store.clock import now
from app.store.experiments import shown
from app.store.states import State
from app.store.tables import Experiment
from app.store.timings import DECIDES, LOOK_BACK

SHOWN = 12
QUEUE_SHOWN = 50
DAY = 86_400.0
BAD = (State.FAILED, State.DIVERGED)


@dataclass(frozen=True)
class Overview:
    """Rows of each kind, and how many there are in all."""

    running: list[Experiment]
    queued: list[Experiment]
    later: dict[tuple[str, str], int]
    """Rounds of the queue behind those that are shown, by method and data set."""
    failed: list[Experiment]
    finished: list[Experiment]
    counts: dict[State, int]
    finished_today: int
    failed_today: int


def overview(session: Session) -> Overview:
    visible = shown()
    busy = select(Experiment).where(visible, col(Experiment.state).in_((State.RUNNING, State.CANCELLING)))
    # ids first: sorting whole rows would carry every spec through the sorter
    next_ids = (
        select(col(Experiment.id))
        .where(visible, col(Experiment.state) == State.QUEUED)
        .order_by(col(Experiment.priority).desc(), col(Experiment.place))
        .limit(QUEUE_SHOWN)
    )
    soon = list(session.scalars(next_ids))
    waiting = select(Experiment).where(col(Experiment.id).in_(soon))
    open_rounds = func.sum(col(Experiment.rounds) + 1 - col(Experiment.next_round))
    kind = (col(Experiment.algorithm), col(Experiment.dataset))
    later = (
        select(*kind, open_rounds)
        .where(visible, col(Experiment.state) == State.QUEUED, col(Experiment.id).not_in(soon))
        .group_by(*kind)
    )
    ended = select(Experiment).where(visible).order_by(col(Experiment.finished_at).desc()).limit(SHOWN)
    today = col(Experiment.finished_at) > now() - DAY
    per_state = select(col(Experiment.state), func.count()).where(visible).group_by(col(Experiment.state))
    counts: dict[State, int] = dict(session.execute(per_state).all())
    lately = dict(session.execute(per_state.where(today)).all())
    return Overview(
        running=list(session.scalars(busy.order_by(col(Experiment.started_at)))),
        queued=list(session.scalars(waiting.order_by(col(Experiment.priority).desc(), col(Experiment.place)))),
        later={(algorithm, dataset): int(count) for algorithm, dataset, count in session.execute(later)},
        failed=list(session.scalars(ended.where(col(Experiment.state).in_(BAD), today))),
        finished=list(session.scalars(ended.where(col(Experiment.state) == State.FINISHED))),
        counts=counts,
        finished_today=lately.get(State.FINISHED, 0),
        failed_today=sum(lately.get(state, 0) for state in BAD),
    )


@dataclass(frozen=True)
class Pace:
    """Seconds of a round: of equal specs, else of the method on the data set, else on the data set; None: unknown."""

    _typical: Mapping[tuple[str, ...], float]

    def of(self, row: Experiment) -> float | None:
        return self._typical.get((_kind(row.spec),), self.of_kind(row.algorithm, row.dataset))

    def of_kind(self, algorithm: str, dataset: str) -> float | None:
        return self._typical.get((algorithm, dataset), self._typical.get(("", dataset)))

    def of_all(self, rounds: Mapping[tuple[str, str], int]) -> float | None:
        """Seconds of so many rounds together."""
        spans = [(count, self.of_kind(*kind)) for kind, count in rounds.items()]
        known = [count * seconds for count, seconds in spans if seconds is not None]
        return sum(known) if len(known) == len(spans) else None


def pace(session: Session) -> Pace:
    """From the newest experiments."""
    query = (
        select(col(Experiment.spec), col(Experiment.seconds), col(Experiment.next_round))
        .where(col(Experiment.next_round) > 2, col(Experiment.seconds) > 0)
        .order_by(col(Experiment.id).desc())
        .limit(LOOK_BACK)
    )
    groups: dict[tuple[str, ...], list[float]] = {}
    for spec, seconds, done in session.execute(query):
        dataset = spec["dataset"]["name"]
        for group in ((_kind(spec),), (spec["algorithm"]["name"], dataset), ("", dataset)):
            groups.setdefault(group, []).append(seconds / (done - 1))
    return Pace({group: median(values) for group, values in groups.items()})


def _kind(spec: Mapping[str, Any]) -> str:
    """Specs of one kind take equally long."""
    return json.dumps([spec.get(key) for key in DECIDES], sort_keys=True)
