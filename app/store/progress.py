"""How far sweeps are: from where their experiments stand, without their specs and numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col

from app.store import experiments
from app.store.ids import in_chunks
from app.store.states import State
from app.store.sweeps import reused
from app.store.tables import Experiment, Sweep

Stage = tuple[State, int, int]
"""State, rounds and next_round of an experiment."""
DELETED: Stage = (State.CANCELLED, 0, 0)
"""How a reused experiment counts that is there no more: the sweep is not complete, and a retry can make it so."""


@dataclass(frozen=True)
class Progress:
    """Where all experiments of a sweep stand together. What has ended has no rounds left."""

    state: str
    counts: dict[str, int]
    rounds_done: int
    rounds_total: int

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> "Progress":
        counts: Counter[State] = Counter()
        done = total = 0
        for state, rounds, next_round in stages:
            counts[state] += 1
            so_far = max(0, min(rounds, next_round - 1))
            done += so_far
            total += so_far if state.is_finished() else rounds
        return cls(_state(counts), {state.value: counts[state] for state in State if counts[state]}, done, total)

    @property
    def has_ended(self) -> bool:
        return self.state in {State.FINISHED.value, State.FAILED.value, State.CANCELLED.value}


def _state(counts: Counter[State]) -> str:
    for state, others in (
        (State.RUNNING, (State.CANCELLING,)),
        (State.QUEUED, ()),
        (State.PAUSED, ()),
        (State.FAILED, (State.DIVERGED,)),
        (State.CANCELLED, ()),
    ):
        if counts[state] or any(counts[other] for other in others):
            return state.value
    return State.FINISHED.value


def of_sweeps(session: Session, sweeps: Sequence[Sweep]) -> dict[str, Progress]:
    """By the id of the sweep. An experiment that was tried again does not count."""
    chosen = (col(Experiment.id), col(Experiment.state), col(Experiment.rounds), col(Experiment.next_round))
    own: dict[str, dict[str, Stage]] = {sweep.id: {} for sweep in sweeps}
    repeated: dict[str, set[str]] = {sweep.id: set() for sweep in sweeps}
    columns = (col(Experiment.sweep), col(Experiment.retry_of), *chosen)
    query = experiments.visible(*columns).where(col(Experiment.sweep).in_(list(own)))
    for sweep, retry_of, experiment, *stage in session.execute(query):
        own[sweep][experiment] = (stage[0], stage[1], stage[2])
        repeated[sweep].add(retry_of)
    others: dict[str, Stage] = {}
    for chunk in in_chunks(list({entry["experiment"] for sweep in sweeps for entry in reused(sweep)})):
        found = session.execute(experiments.visible(*chosen).where(col(Experiment.id).in_(chunk)))
        others.update({experiment: (stage[0], stage[1], stage[2]) for experiment, *stage in found})
    answer = {}
    for sweep in sweeps:
        taken = {entry["experiment"] for entry in reused(sweep)}
        stages = own[sweep.id] | {experiment: others.get(experiment, DELETED) for experiment in taken}
        answer[sweep.id] = Progress.of(stage for key, stage in stages.items() if key not in repeated[sweep.id])
    return answer
