"""The contract of a method as tests, for methods that live here and for those that live elsewhere.

Write a test file for pytest beside your method, and every test below runs on it:

    from engine.testing import MethodContract

    class TestFedAvgM(MethodContract):
        methods = ("fedavgm",)
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic_core import PydanticUndefined
from torch import Tensor

from engine.kit.calibration import RECALIBRATED
from engine.kit.contract import Client, Payload, ServerState, Upload
from engine.kit.headers import header
from engine.kit.sharing import AveragesModule
from engine.kit.tensors import copy_tensors, live_tensors, weighted_mean
from engine.methods import REGISTRY
from engine.records import RoundRecord
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec

SMALL: dict[str, Any] = {
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 1, "size": 16},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "tiny-3"},
    "clients": 6,
    "participation": 0.5,
    "rounds": 3,
    "training": {"epochs": 2, "batch_size": 8, "lr": 0.05},
    "seed": 7,
}
"""An experiment that runs in a fraction of a second."""

EQUAL: dict[str, Any] = {
    "participation": 1.0,
    "partition": {"name": "balanced", "classes_per_client": 2, "local_size": 20},
}
"""All take part with equal n_k."""

SMALL_CLIENTS = {
    "fewer samples than a batch": (2, 8, "tiny-3"),
    "a last batch of one sample": (3, 2, "tiny-3"),
    "one sample": (1, 8, "tiny-cnn"),
}
"""Samples of a client, batch size, and networks that can be trained on them."""


def small_spec(algorithm: str | dict[str, Any] = "standalone", **changes: Any) -> ExperimentSpec:
    """SMALL with this method; keyword arguments replace top-level fields."""
    named = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    return ExperimentSpec.parse({**SMALL, "algorithm": named, **changes})


def records_of(spec: ExperimentSpec, **options: Any) -> list[RoundRecord]:
    return list(Run(spec, **options).rounds())


def same_results(first: Sequence[RoundRecord], second: Sequence[RoundRecord]) -> bool:
    """Bit for bit, apart from the times."""
    return [record.without_times() for record in first] == [record.without_times() for record in second]


def parts(server: ServerState) -> dict[str, Payload]:
    """All sets of tensors that the server has: those of its groups, and those it holds beside them."""
    shared = {f"{name} of {group}": own for name, groups in server.shared.items() for group, own in groups.items()}
    return {**server.groups, **shared}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Stage:
    """Round 1 of a method, client by client."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.algorithm: Any = run.algorithm
        run.federation.build()
        run.opening()

    def client(self, client_id: int = 0) -> Client:
        return self.run.federation.load(client_id, 1)

    def upload(self, client_id: int = 0) -> Upload:
        client = self.client(client_id)
        payload = self.algorithm.local_update(client, self.run.federation.download(client))
        return Upload(client_id, len(client.train), self.algorithm.group(client), payload)


class MethodContract:
    """What every method must obey, whatever it does."""

    methods: ClassVar[Sequence[str]]
    """Ids of the methods to be tested."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        averaging = [name for name in self.methods if issubclass(REGISTRY[name], AveragesModule)]
        cases = {"method": self.methods, "averaging": averaging, "small": SMALL_CLIENTS}
        for name, values in cases.items():  # in one order: the processes of a test run must agree on it
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, list(values))

    # what it says of itself

    def test_its_header_yields_what_the_pages_show(self, method: str) -> None:
        found = header(REGISTRY[method])
        assert found.title == REGISTRY[method].method.title
        assert len(found.purpose) > len(found.title)
        assert found.source.paper
        assert found.equations[0].label
        assert found.inference, "a line of the equations must begin with `use`: what answers for a client"

    def test_every_parameter_has_a_default_and_a_description(self, method: str) -> None:
        for name, field in REGISTRY[method].Params.model_fields.items():
            assert field.default is not PydanticUndefined, name
            assert name == "name" or field.description, name

    def test_all_that_it_traces_is_declared(self, method: str) -> None:
        traces = REGISTRY[method].method.traces
        records = records_of(small_spec(method))
        left = {name for record in records for name in record.traces}
        assert left <= {trace.name for trace in (*traces, RECALIBRATED)}
        early = {name for record in records[:-1] for name in record.traces}
        assert not early & {trace.name for trace in traces if trace.last_round_only}

    # whole runs

    def test_it_finishes_and_every_record_is_complete(self, method: str) -> None:
        for record in records_of(small_spec(method))[1:]:
            assert record.accuracy is not None
            assert record.loss is not None
            assert record.client_flops > 0
            assert record.bytes_up == 4 * record.scalars_up

    def test_threads_do_not_change_a_bit(self, method: str) -> None:
        assert same_results(records_of(small_spec(method)), records_of(small_spec(method), threads=2))

    def test_small_clients_are_trained_on_all_they_have(self, small: str, method: str) -> None:
        """No batch is dropped, and batch norm never sees a single sample."""
        size, batch, family = SMALL_CLIENTS[small]
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

    # a client's work

    def test_local_work_leaves_the_server_alone(self, method: str) -> None:
        stage = Stage(Run(small_spec(method)))
        before = _copies(parts(stage.run.server))
        stage.upload()
        assert _equal(before, parts(stage.run.server))

    def test_an_upload_shares_no_memory_with_its_client_or_the_server(self, method: str) -> None:
        stage = Stage(Run(small_spec(method)))
        upload, client = stage.upload(), stage.client()
        owned = _blocks(*live_tensors(client.model).values(), *live_tensors(client.parts).values())
        owned |= _blocks(*stage.run.server.tensors())
        assert not owned & _blocks(*upload.payload.values())

    def test_an_upload_stays_as_it_was_while_the_next_client_works_on_the_same_networks(self, method: str) -> None:
        """In published codes uploads are references to one network: the average is what the last client left there."""
        stage = Stage(Run(small_spec(method, models={"family": "tiny-cnn"})))
        first = stage.upload(0)
        before = copy_tensors(first.payload)
        second = stage.upload(1)
        assert same(before, first.payload)
        assert not first.payload or not same(before, second.payload)

    def test_the_same_local_work_twice_gives_the_same_upload(self, method: str) -> None:
        stage = Stage(Run(small_spec(method)))
        assert same(stage.upload().payload, stage.upload().payload)

    def test_what_a_client_keeps_is_never_in_its_message(self, method: str) -> None:
        """In round 2, since SCAFFOLD's first change of a variate is the variate itself."""
        run = Run(small_spec(method, participation=1.0))
        rounds = run.rounds()
        next(rounds), next(rounds)
        client = run.federation.load(2, 2)
        sent = _floats(run.algorithm.local_update(client, run.federation.download(client)))
        for module in run.algorithm.private(client).values():
            for name, kept in _floats(live_tensors(module)).items():
                assert not any(torch.equal(kept, tensor) for tensor in sent.values()), name

    def test_what_a_client_keeps_changes_in_its_own_rounds_and_in_no_other(self, method: str) -> None:
        run = Run(small_spec(method, rounds=4, participation=0.34))
        before: dict[int, Any] = {}
        for record in run.rounds():
            loaded = (run.federation.load(k, record.round) for k in range(run.setup.clients))
            now = {client.id: run.federation.kept(client) for client in loaded}
            for k, kept in before.items():
                assert same(kept, now[k]) == (k not in record.cohort or not kept)
            before = now

    # the server's work

    def test_aggregation_makes_a_new_state_and_leaves_the_old_one_alone(self, method: str) -> None:
        stage = Stage(Run(small_spec(method)))
        uploads = [stage.upload(client_id) for client_id in range(3)]
        before = _copies(parts(stage.run.server))
        stage.algorithm.aggregate(stage.run.server, uploads, 1)
        assert _equal(before, parts(stage.run.server))

    def test_all_that_the_server_holds_beside_its_groups_is_declared(self, method: str) -> None:
        run = Run(small_spec(method, participation=1.0))
        for _record in run.rounds():
            assert run.server.shared.keys() <= run.algorithm.shared_state

    def test_with_everyone_there_and_equal_sizes_the_average_is_uniform_unless_its_server_does_more(
        self, averaging: str
    ) -> None:
        stage = Stage(Run(small_spec(averaging, **EQUAL)))
        if stage.algorithm.server_does_more:
            assert type(stage.algorithm).aggregate is not AveragesModule.aggregate, "then this is the place to do it"
            return
        uploads = [stage.upload(client) for client in range(stage.run.setup.clients)]
        state = stage.algorithm.aggregate(stage.run.server, uploads, 1)
        for group in {upload.group for upload in uploads}:
            sent = [upload.payload for upload in uploads if upload.group == group]
            assert same(state.groups[group], weighted_mean(sent, [1 / len(sent)] * len(sent)))


def _blocks(*tensors: Tensor) -> set[int]:
    """The blocks of memory behind tensors, be they whole tensors or parts of one."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def _floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _copies(sets: Mapping[str, Payload]) -> dict[str, Payload]:
    return {name: copy_tensors(tensors) for name, tensors in sets.items()}


def _equal(first: Mapping[str, Payload], second: Mapping[str, Payload]) -> bool:
    return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
