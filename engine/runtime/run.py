"""Run: the one loop of all methods. It draws the cohort, lets it work, lets the server aggregate, tests and records."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from engine.kit.contract import Algorithm, AlgorithmParams, Client, Moment, Payload, ServerState
from engine.kit.tensors import Tensors
from engine.kit.training import Diverged, Interrupted, TooManyDiverged
from engine.kit.work import ClientResult, Task, Tested
from engine.methods import REGISTRY
from engine.records import Dropped, RoundRecord
from engine.runtime.client_states import DEFAULT_BUDGET, Snapshot
from engine.runtime.device import Compute, Precision, Stacking
from engine.runtime.evaluation import cohort_moment, everyone_is_tested, is_due, test_client
from engine.runtime.executor import ClientPool, prepare_process
from engine.runtime.federation import Federation
from engine.runtime.pretrained import Weights, starting_points
from engine.runtime.recording import round_record
from engine.runtime.setup import set_up
from engine.runtime.stacked import Stacked
from engine.spec.experiment import ExperimentSpec

Answer = TypeVar("Answer")

__all__ = ["Diverged", "Interrupted", "Run"]


class Run:
    """One experiment in this process, from a spec that `engine.catalogue.check` accepts."""

    def __init__(
        self,
        spec: ExperimentSpec,
        *,
        data_root: Path | None = None,
        threads: int = 1,
        device: str = "cpu",
        precision: Precision = "float32",
        compile: bool = False,
        stacked: Stacking = "auto",
        should_stop: Callable[[], bool] | None = None,
        state_budget_bytes: int = DEFAULT_BUDGET,
        resume_from: Snapshot | None = None,
        weights: Weights | None = None,
    ) -> None:
        """`state_budget_bytes` is the memory for idle clients' tensors; `resume_from` continues after its round.

        `weights` finds the files that models.pretrained names. For `device` to `stacked` see
        engine.runtime.device.Compute.
        """
        if resume_from is not None and resume_from.fingerprint != spec.fingerprint():
            raise ValueError(
                f"the checkpoint belongs to spec {resume_from.fingerprint[:12]}, not to {spec.fingerprint()[:12]}"
            )
        prepare_process()
        self.spec = spec
        self.compute = Compute(device, precision=precision, compile=compile, stacked=stacked)
        self.threads = threads
        dataset, self.partition, self.setup = set_up(spec, data_root)
        self.majority_share = self.partition.majority_share(dataset.labels)
        self.dataset = self.compute.resident(dataset)
        if spec.models.pretrained is not None:
            start = starting_points(spec.models.pretrained, self.setup, weights)
            self.setup = replace(self.setup, pretrained=start)
        if should_stop is not None:
            self.setup = replace(self.setup, interrupted=should_stop)
        self.algorithm: Algorithm[AlgorithmParams] = REGISTRY[spec.algorithm.name](spec.algorithm, self.setup)
        self.federation = Federation(
            self.algorithm,
            self.dataset,
            self.partition.shares,
            self.compute,
            transform=spec.dataset.transform,
            state_budget_bytes=state_budget_bytes,
        )
        self.peers = self.algorithm.peers()
        self.last_round = -1
        self._stacked = Stacked(self.compute, self.setup)
        self._pool = ClientPool()
        self._resume_from = resume_from

    @property
    def server(self) -> ServerState:
        return self.federation.server

    @property
    def partition_fingerprint(self) -> str:
        return self.partition.fingerprint

    @property
    def environment(self) -> dict[str, str | int]:
        """What the last bits depend on beside the spec."""
        return {
            **self.compute.environment,
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
            "memory_format": "channels_last",
            "stacked": self._stacked.environment,
        }

    def rounds(self) -> Iterator[RoundRecord]:
        """Round 0, the opening, and then rounds 1 to T; after a resume, the rounds that follow the checkpoint."""
        explained = self.compute.explained_memory
        with explained("building the networks"):
            self.federation.build()
        self._pool = ClientPool(min(self.threads, self.spec.clients), self.compute.stream)
        try:
            if self._resume_from is None:
                self.last_round = 0
                with explained("working on round 0"):
                    record = self.opening()
                yield record
            else:
                self._restore(self._resume_from)
            for number in range(self.last_round + 1, self.spec.rounds + 1):
                with explained(f"working on round {number}"):
                    record = self._round(number)
                self.last_round = number
                yield record
        finally:
            self._pool.close()

    def query_clients(self, clients: Sequence[int], ask: Callable[[Client, Payload], Answer]) -> list[Answer]:
        """Ask clients about the state after the last round that was computed, each with the newest download.

        A run that resumes from a checkpoint has its state without computing a round. What `ask` changes in a client is
        forgotten.
        """
        if not self.federation.networks and self._resume_from is not None:
            self.federation.build()
            self._restore(self._resume_from)
        if self.last_round < 0:
            raise ValueError("there is nothing to ask about before the first round was computed")
        return self.federation.query_clients(clients, self.last_round, ask)

    def _restore(self, snapshot: Snapshot) -> None:
        self.last_round = snapshot.round
        self.federation.restore(snapshot)

    def opening(self) -> RoundRecord:
        """Round 0: a method's step before training, if it has one, and the untrained test of protocol B."""
        started = time.perf_counter()
        federation, everyone = self.federation, range(self.spec.clients)
        results: list[ClientResult] = []
        server_seconds = 0.0
        if self.algorithm.opens():
            results = self._of_each(everyone, federation.opening_work)
            self._check_divergence(results)
            server_started = time.perf_counter()
            federation.close_opening(results)
            results = self._of_each(everyone, lambda k: federation.announce(results[k]))
            server_seconds = time.perf_counter() - server_started
        tests: dict[int, Tested] = {}
        if self.spec.evaluation.protocol == "B":
            tests = self._test_with_download(everyone, 0)
        return self._record(0, results, tests, started, server_seconds)

    def _of_each(self, clients: Sequence[int], work: Callable[[int], Answer]) -> list[Answer]:
        return self._pool.map(work, clients, self.federation.cost)

    def _round(self, number: int) -> RoundRecord:
        started = time.perf_counter()
        cohort = self.setup.participants(number)
        due = is_due(self.spec.evaluation, number, self.spec.rounds)
        moment = cohort_moment(self.spec.evaluation, self.algorithm.tested) if due and self.peers is None else None

        if self.peers is None:
            results = self._cohort_work(cohort, number, moment)
            self._check_divergence(results)
            server_started = time.perf_counter()
            server, of_server = self.federation.aggregate(results, number)
        else:
            results, server = self.peers.round(self.server, number, partial(self._perform, number))
            self._check_divergence(results)
            server_started, of_server = time.perf_counter(), []
        self.federation.adopt(server, results, number)
        server_seconds = time.perf_counter() - server_started

        tests = {result.id: result.tested for result in results if result.tested is not None}
        late: Sequence[int] = []
        if due and moment is Moment.AFTER_AGGREGATION:
            late = cohort
        if due and (self.peers is not None or everyone_is_tested(self.spec.evaluation, number, self.spec.rounds)):
            late = [k for k in range(self.spec.clients) if k not in tests]
        tests |= self._test_with_download(late, number)
        return self._record(number, results, tests, started, server_seconds, of_server)

    def _check_divergence(self, results: Sequence[ClientResult]) -> None:
        """Ends the run when more of those who took part sit out than the spec allows."""
        failures = [result.diverged for result in results if result.diverged is not None]
        tolerance = self.spec.training.divergence_tolerance
        if len(failures) <= tolerance * len(results) + 1e-9:
            return
        raise failures[0] if len(failures) == 1 else TooManyDiverged(failures, len(results), tolerance)

    def _cohort_work(self, cohort: Sequence[int], number: int, moment: Moment | None) -> list[ClientResult]:
        if not self._stacked.used:
            return self._of_each(cohort, partial(self._local_work, number=number, moment=moment))
        tests: dict[int, Tested] = {}
        if moment is Moment.BEFORE_LOCAL_WORK:
            moment, tests = None, self._test_with_download(cohort, number)
        local_work = partial(self._local_work, number=number, moment=moment)
        results = self._stacked.work(self._pool, cohort, self.federation.cost, local_work)
        return [replace(result, tested=tests.get(result.id, result.tested)) for result in results]

    def _local_work(
        self, client_id: int, number: int, moment: Moment | None, trainer: Callable[[Client], float] | None = None
    ) -> ClientResult:
        federation, tested = self.federation, None
        client = federation.load(client_id, number)
        received = federation.download(client)
        if moment is Moment.BEFORE_LOCAL_WORK:
            tested = test_client(self.algorithm, client, received)
            client = federation.load(client_id, number)
        client.trainer = trainer
        result = federation.local_work(client, received)
        if moment is Moment.AFTER_LOCAL_WORK:
            if result.diverged is None:
                tested = test_client(self.algorithm, client, None)
            else:  # as it was before, with what it was sent
                tested = test_client(self.algorithm, federation.load(client_id, number), received)
        return replace(result, tested=tested)

    def _perform(self, number: int, tasks: Sequence[Task], states: Mapping[int, Tensors]) -> list[ClientResult]:
        def work(position: int) -> ClientResult:
            task = tasks[position]
            client = self.federation.load(task.client, number, state=states.get(task.client))
            return self.federation.work(client, lambda: task.act(client))

        return self._pool.map(work, range(len(tasks)), lambda position: self.federation.cost(tasks[position].client))

    def _test_with_download(self, clients: Sequence[int], number: int) -> dict[int, Tested]:
        """Test with the newest global state. Handing it out for a test is not traffic."""

        def test(client_id: int) -> Tested | None:
            client = self.federation.load(client_id, number)
            return test_client(self.algorithm, client, self.federation.download(client))

        results = self._of_each(clients, test)
        return {k: tested for k, tested in zip(clients, results, strict=True) if tested is not None}

    def _record(
        self,
        number: int,
        results: Sequence[ClientResult],
        tests: Mapping[int, Tested],
        started: float,
        server_seconds: float,
        of_server: Sequence[Dropped] = (),
    ) -> RoundRecord:
        return round_record(
            number,
            results,
            tests,
            self.spec.evaluation,
            server_flops=self.server.flops,
            seconds=time.perf_counter() - started,
            server_seconds=server_seconds,
            of_server=of_server,
        )
