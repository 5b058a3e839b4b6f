"""The cost that is told in advance is the cost that is booked later."""

import pytest

from engine.catalogue import check, estimate
from engine.estimate import Untold, rehearse
from engine.methods import REGISTRY
from engine.runtime.run import Run
from engine.spec.problems import SpecError
from tests.engine.conftest import SpecMaker

VARIES = {"fedkd": "the rank of an update", "fedapen": "a share of few samples", "compfl": "the expert drawn"}


@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in VARIES])
def test_the_estimate_is_what_the_second_round_costs(name: str, small_spec: SpecMaker) -> None:
    spec = small_spec(name, participation=1.0, rounds=2)
    try:
        check(spec, None)
    except SpecError as error:
        pytest.skip(str(error))
    found = estimate(spec, None)
    opening, _, second = Run(spec).rounds()
    assert (found.round.bytes_up, found.round.bytes_down) == (second.bytes_up, second.bytes_down)
    assert found.round.client_flops == pytest.approx(second.client_flops, rel=0.01)
    assert (found.opening.bytes_up, found.opening.bytes_down) == (opening.bytes_up, opening.bytes_down)
    assert found.opening.client_flops == opening.client_flops


def test_a_part_of_the_clients_costs_a_part(small_spec: SpecMaker) -> None:
    whole, half = (rehearse(small_spec("fedavg", participation=share), None) for share in (1.0, 0.5))
    assert half.round.bytes_up == whole.round.bytes_up / 2


@pytest.mark.parametrize(("rounds", "distils"), [(19, False), (20, True)])
def test_the_estimate_is_that_of_a_round_in_the_middle(rounds: int, distils: bool, small_spec: SpecMaker) -> None:
    """CompFL sends every expert that a client can hold once its warm-up of ten rounds is over."""
    algorithm = {"name": "compfl", "greedy": False}
    spec = small_spec(algorithm, participation=1.0, rounds=rounds, training={"epochs": 1, "batch_size": 64})
    found = estimate(spec, None)
    records = list(Run(spec.model_copy(update={"rounds": 11})).rounds())
    expected = records[11] if distils else records[10]
    assert found.round.bytes_down == expected.bytes_down
    assert found.round.client_flops == pytest.approx(expected.client_flops, rel=0.01)
    assert records[11].bytes_down > records[10].bytes_down


def test_in_the_middle_fedkd_sends_a_compressed_update_each_way(small_spec: SpecMaker) -> None:
    small = {"small_model": "compfl-cnn"}
    found, dense = (estimate(small_spec({"name": name, **small}, rounds=30), None) for name in ("fedkd", "fml"))
    assert 0 < found.round.bytes_up < dense.round.bytes_up
    assert 0 < found.round.bytes_down < dense.round.bytes_down


def test_what_cannot_be_told_in_advance_comes_with_a_reason(small_spec: SpecMaker) -> None:
    with pytest.raises(Untold, match="takes longer than 0 s") as slow:
        rehearse(small_spec("fedavg"), None, patience=0)
    with pytest.raises(Untold, match="clients talk to each other") as peers:
        rehearse(small_spec("compfl", topology="gossip", participation=1.0), None)
    assert (slow.value.lasting, peers.value.lasting) == (False, True)
