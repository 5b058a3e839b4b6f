"""The clients and the server of an experiment: their networks, what everybody holds between rounds, a step of each.

The loop over the rounds, the tests and the record belong to engine.runtime.run. engine.estimate has a small federation
of its own.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from engine.data.client_dataset import ClientDataset
from engine.data.datasets import Dataset
from engine.data.partition import ClientShare
from engine.data.spec import Transform
from engine.kit import rng
from engine.kit.contract import Algorithm, AlgorithmParams, Client, Groups, Payload, ServerState, Upload
from engine.kit.flops import forward_flops
from engine.kit.tensors import Tensors, all_finite, copy_tensors, count_scalars, live_tensors, load_tensors
from engine.kit.training import Diverged, Interrupted
from engine.kit.work import ClientResult
from engine.models import seed_dropout
from engine.records import Dropped
from engine.runtime.client_states import DEFAULT_BUDGET, ClientStates, Snapshot
from engine.runtime.device import Compute
from engine.runtime.executor import Replica, ReplicaCache
from engine.runtime.screening import screened

Answer = TypeVar("Answer")


class Federation:
    """All clients and the server of a method. `build` comes first."""

    def __init__(
        self,
        algorithm: Algorithm[AlgorithmParams],
        dataset: Dataset,
        shares: Sequence[ClientShare],
        compute: Compute,
        *,
        transform: Transform,
        state_budget_bytes: int = DEFAULT_BUDGET,
    ) -> None:
        """`shares` are the clients' samples of the data set; idle clients' tensors beyond the budget lie on disk."""
        self.algorithm = algorithm
        self.setup = algorithm.setup
        self.dataset = dataset
        self.shares = shares
        self.compute = compute
        self.transform = transform
        self.networks: dict[str, Replica] = {}
        """By architecture, with the values that every client which owns it starts from."""
        self.initial: dict[str, Tensors] = {}
        self.forward_flops: dict[str, int] = {}
        self.states = ClientStates(state_budget_bytes)
        self._server = ServerState()
        self._changed: set[int] = set()
        self._of_thread = threading.local()

    @property
    def server(self) -> ServerState:
        return self._server

    @server.setter
    def server(self, state: ServerState) -> None:
        if undeclared := state.shared.keys() - self.algorithm.shared_state:
            names = ", ".join(sorted(undeclared))
            raise ValueError(f"the server of {self.algorithm.method.title} holds {names}: name it in shared_state")
        self._server = state

    def build(self) -> None:
        """The networks of every architecture, and the server's first state."""
        self._of_thread = threading.local()
        examples = []
        for architecture in dict.fromkeys(self.setup.architectures):
            model = self.setup.model(architecture)
            model.to(device=self.compute.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            client = self._client(Replica(model, nn.ModuleDict()), self.setup.architectures.index(architecture), 0)
            self.algorithm.init_client(client)
            client.parts.to(self.compute.device)
            self.networks[architecture] = Replica(model, client.parts)
            self.initial[architecture] = copy_tensors(self.networks[architecture].tensors)
            image = torch.zeros(1, *self.setup.shape, device=self.compute.device)
            with torch.no_grad():
                self.forward_flops[architecture] = forward_flops(model.eval(), image)
            examples.append(client)
        self.server = self.algorithm.init_server(examples)

    def replicas(self) -> ReplicaCache:
        """A further set of networks, for clients that are looked at side by side."""
        return ReplicaCache(self.networks)

    def load(
        self, client_id: int, round: int, *, state: Tensors | None = None, replicas: ReplicaCache | None = None
    ) -> Client:
        """The client with its own tensors: those given, those it kept, or the initial ones.

        It works on this thread's replica of its networks until the next one of its architecture is loaded.
        """
        architecture = self.setup.architectures[client_id]
        replica = (replicas or self._replicas_of_thread()).replica(architecture)
        own = self.states.get(client_id) if state is None else state
        load_tensors(replica.tensors, {**self.initial[architecture], **own})
        client = self._client(replica, client_id, round)
        for role, module in [("model", client.model), *client.parts.items()]:
            seed_dropout(module, rng.generator(self.setup.seed, "dropout", round, client_id, role))
        if round > 0 and self.algorithm.opens():
            client.announced = self.algorithm.announce(self.server, client)
        client.known = self.algorithm.known(self.server, client)
        return client

    def fresh(self, client_id: int, round: int) -> Client:
        """The client as it is built: on the original networks."""
        return self._client(self.networks[self.setup.architectures[client_id]], client_id, round)

    def _replicas_of_thread(self) -> ReplicaCache:
        if not hasattr(self._of_thread, "replicas"):
            self._of_thread.replicas = self.replicas()
        replicas: ReplicaCache = self._of_thread.replicas
        return replicas

    def _client(self, replica: Replica, client_id: int, round: int) -> Client:
        share = self.shares[client_id]
        train, test, validation = (
            ClientDataset.of(
                self.dataset,
                index,
                share.label_map,
                transform=self.transform,
                augment=self.setup.training.augment,
                device=self.compute.device,
            )
            for index in (share.train, share.test, share.validation)
        )
        return Client(
            id=client_id,
            round=round,
            setup=self.setup,
            model=replica.model,
            parts=replica.parts,
            train=train,
            test=test,
            validation=validation,
            announced={},
            compute=self.compute,
        )

    def download(self, client: Client) -> Payload:
        return self.algorithm.download(self.server, client)

    def kept(self, client: Client) -> Tensors:
        """A copy of what the client keeps between its rounds, as it is now."""
        return {
            f"{prefix}.{name}": tensor.clone()
            for prefix, module in self.algorithm.private(client).items()
            for name, tensor in live_tensors(module).items()
        }

    def cost(self, client_id: int) -> float:
        """How long a client's work takes, compared with that of others."""
        return self.setup.num_samples[client_id] * self.forward_flops[self.setup.architectures[client_id]]

    def query_clients(
        self, clients: Sequence[int], round: int, ask: Callable[[Client, Payload], Answer]
    ) -> list[Answer]:
        """Ask clients about the present state, each with the newest download; what this changes is forgotten."""
        answers = []
        for client_id in clients:
            if self.setup.interrupted():
                raise Interrupted
            client = self.load(client_id, round)
            answers.append(ask(client, self.download(client)))
        return answers

    # the opening, which is booked as round 0

    def opening_work(self, client_id: int) -> ClientResult:
        client = self.load(client_id, 0)
        received = self.algorithm.opening_download(self.server, client)
        return self._message_of(
            client, lambda: self.algorithm.opening_update(client, received), received=received, keeps=False
        )

    def close_opening(self, results: Sequence[ClientResult]) -> None:
        uploads = [result.upload for result in results if result.usable]
        if uploads:
            self.server = replace(self.algorithm.close_opening(self.server, uploads), round=0)

    def announce(self, result: ClientResult) -> ClientResult:
        """Book what the client is told after the opening."""
        told = count_scalars(self.algorithm.announce(self.server, self.load(result.id, 0)))
        return replace(result, scalars_down=result.scalars_down + told)

    # a round

    def local_work(self, client: Client, received: Payload) -> ClientResult:
        return self._message_of(
            client, lambda: self.algorithm.local_update(client, received), received=received, keeps=True
        )

    def _message_of(
        self, client: Client, act: Callable[[], Payload], *, received: Payload, keeps: bool
    ) -> ClientResult:
        """Without those parts of the message that cannot be used. They were sent, and are counted."""
        result = self.work(client, act, count_scalars(received), keeps=keeps)
        if not result.usable:
            return result
        payload, dropped = screened(result.id, result.upload.payload)
        upload = replace(result.upload, payload={} if payload is None else payload)
        return replace(result, upload=upload, usable=payload is not None, dropped=(*result.dropped, *dropped))

    def work(
        self, client: Client, act: Callable[[], Payload], scalars_down: int = 0, *, keeps: bool = True
    ) -> ClientResult:
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
            state = self.kept(client)
            if not all_finite(state.values()):
                diverged = Diverged(client.round, client.id, None)
        result = ClientResult(
            id=client.id,
            upload=Upload(client.id, len(client.train), self.algorithm.group(client), {} if diverged else payload),
            loss=client.losses[0] if client.losses else None,
            scalars_up=0 if diverged else count_scalars(payload),
            scalars_down=scalars_down,
            flops=client.meter.flops,
            seconds=seconds,
            traces=dict(client.traces),
            state=state,
        )
        if diverged is None:
            return result
        return replace(
            result,
            loss=None,
            traces={},
            state={},
            usable=False,
            diverged=diverged,
            dropped=(Dropped(client=client.id, part="local work", reason=diverged.reason),),
        )

    def aggregate(self, results: Sequence[ClientResult], round: int) -> tuple[ServerState, list[Dropped]]:
        """The server's new state from all that can be used; it keeps the old one where the new one is not finite."""
        uploads = [result.upload for result in results if result.usable]
        if not uploads:
            return self.algorithm.idle(self.server, round), []
        try:
            server = self.algorithm.aggregate(self.server, uploads, round)
        except Diverged as error:
            if self.setup.training.divergence_tolerance == 0:
                raise
            reason = error.reason
        else:
            if all_finite(server.tensors()):
                return server, []
            reason = "its numbers were not finite"
        return self.algorithm.idle(self.server, round), [Dropped(client=None, part="new state", reason=reason)]

    def adopt(self, server: ServerState, results: Sequence[ClientResult], round: int) -> None:
        """The state after a round: what the server made, and what the clients keep."""
        self.server = replace(server, round=round)
        for result in results:
            if result.state:
                self.states.put(result.id, result.state)
                self._changed.add(result.id)

    # checkpoints

    @property
    def changed_clients(self) -> int:
        """How many clients changed since the last checkpoint."""
        return len(self._changed)

    def changed(self) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
        """The clients whose tensors changed since the last checkpoint."""
        for client in sorted(self._changed):
            yield client, self.states.get(client)

    def note_checkpoint(self) -> None:
        """All that changed is in a checkpoint now."""
        self._changed.clear()

    def restore(self, snapshot: Snapshot) -> None:
        """Everybody holds what they held when the checkpoint was written."""

        def placed(groups: Groups) -> Groups:
            return {name: self.compute.place(tensors) for name, tensors in groups.items()}

        shared = {name: placed(groups) for name, groups in snapshot.server.shared.items()}
        self.server = replace(snapshot.server, groups=placed(snapshot.server.groups), shared=shared)
        for client, file in snapshot.clients.items():
            self.states.adopt(client, file)
