"""What a federation promises to those who go over its rounds."""

import pytest
import torch

from engine.kit.contract import Client, Payload, ServerState
from engine.kit.tensors import copy_tensors
from engine.runtime.run import Run
from engine.testing import same
from tests.engine.conftest import SpecMaker


def test_a_server_holds_only_what_its_method_declares(small_spec: SpecMaker) -> None:
    federation = Run(small_spec("fedavg")).federation
    with pytest.raises(ValueError, match="the server of FedAvg holds anchor: name it in shared_state"):
        federation.server = ServerState({}, {"anchor": {"all": {}}})


def test_the_state_that_follows_keeps_what_it_does_not_name() -> None:
    one = {"all": {"w": torch.ones(1)}}
    first = ServerState({}, {"anchor": one, "velocity": one}, round=3, flops=7)
    second = first.next(one, velocity={})
    assert (second.groups, second.shared) == (one, {"anchor": one, "velocity": {}})
    assert (second.round, second.flops) == (3, 0)


def test_a_client_that_is_loaded_again_has_forgotten_what_was_not_kept(small_spec: SpecMaker) -> None:
    run = Run(small_spec(models={"family": "tiny-mlp"}))
    list(run.rounds())
    before = copy_tensors(run.federation.load(0, 3).model)
    with torch.no_grad():
        for weight in run.federation.load(1, 3).model.parameters():
            weight.fill_(7)
    assert same(copy_tensors(run.federation.load(0, 3).model), before)


def test_clients_are_looked_at_side_by_side_on_replicas_of_their_own(small_spec: SpecMaker) -> None:
    run = Run(small_spec(models={"family": "tiny-mlp"}, participation=1.0))
    list(run.rounds())
    first = run.federation.load(0, 3)
    second = run.federation.load(1, 3, replicas=run.federation.replicas())
    assert not same(copy_tensors(first.model), copy_tensors(second.model))
    assert run.federation.load(1, 3).model is first.model, "the thread's own replica goes to the next client"


def test_asking_clients_changes_nothing(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedper"))
    list(run.rounds())

    def spoil(client: Client, received: Payload) -> float:
        before = sum(float(weight.detach().sum()) for weight in client.model.parameters())
        with torch.no_grad():
            for weight in client.model.parameters():
                weight.fill_(7)
        return before

    assert run.query_clients([0, 1, 0], spoil)[::2] == run.query_clients([0, 0], spoil)


def test_before_the_first_round_there_is_nothing_to_ask_about(small_spec: SpecMaker) -> None:
    with pytest.raises(ValueError, match="nothing to ask about before the first round"):
        Run(small_spec()).query_clients([0], lambda *_: None)
