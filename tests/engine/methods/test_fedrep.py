"""FedRep: the schedule of head and body, and where it meets FedPer."""

from typing import Any

import pytest

from engine.kit.tensors import live_tensors
from engine.runtime.run import Run
from engine.spec.problems import SpecError
from engine.testing import same
from tests.engine.conftest import SpecMaker, records_of
from tests.engine.methods.federation import ALONE, finished, local_work, own, prices, same_servers

LIKE_FEDPER = {"name": "fedrep", "head_epochs": 0, "body_epochs": 2, "freeze_head": False}


@pytest.mark.parametrize("protocol", ["A", "B", "C"])
def test_without_head_epochs_and_freezing_it_is_fedper(protocol: str, small_spec: SpecMaker) -> None:
    evaluation = {"protocol": protocol}
    first, second = small_spec(LIKE_FEDPER, evaluation=evaluation), small_spec("fedper", evaluation=evaluation)
    assert same_servers(first, second)
    assert [r.without_times() for r in records_of(first)] == [r.without_times() for r in records_of(second)]


def test_the_heads_of_that_fedper_are_equal_too(small_spec: SpecMaker) -> None:
    first, second = finished(small_spec(LIKE_FEDPER)), finished(small_spec("fedper"))
    assert first.federation.states.ids() == second.federation.states.ids()
    assert all(same(own(first, k, "model.head."), own(second, k, "model.head.")) for k in first.federation.states.ids())


def test_local_work_and_messages_cost_what_the_formulas_say(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedrep", "head_epochs": 3, "body_epochs": 4}, **ALONE))
    record = list(run.rounds())[1]
    n, body, head, body_scalars, _ = prices(run, record.cohort[0])
    assert record.client_flops == n * (3 * (body + 3 * head) + 4 * (3 * body + 2 * head))
    assert record.scalars_up == record.scalars_down == body_scalars


def test_without_body_epochs_the_body_returns_as_it_came(small_spec: SpecMaker) -> None:
    for work in local_work(Run(small_spec({"name": "fedrep", "body_epochs": 0}))):
        assert same(work.sent, work.received)


def test_without_head_epochs_a_frozen_head_stays_at_its_start(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedrep", "head_epochs": 0}))
    for work in local_work(run):
        assert same(live_tensors(work.client.model.head), live_tensors(run.setup.model(work.client.architecture).head))
        assert not same(work.sent, work.received)


def test_every_option_changes_the_result(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"head_epochs": 1}, {"body_epochs": 1}, {"freeze_head": False}]
    results = [[(r.loss, r.client_flops) for r in records_of(small_spec({"name": "fedrep", **v}))] for v in variants]
    assert len(set(map(str, results))) == len(variants)


def test_training_nothing_is_refused(small_spec: SpecMaker) -> None:
    with pytest.raises(SpecError, match="must not both be 0"):
        small_spec({"name": "fedrep", "head_epochs": 0, "body_epochs": 0})
