"""What every method must obey, whatever it does."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from pydantic_core import PydanticUndefined
from torch import Tensor

from engine.kit.calibration import RECALIBRATED
from engine.kit.contract import ServerState, Upload
from engine.kit.tensors import copy_tensors, live_tensors
from engine.methods import REGISTRY
from engine.runtime.run import Run
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.methods.federation import parts

METHODS = list(REGISTRY)


class Stage:
    """One round of a method, step by step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.algorithm: Any = run.algorithm
        run.federation.build()
        run.opening()

    def client(self, client_id: int = 0) -> Any:
        return self.run.federation.load(client_id, 1)

    def upload(self, client_id: int = 0) -> Upload:
        client = self.client(client_id)
        payload = self.algorithm.local_update(client, self.algorithm.download(self.run.server, client))
        return Upload(client_id, len(client.train), self.algorithm.group(client), payload)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(method: str, small_spec: SpecMaker) -> Stage:
    return Stage(Run(small_spec(method)))


def frozen(server: ServerState) -> dict[str, Any]:
    return {name: copy_tensors(tensors) for name, tensors in parts(server).items()}


def equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[group][name], second[group][name]) for group in first for name in first[group]
    )


def test_it_finishes_and_every_record_is_complete(method: str, small_spec: SpecMaker) -> None:
    for record in records_of(small_spec(method))[1:]:
        assert record.accuracy is not None
        assert record.loss is not None
        assert record.client_flops > 0
        assert record.bytes_up == 4 * record.scalars_up


def test_all_that_it_traces_is_declared(method: str, small_spec: SpecMaker) -> None:
    declared = {trace.name for trace in REGISTRY[method].method.traces} | {RECALIBRATED.name}
    records = records_of(small_spec(method))
    left = {name for record in records for name in record.traces}
    assert left <= declared
    last_only = {trace.name for trace in REGISTRY[method].method.traces if trace.last_round_only}
    assert not last_only & {name for record in records[:-1] for name in record.traces}


def test_threads_do_not_change_a_bit(method: str, small_spec: SpecMaker) -> None:
    assert same_results(records_of(small_spec(method)), records_of(small_spec(method), threads=2))


def test_local_work_leaves_the_server_alone(stage: Stage) -> None:
    before = frozen(stage.run.server)
    stage.upload()
    assert equal(before, frozen(stage.run.server))


def test_aggregation_makes_a_new_state_and_leaves_the_old_one_alone(stage: Stage) -> None:
    uploads = [stage.upload(client_id) for client_id in range(3)]
    before = frozen(stage.run.server)
    stage.algorithm.aggregate(stage.run.server, uploads, 1)
    assert equal(before, frozen(stage.run.server))


def blocks(*tensors: Tensor) -> set[int]:
    """The blocks of memory behind tensors, be they whole tensors or parts of one."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def test_an_upload_shares_no_memory_with_its_client_or_the_server(stage: Stage) -> None:
    upload = stage.upload()
    client = stage.client()
    owned = blocks(*live_tensors(client.model).values(), *live_tensors(client.parts).values())
    owned |= blocks(*stage.run.server.tensors())
    assert not owned & blocks(*upload.payload.values())


def test_an_upload_stays_as_it_was_while_the_next_client_works_at_the_same_bench(
    method: str, small_spec: SpecMaker
) -> None:
    """In published codes uploads are references to one network: the average is what the last client left there."""
    stage = Stage(Run(small_spec(method, models={"family": "tiny-cnn"})))
    first = stage.upload(0)
    before = copy_tensors(first.payload)
    second = stage.upload(1)
    assert equal({"all": before}, {"all": first.payload})
    assert method == "standalone" or not equal({"all": before}, {"all": second.payload})


def test_the_same_local_work_twice_gives_the_same_upload(stage: Stage) -> None:
    first, second = stage.upload(), stage.upload()
    assert equal({"all": first.payload}, {"all": second.payload})


def floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def test_what_a_client_keeps_is_never_in_its_message(method: str, small_spec: SpecMaker) -> None:
    """In round 2, since SCAFFOLD's first change of a variate is the variate itself."""
    run = Run(small_spec(method, participation=1.0))
    rounds = run.rounds()
    next(rounds), next(rounds)
    client = run.federation.load(2, 2)
    sent = floats(run.algorithm.local_update(client, run.algorithm.download(run.server, client)))
    for module in run.algorithm.private(client).values():
        for name, kept in floats(live_tensors(module)).items():
            assert not any(torch.equal(kept, tensor) for tensor in sent.values()), name


def test_what_a_client_keeps_changes_in_its_own_rounds_and_in_no_other(method: str, small_spec: SpecMaker) -> None:
    run = Run(small_spec(method, rounds=4, participation=0.34))
    before: dict[int, Any] = {}
    for record in run.rounds():
        now = {k: run.federation.kept(run.federation.load(k, record.round)) for k in range(run.setup.clients)}
        for k, kept in before.items():
            assert equal({"": kept}, {"": now[k]}) == (k not in record.cohort or not kept)
        before = now


SMALL_CLIENTS = {
    "fewer samples than a batch": (2, 8, "tiny-3"),
    "a last batch of one sample": (3, 2, "tiny-3"),
    "one sample": (1, 8, "tiny-cnn"),
}


@pytest.mark.parametrize("case", SMALL_CLIENTS)
def test_small_clients_are_trained_on_all_they_have(case: str, method: str, small_spec: SpecMaker) -> None:
    """No batch is dropped, and batch norm never sees a single sample."""
    size, batch, family = SMALL_CLIENTS[case]
    spec = small_spec(
        method,
        partition={"name": "balanced", "classes_per_client": 1, "local_size": size},
        training={"epochs": 1, "batch_size": batch, "lr": 0.05},
        models={"family": family},
        rounds=2,
    )
    for record in records_of(spec)[1:]:
        assert record.loss is not None
        assert record.loss > 0
        assert record.client_flops > 0


def test_every_parameter_has_a_default_and_a_description(method: str) -> None:
    for name, field in REGISTRY[method].Params.model_fields.items():
        assert field.default is not PydanticUndefined, name
        assert name == "name" or field.description, name
