"""The life cycle as a table."""

import pytest

from app.store.states import TRANSITIONS, State


def test_every_state_has_its_row_of_transitions() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize("state", [State.FINISHED, State.FAILED, State.CANCELLED, State.DIVERGED, State.NOT_APPLICABLE])
def test_no_way_leads_out_of_an_end_state(state: State) -> None:
    assert state.is_finished()
    assert not any(state.may_become(other) for other in State)


@pytest.mark.parametrize("state", [State.QUEUED, State.PAUSED, State.RUNNING, State.CANCELLING])
def test_a_living_state_can_reach_an_end(state: State) -> None:
    assert not state.is_finished()
    reached, frontier = set[State](), {state}
    while frontier:
        reached |= frontier
        frontier = {after for before in frontier for after in TRANSITIONS[before]} - reached
    assert any(other.is_finished() for other in reached)


def test_a_running_experiment_is_cancelled_only_by_way_of_cancelling() -> None:
    assert not State.RUNNING.may_become(State.CANCELLED)
    assert State.RUNNING.may_become(State.CANCELLING)
    assert TRANSITIONS[State.CANCELLING] == {State.CANCELLED}
