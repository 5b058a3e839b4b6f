"""What the tests of averaging methods look at: the server after every round, the clients' own tensors, prices."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.kit.contract import Client, Payload
from engine.kit.flops import forward_flops
from engine.kit.tensors import Tensors, copy_tensors
from engine.models import count
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.testing import parts, same

PLAIN = {"epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.0}
ALONE: dict[str, Any] = {"participation": 0.1, "rounds": 1}  # one client in the cohort
UNEQUAL: dict[str, Any] = {"partition": {"name": "dirichlet", "beta": 1.0}}


def grad(parameter: Tensor) -> Tensor:
    """Its gradient, which must be there."""
    assert parameter.grad is not None
    return parameter.grad


def server_history(spec: ExperimentSpec) -> list[dict[str, Tensors]]:
    """The server's tensors after round 0, 1, …, T."""
    run = Run(spec)
    return [{name: copy_tensors(tensors) for name, tensors in parts(run.server).items()} for _record in run.rounds()]


def same_servers(first: ExperimentSpec, second: ExperimentSpec) -> bool:
    """Whether the server's tensors are equal to the bit after every round."""
    pairs = zip(server_history(first), server_history(second), strict=True)
    return all(a.keys() == b.keys() and all(same(a[group], b[group]) for group in a) for a, b in pairs)


def close(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.allclose(first[name].double(), second[name].double(), rtol=1e-5, atol=1e-5) for name in first
    )


def finished(spec: ExperimentSpec) -> Run:
    run = Run(spec)
    list(run.rounds())
    return run


def own(run: Run, client: int, prefix: str) -> Tensors:
    """What a client keeps, below a prefix."""
    kept = run.federation.states.get(client)
    return {name.removeprefix(prefix): tensor for name, tensor in kept.items() if name.startswith(prefix)}


def weights_of(spec: ExperimentSpec) -> tuple[float, ...]:
    """The tensors of the server and of every client after the last round, each as one number, to tell results apart."""
    run = finished(spec)
    kept = [tensors for _, tensors in sorted(parts(run.server).items())]
    kept += [run.federation.states.get(k) for k in run.federation.states.ids()]
    return tuple(float(tensors[name].double().abs().sum()) for tensors in kept for name in sorted(tensors))


class Worked(NamedTuple):
    client: Client
    received: Payload
    sent: Payload


def local_work(run: Run) -> Iterator[Worked]:
    """The local work of round 1 of every client, one after the other; the next one takes the client's networks."""
    run.federation.build()
    for client_id in range(run.setup.clients):
        client = run.federation.load(client_id, 1)
        received = run.algorithm.download(run.server, client)
        yield Worked(client, received, run.algorithm.local_update(client, received))


class Prices(NamedTuple):
    """n_k, forward FLOPs and scalars (parameters, float buffers) of a client's body and head."""

    samples: int
    body: int
    head: int
    body_scalars: int
    head_scalars: int

    @property
    def model(self) -> int:
        return self.body + self.head

    @property
    def model_scalars(self) -> int:
        return self.body_scalars + self.head_scalars


def prices(run: Run, client: int) -> Prices:
    model = run.setup.model(run.setup.architectures[client]).eval()
    body = forward_flops(model.body, torch.zeros(1, *run.setup.shape))
    head = forward_flops(model.head, torch.zeros(1, model.feature_dim))
    return Prices(run.setup.num_samples[client], body, head, sum(count(model.body)), sum(count(model.head)))
