"""The life of an experiment: its states and the only ways between them."""

from enum import StrEnum


class State(StrEnum):
    """Where an experiment stands."""

    QUEUED = "queued"
    PAUSED = "paused"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DIVERGED = "diverged"
    NOT_APPLICABLE = "not_applicable"

    def is_finished(self) -> bool:
        """No way leads out of this state."""
        return not TRANSITIONS[self]

    def may_become(self, other: "State") -> bool:
        return other in TRANSITIONS[self]


BAD = (State.FAILED, State.DIVERGED)
"""What people should look at."""
RETRIED = (State.FAILED, State.CANCELLED, State.DIVERGED)
"""What can be tried again."""

TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.PAUSED, State.RUNNING, State.CANCELLED}),
    State.PAUSED: frozenset({State.QUEUED}),
    State.RUNNING: frozenset(
        {State.FINISHED, State.FAILED, State.DIVERGED, State.CANCELLING, State.QUEUED, State.PAUSED}
    ),
    State.CANCELLING: frozenset({State.CANCELLED}),
    State.FINISHED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.DIVERGED: frozenset(),
    State.NOT_APPLICABLE: frozenset(),
}


class NotNow(Exception):
    """The experiment's state does not allow what was asked."""

    field = "state"
    """What of the experiment stands in the way."""

    def __init__(self, message: str, state: State) -> None:
        super().__init__(message)
        self.state = state


class AlreadyFinished(NotNow):
    """The experiment has ended, or is about to; nothing can be changed any more."""

    def __init__(self, experiment: str, state: State, what: str = "cancelled") -> None:
        super().__init__(f"experiment {experiment} is already {state.value}, so it cannot be {what}", state)
