"""run(spec): the one loop of all methods. It draws the cohort, hands out payloads, counts costs, tests and records."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from engine.data.samples import Samples
from engine.kit import rng
from engine.kit.contract import Algorithm, AlgorithmParams, Client, Groups, Moment, Payload, ServerState, Upload
from engine.kit.flops import forward_flops
from engine.kit.tensors import Tensors, all_finite, copy_tensors, count_scalars, live_tensors, load_tensors
from engine.kit.training import Diverged, Interrupted, TooManyDiverged
from engine.kit.work import ClientResult, Task, Tested
from engine.methods import REGISTRY
from engine.models import seed_dropout
from engine.records import Dropped, RoundRecord
from engine.runtime.client_states import DEFAULT_BUDGET, ClientStates, Snapshot
from engine.runtime.device import Compute, Precision, Stacking
from engine.runtime.evaluation import (
    cohort_moment,
    everyone_is_tested,
    is_due,
    round_accuracy,
    test_client,
    validation_accuracy,
)
from engine.runtime.executor import Bench, Crew, Desk, prepare_process
from engine.runtime.pretrained import Weights, starting_points
from engine.runtime.screening import screened
from engine.runtime.setup import set_up
from engine.runtime.stacked import Stacked
from engine.spec.experiment import ExperimentSpec

BYTES_PER_SCALAR = 4
T = TypeVar("T")

__all__ = ["Diverged", "Interrupted", "Run", "run"]


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
        self._peers = self.algorithm.peers()
        self._stacked = Stacked(self.compute, self.setup)
        self._originals: dict[str, Desk] = {}
        self._initial: dict[str, Tensors] = {}
        self._forward_flops: dict[str, int] = {}
        self._states = ClientStates(state_budget_bytes)
        self._changed: set[int] = set()
        self._resume_from = resume_from
        self.server = ServerState()
        self.last_round = -1

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
            self._build_networks()
        crew: Crew[int] = Crew(self._originals, min(self.threads, self.spec.clients), self.compute.lane)
        try:
            if self._resume_from is None:
                self.last_round = 0
                with explained("working on round 0"):
                    record = self._opening(crew)
                yield record
            else:
                self._restore(self._resume_from)
            for number in range(self.last_round + 1, self.spec.rounds + 1):
                with explained(f"working on round {number}"):
                    record = self._round(crew, number)
                self.last_round = number
                yield record
        finally:
            crew.close()

    @property
    def changed_clients(self) -> int:
        """How many clients changed since the last checkpoint."""
        return len(self._changed)

    def changed(self) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
        """The clients whose tensors changed since the last checkpoint."""
        for client in sorted(self._changed):
            yield client, self._states.get(client)

    def note_checkpoint(self) -> None:
        """All that changed is in a checkpoint now."""
        self._changed.clear()

    def interview(self, clients: Sequence[int], ask: Callable[[Client, Payload], T]) -> list[T]:
        """Ask clients about the state after the last round that was computed, each with the newest download.

        A run that resumes from a checkpoint has its state without computing a round. What `ask` changes in a client is
        forgotten.
        """
        if not self._originals and self._resume_from is not None:
            self._build_networks()
            self._restore(self._resume_from)
        if self.last_round < 0:
            raise ValueError("there is nothing to ask about before the first round was computed")
        bench = Bench(self._originals)
        answers = []
        for client_id in clients:
            if self.setup.interrupted():
                raise Interrupted
            client = self._seat(bench, client_id, self.last_round)
            answers.append(ask(client, self.algorithm.download(self.server, client)))
        return answers

    def _restore(self, snapshot: Snapshot) -> None:
        self.last_round = snapshot.round
        self.server = self._placed(snapshot.server)
        for client, file in snapshot.clients.items():
            self._states.adopt(client, file)

    def _placed(self, server: ServerState) -> ServerState:
        def placed(groups: Groups) -> Groups:
            return {name: self.compute.place(tensors) for name, tensors in groups.items()}

        shared = {name: placed(groups) for name, groups in server.shared.items()}
        return replace(server, groups=placed(server.groups), shared=shared)

    def _build_networks(self) -> None:
        """One original per architecture; its values are the initial state of every client that owns it."""
        examples = []
        for architecture in dict.fromkeys(self.setup.architectures):
            model = self.setup.model(architecture)
            model.to(device=self.compute.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            desk = Desk(model, nn.ModuleDict())
            client = self._client(desk, self.setup.architectures.index(architecture), 0)
            self.algorithm.init_client(client)
            client.parts.to(self.compute.device)
            desk = Desk(model, client.parts)
            self._originals[architecture] = desk
            self._initial[architecture] = copy_tensors(desk.tensors)
            image = torch.zeros(1, *self.setup.shape, device=self.compute.device)
            with torch.no_grad():
                self._forward_flops[architecture] = forward_flops(model.eval(), image)
            examples.append(client)
        self.server = self.algorithm.init_server(examples)

    def _client(self, desk: Desk, client_id: int, number: int) -> Client:
        share = self.partition.shares[client_id]
        train, test, validation = (
            Samples.of(
                self.dataset,
                index,
                share.label_map,
                transform=self.spec.dataset.transform,
                augment=self.spec.training.augment,
                device=self.compute.device,
            )
            for index in (share.train, share.test, share.validation)
        )
        return Client(
            id=client_id,
            round=number,
            setup=self.setup,
            model=desk.model,
            parts=desk.parts,
            train=train,
            test=test,
            validation=validation,
            announced={},
            compute=self.compute,
        )

    def _seat(self, bench: Bench, client_id: int, number: int, state: Tensors | None = None) -> Client:
        """The client with its own tensors: those given, those it kept, or the initial ones."""
        architecture = self.setup.architectures[client_id]
        desk = bench.desk(architecture)
        own = self._states.get(client_id) if state is None else state
        load_tensors(desk.tensors, {**self._initial[architecture], **own})
        client = self._client(desk, client_id, number)
        for role, module in [("model", client.model), *client.parts.items()]:
            seed_dropout(module, rng.generator(self.spec.seed, "dropout", number, client_id, role))
        if number > 0 and self.algorithm.opens():
            client.announced = self.algorithm.announce(self.server, client)
        client.known = self.algorithm.known(self.server, client)
        return client

    def _kept(self, client: Client) -> Tensors:
        return {
            f"{prefix}.{name}": tensor.clone()
            for prefix, module in self.algorithm.private(client).items()
            for name, tensor in live_tensors(module).items()
        }

    def _cost(self, client_id: int) -> float:
        return self.setup.samples[client_id] * self._forward_flops[self.setup.architectures[client_id]]

    def _opening(self, crew: Crew[int]) -> RoundRecord:
        """Round 0: a method's step before training, if it has one, and the untrained test of protocol B."""
        started = time.perf_counter()
        everyone = range(self.spec.clients)
        results: list[ClientResult] = []
        server_seconds = 0.0
        if self.algorithm.opens():
            results = crew.map(self._opening_work, everyone, self._cost)
            self._check_divergence(results)
            server_started = time.perf_counter()
            uploads = [result.upload for result in results if result.usable]
            if uploads:
                self.server = replace(self.algorithm.close_opening(self.server, uploads), round=0)
            results = crew.map(lambda bench, k: self._announce(bench, results[k]), everyone, self._cost)
            server_seconds = time.perf_counter() - server_started
        tests: dict[int, Tested] = {}
        if self.spec.evaluation.protocol == "B":
            tests = self._test_with_download(crew, everyone, 0)
        return self._record(0, results, tests, started, server_seconds)

    def _opening_work(self, bench: Bench, client_id: int) -> ClientResult:
        client = self._seat(bench, client_id, 0)
        received = self.algorithm.opening_download(self.server, client)
        result = self._work(
            client, lambda: self.algorithm.opening_update(client, received), count_scalars(received), keeps=False
        )
        return _screened(result)

    def _announce(self, bench: Bench, result: ClientResult) -> ClientResult:
        """Book what the client is told after the opening."""
        told = count_scalars(self.algorithm.announce(self.server, self._seat(bench, result.id, 0)))
        return replace(result, scalars_down=result.scalars_down + told)

    def _round(self, crew: Crew[int], number: int) -> RoundRecord:
        started = time.perf_counter()
        cohort = self.setup.participants(number)
        due = is_due(self.spec.evaluation, number, self.spec.rounds)
        moment = cohort_moment(self.spec.evaluation, self.algorithm.tested) if due and self._peers is None else None

        if self._peers is None:
            results = self._cohort_work(crew, cohort, number, moment)
            self._check_divergence(results)
            server_started = time.perf_counter()
            server, of_server = self._aggregate(results, number)
        else:
            results, server = self._peers.round(self.server, number, partial(self._perform, crew, number))
            self._check_divergence(results)
            server_started, of_server = time.perf_counter(), []
        self.server = replace(server, round=number)
        for result in results:
            if result.state:
                self._states.put(result.id, result.state)
                self._changed.add(result.id)
        server_seconds = time.perf_counter() - server_started

        tests = {result.id: result.tested for result in results if result.tested is not None}
        late: Sequence[int] = []
        if due and moment is Moment.AFTER_AGGREGATION:
            late = cohort
        if due and (self._peers is not None or everyone_is_tested(self.spec.evaluation, number, self.spec.rounds)):
            late = [k for k in range(self.spec.clients) if k not in tests]
        tests |= self._test_with_download(crew, late, number)
        return self._record(number, results, tests, started, server_seconds, of_server)

    def _check_divergence(self, results: Sequence[ClientResult]) -> None:
        """Ends the run when more of those who took part sit out than the spec allows."""
        failures = [result.diverged for result in results if result.diverged is not None]
        tolerance = self.spec.training.divergence_tolerance
        if len(failures) <= tolerance * len(results) + 1e-9:
            return
        raise failures[0] if len(failures) == 1 else TooManyDiverged(failures, len(results), tolerance)

    def _aggregate(self, results: Sequence[ClientResult], number: int) -> tuple[ServerState, list[Dropped]]:
        """The server's new state from all that can be used; it keeps the old one where the new one is not finite."""
        uploads = [result.upload for result in results if result.usable]
        if not uploads:
            return self.algorithm.idle(self.server, number), []
        try:
            server = self.algorithm.aggregate(self.server, uploads, number)
        except Diverged as error:
            if self.spec.training.divergence_tolerance == 0:
                raise
            reason = error.reason
        else:
            if all_finite(server.tensors()):
                return server, []
            reason = "its numbers were not finite"
        return self.algorithm.idle(self.server, number), [Dropped(client=None, part="new state", reason=reason)]

    def _cohort_work(
        self, crew: Crew[int], cohort: Sequence[int], number: int, moment: Moment | None
    ) -> list[ClientResult]:
        if not self._stacked.used:
            return crew.map(lambda bench, k: self._local_work(bench, k, number, moment), cohort, self._cost)
        tests: dict[int, Tested] = {}
        if moment is Moment.BEFORE_LOCAL_WORK:
            moment, tests = None, self._test_with_download(crew, cohort, number)
        results = self._stacked.work(crew, cohort, self._cost, partial(self._local_work, number=number, moment=moment))
        return [replace(result, tested=tests.get(result.id, result.tested)) for result in results]

    def _local_work(
        self,
        bench: Bench,
        client_id: int,
        number: int,
        moment: Moment | None,
        trainer: Callable[[Client], float] | None = None,
    ) -> ClientResult:
        client = self._seat(bench, client_id, number)
        received = self.algorithm.download(self.server, client)
        tested = None
        if moment is Moment.BEFORE_LOCAL_WORK:
            tested = test_client(self.algorithm, client, received)
            client = self._seat(bench, client_id, number)
        client.trainer = trainer
        result = self._work(
            client, lambda: self.algorithm.local_update(client, received), count_scalars(received), keeps=True
        )
        if moment is Moment.AFTER_LOCAL_WORK:
            if result.diverged is None:
                tested = test_client(self.algorithm, client, None)
            else:  # as it was before, with what it was sent
                tested = test_client(self.algorithm, self._seat(bench, client_id, number), received)
        return replace(_screened(result), tested=tested)

    def _work(self, client: Client, act: Callable[[], Payload], scalars_down: int, *, keeps: bool) -> ClientResult:
        """What a client's work leaves behind; only its cost if that came to numbers that are not finite."""
        payload: Payload = {}
        state: Tensors = {}
        diverged: Diverged | None = None
        started = time.perf_counter()
        try:
            payload = act()
        except Diverged as error:
            diverged = error
        seconds = time.perf_counter() - started
        if diverged is None and keeps:
            state = self._kept(client)
            if not all_finite(state.values()):
                diverged = Diverged(client.round, client.id, None)
        if diverged is None:
            return replace(self._result(client, payload, scalars_down, seconds), state=state)
        return replace(
            self._result(client, {}, scalars_down, seconds),
            loss=None,
            traces={},
            usable=False,
            diverged=diverged,
            dropped=(Dropped(client=client.id, part="local work", reason=diverged.reason),),
        )

    def _perform(
        self, crew: Crew[int], number: int, tasks: Sequence[Task], states: Mapping[int, Tensors]
    ) -> list[ClientResult]:
        def work(bench: Bench, position: int) -> ClientResult:
            task = tasks[position]
            client = self._seat(bench, task.client, number, states.get(task.client))
            return self._work(client, lambda: task.act(client), 0, keeps=True)

        return crew.map(work, range(len(tasks)), lambda position: self._cost(tasks[position].client))

    def _result(self, client: Client, payload: Payload, scalars_down: int, seconds: float) -> ClientResult:
        return ClientResult(
            id=client.id,
            upload=Upload(client.id, len(client.train), self.algorithm.group(client), payload),
            loss=client.losses[0] if client.losses else None,
            scalars_up=count_scalars(payload),
            scalars_down=scalars_down,
            flops=client.meter.flops,
            seconds=seconds,
            traces=dict(client.traces),
        )

    def _test_with_download(self, crew: Crew[int], clients: Sequence[int], number: int) -> dict[int, Tested]:
        """Test with the newest global state. Handing it out for a test is not traffic."""

        def work(bench: Bench, client_id: int) -> Tested | None:
            client = self._seat(bench, client_id, number)
            return test_client(self.algorithm, client, self.algorithm.download(self.server, client))

        results = crew.map(work, clients, self._cost)
        return {k: tested for k, tested in zip(clients, results, strict=True) if tested is not None}

    def _record(
        self,
        number: int,
        results: Sequence[ClientResult],
        tests: dict[int, Tested],
        started: float,
        server_seconds: float,
        of_server: Sequence[Dropped] = (),
    ) -> RoundRecord:
        up = sum(result.scalars_up for result in results)
        down = sum(result.scalars_down for result in results)
        losses = [(result.loss, result.upload.samples) for result in results if result.loss is not None]
        traces: dict[str, Any] = {}
        for result in results:
            for name, value in result.traces.items():
                traces.setdefault(name, {})[str(result.id)] = value
        for client, tested in tests.items():
            for name, accuracy in tested.readouts.items():
                traces.setdefault(f"accuracy_{name}", {})[str(client)] = accuracy
        return RoundRecord(
            round=number,
            accuracy=round_accuracy(self.spec.evaluation, tests),
            validation_accuracy=validation_accuracy(self.spec.evaluation, tests),
            loss=sum(loss * n for loss, n in losses) / sum(n for _, n in losses) if losses else None,
            scalars_up=up,
            scalars_down=down,
            bytes_up=BYTES_PER_SCALAR * up,
            bytes_down=BYTES_PER_SCALAR * down,
            client_flops=sum(result.flops for result in results),
            server_flops=self.server.flops,
            eval_flops=sum(tested.flops for tested in tests.values()),
            seconds=time.perf_counter() - started,
            client_seconds=sum(result.seconds for result in results),
            server_seconds=server_seconds,
            cohort=[result.id for result in results],
            client_accuracy={str(k): tests[k].accuracy for k in sorted(tests)},
            traces=traces,
            dropped=[
                *(note for result in results for note in result.dropped),
                *(
                    Dropped(client=client, part="test", reason=tests[client].failure)
                    for client in sorted(tests)
                    if tests[client].failure
                ),
                *of_server,
            ],
        )


def _screened(result: ClientResult) -> ClientResult:
    """Without those parts of its message that cannot be used. They were sent, and are counted."""
    if not result.usable:
        return result
    payload, dropped = screened(result.id, result.upload.payload)
    upload = replace(result.upload, payload={} if payload is None else payload)
    return replace(result, upload=upload, usable=payload is not None, dropped=(*result.dropped, *dropped))


def run(spec: ExperimentSpec, **options: Any) -> Iterator[RoundRecord]:
    """All rounds of one experiment; see Run for the options."""
    return Run(spec, **options).rounds()
