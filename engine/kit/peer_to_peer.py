"""Rounds without a server: experts walk over a graph of clients as tokens, or neighbours average their copies.

The graph is an Erdős-Rényi graph G(m, p), drawn again until it is connected, and stays the same for the whole run.
Every transmission over an edge is counted once, as sent by the client that starts it.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, Protocol

import networkx as nx
import torch

from engine.kit import rng
from engine.kit.contract import Client, Payload, ServerState, Setup, Upload
from engine.kit.tensors import Tensors, count_scalars, split_groups, weighted_mean
from engine.kit.work import ClientResult, Perform, Task

ATTEMPTS = 200
HOLDERS = "holders"  # what a method declares in its shared_state for a token walk: who holds each token


@dataclass(frozen=True)
class Arrival:
    """A token at its holder, which has seen it `visit` times before in this round."""

    expert: str
    body: Payload
    visit: int


class Peer(Protocol):
    """What a method must offer to run without a server."""

    experts: tuple[str, ...]  # ascending by size

    def holds(self, architecture: str) -> tuple[str, ...]:
        """The experts that a client of this architecture can hold."""

    def host(self, client: Client, arrivals: Sequence[Arrival]) -> Payload:
        """token-walk: work on the tokens that a client holds, and return them all."""

    def refine(self, client: Client, expert: str, age: int) -> Payload:
        """gossip: work on the own copy of an expert in the round `age` of its training, and return the copy."""

    def adopt(self, client: Client, expert: str, body: Payload) -> None:
        """gossip: replace the own copy."""


class Peers(ABC):
    """Who talks to whom where there is no server."""

    def __init__(self, method: Peer, setup: Setup, p: float) -> None:
        self.method = method
        self.setup = setup
        self.graph = connected_graph(setup.seed, setup.clients, p)

    @abstractmethod
    def round(self, state: ServerState, number: int, perform: Perform) -> tuple[list[ClientResult], ServerState]:
        """One result for every client that took part, in ascending id, and what travels on to the next round."""

    def _can_hold(self, client: int, expert: str) -> bool:
        return expert in self.method.holds(self.setup.architectures[client])


def connected_graph(seed: int, clients: int, p: float) -> "nx.Graph[int]":
    """The first connected draw of G(m, p)."""
    for attempt in range(ATTEMPTS):
        graph = nx.fast_gnp_random_graph(clients, p, seed=rng.derive(seed, "graph", attempt))
        if nx.is_connected(graph):
            return graph
    raise ValueError(
        f"{ATTEMPTS} draws of a graph of {clients} clients with edge probability {p} were all disconnected: "
        "use a larger algorithm.edge_probability"
    )


class TokenWalk(Peers):
    """Device by device: every expert is one token on a random walk; all tokens move at once, nobody averages.

    A hop is: the holder works on the token if it can hold it, then the token moves on. A token that has nowhere to go
    stays and costs no message.
    """

    def __init__(
        self, method: Peer, setup: Setup, p: float, *, hops: int | None, walk: Literal["uniform", "metropolis"]
    ) -> None:
        super().__init__(method, setup, p)
        self.hops = setup.cohort if hops is None else hops
        self.walk = walk

    def round(self, state: ServerState, number: int, perform: Perform) -> tuple[list[ClientResult], ServerState]:
        tokens = {expert: state.groups[expert] for expert in self.method.experts}
        holders = self._holders(state)
        states: dict[int, Tensors] = {}
        visits: Counter[tuple[int, str]] = Counter()
        sent: Counter[int] = Counter()
        results: dict[int, list[ClientResult]] = defaultdict(list)
        for hop in range(self.hops):
            guests: dict[int, list[Arrival]] = defaultdict(list)
            for expert, holder in holders.items():
                if self._can_hold(holder, expert):
                    guests[holder].append(Arrival(expert, tokens[expert], visits[holder, expert]))
                visits[holder, expert] += 1
            tasks = [Task(client, self._hosting(guests[client])) for client in sorted(guests)]
            for result in perform(tasks, states):
                if result.usable:  # otherwise its tokens move on as they came, and it stays as it was
                    tokens |= split_groups(result.upload.payload)
                    states[result.id] = result.state
                results[result.id].append(replace(result, upload=self._nothing(result.id), state={}))
            for expert, holder in holders.items():
                target = self._next(holder, rng.generator(self.setup.seed, "walk", number, hop, expert))
                if target != holder:
                    sent[holder] += count_scalars(tokens[expert])
                    holders[expert] = target
        places = {expert: torch.tensor(holder) for expert, holder in holders.items()}
        return [
            replace(
                self._together(client, results[client], [visits[client, expert] for expert in self.method.experts]),
                scalars_up=sent[client],
                state=states.get(client, {}),
            )
            for client in sorted({client for client, _ in visits})
        ], ServerState(tokens, {HOLDERS: {"all": places}})

    def _holders(self, state: ServerState) -> dict[str, int]:
        """In ascending order of the experts; at first each token lies somewhere."""
        if HOLDERS in state.shared:
            return {expert: int(place) for expert, place in state.shared[HOLDERS]["all"].items()}
        return {
            expert: int(torch.randint(self.setup.clients, (), generator=self._first_place(expert)))
            for expert in self.method.experts
        }

    def _first_place(self, expert: str) -> torch.Generator:
        return rng.generator(self.setup.seed, "first holder", expert)

    def _hosting(self, arrivals: Sequence[Arrival]) -> Callable[[Client], Payload]:
        return lambda client: self.method.host(client, arrivals)

    def _next(self, holder: int, draws: torch.Generator) -> int:
        """A uniformly random neighbour; Metropolis-Hastings stays with probability 1 - deg(holder)/deg(neighbour)."""
        neighbours = sorted(self.graph[holder])
        if not neighbours:
            return holder
        target = int(neighbours[int(torch.randint(len(neighbours), (), generator=draws))])
        if self.walk == "metropolis":
            accepted = torch.rand((), generator=draws).item() < len(neighbours) / self.graph.degree[target]
            return target if accepted else holder
        return target

    def _nothing(self, client: int) -> Upload:
        return Upload(client, self.setup.num_samples[client], "all", {})

    def _together(self, client: int, hops: Sequence[ClientResult], visits: Sequence[int]) -> ClientResult:
        """All that a client did in a round as one result; one that only passed tokens on did not train."""
        losses = [hop.loss for hop in hops if hop.loss is not None]
        traces = {name: value for hop in hops for name, value in hop.traces.items()}
        return ClientResult(
            id=client,
            upload=self._nothing(client),
            loss=sum(losses) / len(losses) if losses else None,
            scalars_up=0,
            scalars_down=0,
            flops=sum(hop.flops for hop in hops),
            seconds=sum(hop.seconds for hop in hops),
            traces={**traces, "visits": [float(number) for number in visits]},
            diverged=next((hop.diverged for hop in hops if hop.diverged is not None), None),
            dropped=tuple(dict.fromkeys(note for hop in hops for note in hop.dropped)),
        )


class Gossip(Peers):
    """Model by model: the experts are trained one after another, the largest first, by all clients that can hold them.

    Every participant works on its own copy and then averages with its neighbours: θ_i ← Σ_k W_ik θ_k with Metropolis
    weights W_ik = 1/(1 + max(deg_i, deg_k)), W_ii = 1 - Σ W_ik, on the graph of the participants.
    """

    def __init__(self, method: Peer, setup: Setup, p: float, *, rounds_per_expert: int | None) -> None:
        super().__init__(method, setup, p)
        self.rounds_per_expert = rounds_per_expert
        self.meshes = {
            expert: participants_graph(
                self.graph, [client for client in range(setup.clients) if self._can_hold(client, expert)]
            )
            for expert in method.experts
        }

    def round(self, state: ServerState, number: int, perform: Perform) -> tuple[list[ClientResult], ServerState]:
        expert, age = self.schedule(number)
        mesh = self.meshes[expert]
        trained = perform([Task(client, self._refining(expert, age)) for client in sorted(mesh)], {})
        copies = {result.id: result.upload.payload for result in trained if result.usable}
        present = mesh.subgraph(copies)  # who sits out neither sends nor mixes, as if it were not there
        mixed = perform(
            [Task(client, self._mixing(present, expert, copies, client)) for client in copies],
            {result.id: result.state for result in trained if result.usable},
        )
        mixtures = {result.id: result for result in mixed}
        return [self._together(first, mixtures.get(first.id), mesh) for first in trained], state

    def _together(self, first: ClientResult, second: ClientResult | None, mesh: "nx.Graph[int]") -> ClientResult:
        """Training and mixing as one result; no second step: the client sat out."""
        if second is None:
            return first
        sent = int(mesh.degree(first.id, weight="transmissions"))
        return replace(
            first,
            upload=second.upload,
            scalars_up=first.scalars_up * sent,
            seconds=first.seconds + second.seconds,
            state=second.state,
        )

    def schedule(self, number: int) -> tuple[str, int]:
        """The expert of a round, and how many rounds it has been trained when that one is over."""
        M, T = len(self.method.experts), self.setup.rounds
        if self.rounds_per_expert is None:
            starts = [-(-turn * T // M) for turn in range(M)]
        else:
            starts = [turn * self.rounds_per_expert for turn in range(M)]
        turn = max(turn for turn, start in enumerate(starts) if start < number)
        return self.method.experts[M - 1 - turn], number - starts[turn]

    def _refining(self, expert: str, age: int) -> Callable[[Client], Payload]:
        return lambda client: self.method.refine(client, expert, age)

    def _mixing(
        self, mesh: "nx.Graph[int]", expert: str, copies: dict[int, Payload], client: int
    ) -> Callable[[Client], Payload]:
        weights = metropolis_weights(mesh, client)

        def mix(own: Client) -> Payload:
            self.method.adopt(own, expert, weighted_mean([copies[k] for k in weights], weights.values()))
            return {}

        return mix


def metropolis_weights(mesh: "nx.Graph[int]", client: int) -> dict[int, float]:
    """W_ik of the client and its neighbours, in ascending id."""
    others = {k: 1 / (1 + max(mesh.degree[client], mesh.degree[k])) for k in mesh[client]}
    return dict(sorted({**others, client: 1 - sum(others.values())}.items()))


def participants_graph(graph: "nx.Graph[int]", participants: Sequence[int]) -> "nx.Graph[int]":
    """The graph of the participants; every edge says how many transmissions it takes.

    If the others are needed to connect them, participants that an unbroken chain of others joins become neighbours.
    """
    mesh = nx.Graph(graph.subgraph(participants))
    nx.set_edge_attributes(mesh, 1, "transmissions")
    if nx.is_connected(mesh):
        return mesh
    for relays in nx.connected_components(graph.subgraph(set(graph) - set(participants))):
        joined = sorted({k for relay in relays for k in graph[relay] if k in mesh})
        for pair in combinations(joined, 2):
            if not graph.has_edge(*pair):
                length = nx.shortest_path_length(graph.subgraph({*relays, *pair}), *pair)
                known = mesh.get_edge_data(*pair, default={"transmissions": length})
                mesh.add_edge(*pair, transmissions=min(length, known["transmissions"]))
    return mesh
