"""What every method must obey, whatever it does."""

from typing import Any

import pytest
import torch
from pydantic_core import PydanticUndefined

from engine.algorithm import ServerState, Upload
from engine.algorithms import REGISTRY
from engine.executor import Bench, Crew
from engine.run import Run
from engine.tree import copy_tensors
from tests.engine.conftest import SpecMaker, records_of, same_results

METHODS = list(REGISTRY)


class Stage:
    """One round of a method, step by step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.algorithm: Any = run.algorithm
        run._build_networks()
        run._opening(Crew(run._originals, 1))
        self.bench = Bench(run._originals)

    def client(self, client_id: int = 0) -> Any:
        return self.run._seat(self.bench, client_id, 1)

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
    return {group: copy_tensors(tensors) for group, tensors in server.groups.items()}


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


def test_threads_do_not_change_a_bit(method: str, small_spec: SpecMaker) -> None:
    assert same_results(records_of(small_spec(method)), records_of(small_spec(method), threads=2))


def test_local_work_leaves_the_server_alone(stage: Stage) -> None:
    before = frozen(stage.run.server)
    stage.upload()
    assert equal(before, frozen(stage.run.server))


def test_aggregation_makes_a_new_state_and_leaves_the_old_one_alone(stage: Stage) -> None:
    uploads = [stage.upload(client_id) for client_id in range(3)]
    before = frozen(stage.run.server)
    stage.algorithm.aggregate(stage.run.server, uploads)
    assert equal(before, frozen(stage.run.server))


def test_an_upload_shares_no_memory_with_its_client_or_the_server(stage: Stage) -> None:
    upload = stage.upload()
    owned = {tensor.data_ptr() for tensor in stage.bench.desk(stage.client().architecture).tensors.values()}
    owned |= {tensor.data_ptr() for group in stage.run.server.groups.values() for tensor in group.values()}
    assert not owned & {tensor.data_ptr() for tensor in upload.payload.values()}


def test_the_same_local_work_twice_gives_the_same_upload(stage: Stage) -> None:
    first, second = stage.upload(), stage.upload()
    assert equal({"all": first.payload}, {"all": second.payload})


def test_a_private_part_never_travels_under_its_own_name(stage: Stage) -> None:
    client = stage.client()
    private = {
        tensor.data_ptr()
        for module in stage.algorithm.private(client).values()
        for tensor in module.state_dict().values()
    }
    assert not private & {tensor.data_ptr() for tensor in stage.upload().payload.values()}


def test_every_parameter_has_a_default_and_a_description(method: str) -> None:
    for name, field in REGISTRY[method].Params.model_fields.items():
        assert field.default is not PydanticUndefined, name
        assert name == "name" or field.description, name


def test_its_file_opens_with_the_paper(method: str) -> None:
    import sys

    text = sys.modules[REGISTRY[method].__module__].__doc__
    assert text
    assert REGISTRY[method].method.title in text.splitlines()[0]
    link = REGISTRY[method].method.link
    assert not link or link in text
