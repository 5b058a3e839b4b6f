"""Clients of one architecture trained as one stacked network, where their training is plain cross-entropy.

A method is not told. Its local work runs up to fit_classifier(), which raises Waiting instead of training; all who wait
are trained together with vmap; then every client's local work runs again from its start, and this time fit_classifier()
puts the trained weights in place. What a method does before it trains is done twice and must not have lasting effects,
which the contract of local_update demands anyway. docs/decisions/0006 says why it is like this.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from engine.data.client_dataset import split_batches
from engine.kit.contract import Client, Setup
from engine.kit.flops import Price, forward_flops
from engine.kit.tensors import Tensors, copy_tensors, load_tensors
from engine.kit.training import Diverged, Interrupted, shuffled_batches
from engine.kit.work import ClientResult
from engine.models import SeededDropout
from engine.runtime.device import Compute
from engine.runtime.executor import ClientPool

LARGEST_STACK = 32
"""Clients in one stack: each needs its weights, gradients, momentum and activations at the same time."""

Work = Callable[..., ClientResult]


class Waiting(Exception):
    """A client has come to its training."""

    def __init__(self, client: Client) -> None:
        super().__init__(f"client {client.id} waits to be trained together with others")
        self.client = client
        self.weights = copy_tensors(client.model)


@dataclass(frozen=True)
class Trained:
    """What a client gets from the stack."""

    weights: Tensors
    loss: float
    flops: int
    seconds: float  # its part of the stack's time

    def __call__(self, client: Client) -> float:
        client.meter.flops += self.flops
        if not math.isfinite(self.loss):
            raise Diverged(client.round, client.id, self.loss)
        load_tensors(client.model, self.weights)
        client.losses.append(self.loss)
        return self.loss


def wait(client: Client) -> float:
    raise Waiting(client)


class Stacked:
    """Lets the clients of a round work, those that can be stacked in stacks."""

    def __init__(self, compute: Compute, setup: Setup) -> None:
        self.compute = compute
        self.setup = setup
        names = dict.fromkeys(setup.architectures) if compute.stacks else ()
        self.reasons = {name: why_not(_without_memory(setup, name)) for name in names}
        self.used = any(not reason for reason in self.reasons.values())

    @property
    def environment(self) -> str:
        """Which architectures are stacked, and why others are not."""
        stacked = ", ".join(name for name, reason in self.reasons.items() if not reason)
        alone = ", ".join(f"{name} has {reason}" for name, reason in self.reasons.items() if reason)
        return "; ".join(part for part in (stacked, alone and f"not stacked: {alone}") if part) or "off"

    def work(
        self, pool: ClientPool, cohort: Sequence[int], cost: Callable[[int], float], local_work: Work
    ) -> list[ClientResult]:
        """As if every client had worked alone."""

        def first(client: int) -> ClientResult | Waiting:
            alone = self.reasons[self.setup.architectures[client]]
            try:
                return local_work(client, trainer=None if alone else wait)
            except Waiting as waiting:
                return waiting

        def second(client: int) -> ClientResult:
            result = local_work(client, trainer=trained[client])
            return replace(result, seconds=result.seconds + trained[client].seconds)

        begun = pool.map(first, cohort, cost)
        waiting = [each for each in begun if isinstance(each, Waiting)]
        trained: dict[int, Trained] = {}
        for stack in stacks(waiting):
            trained |= train(stack, self.compute)
        done = {result.id: result for result in pool.map(second, [each.client.id for each in waiting], cost)}
        return [done[each.client.id] if isinstance(each, Waiting) else each for each in begun]


def why_not(model: nn.Module) -> str:
    """The reason why a network cannot be stacked; empty: it can."""
    if any(isinstance(module, _BatchNorm) for module in model.modules()):
        return "batch norm"  # statistics over a batch that is padded, and counters changed in place
    if any(isinstance(module, (SeededDropout, _DropoutNd)) for module in model.modules()):
        return "dropout"  # masks from a generator for each client
    return ""


def _without_memory(setup: Setup, architecture: str) -> nn.Module:
    with torch.device("meta"):
        return setup.model(architecture)


def stacks(waiting: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Clients of one architecture, those with the most steps first, so that who is ready leaves from the end."""
    for architecture in dict.fromkeys(each.client.architecture for each in waiting):
        members = [each for each in waiting if each.client.architecture == architecture]
        members.sort(key=lambda each: (-_steps(each.client), each.client.id))
        yield from (members[start : start + LARGEST_STACK] for start in range(0, len(members), LARGEST_STACK))


def _steps(client: Client) -> int:
    training = client.setup.training
    return training.epochs * len(split_batches(torch.arange(len(client.train)), training.batch_size))


def train(stack: Sequence[Waiting], compute: Compute) -> dict[int, Trained]:
    """What fit_classifier() does for one client, for all clients of the stack at once."""
    started = time.perf_counter()
    clients = [each.client for each in stack]
    model, training = clients[0].model, clients[0].setup.training
    lr = training.lr * clients[0].lr_factor
    weights = {name: torch.stack([each.weights[name] for each in stack]) for name in stack[0].weights}  # (K, …)
    momenta = {name: torch.zeros_like(weight) for name, weight in weights.items()} if training.momentum else {}
    per_client = vmap(grad_and_value(_loss(model)))
    losses = torch.zeros(len(clients), dtype=torch.float64, device=compute.device)

    batches = [shuffled_batches(client, client.train, range(training.epochs)) for client in clients]
    steps = [_steps(client) for client in clients]
    for number in range(steps[0]):
        if clients[0].setup.interrupted():
            raise Interrupted
        active = sum(count > number for count in steps)
        images, labels, counted = _padded([next(own) for own in batches[:active]])
        current = {name: weight[:active] for name, weight in weights.items()}
        with compute.autocast():
            gradients, values = per_client(current, images, labels, counted)
        if training.clip is not None:
            _clip(gradients, training.clip)
        for name, weight in current.items():
            gradient = gradients[name].add(weight, alpha=training.weight_decay)
            if training.momentum:
                gradient = momenta[name][:active].mul_(training.momentum).add_(gradient)
            weight.sub_(gradient, alpha=lr)
        losses[:active] += values * counted.sum(1)

    image = torch.zeros(1, *clients[0].setup.shape, device=compute.device)
    with torch.no_grad():
        flops = int(Price.UPDATE) * forward_flops(model.eval(), image)
    seconds = (time.perf_counter() - started) / len(clients)
    trained = {}
    for row, (client, total) in enumerate(zip(clients, losses.tolist(), strict=True)):
        seen = len(client.train) * training.epochs
        own = {name: weight[row].clone() for name, weight in weights.items()}
        trained[client.id] = Trained(own, total / seen, flops * seen, seconds)
    return trained


def _loss(model: nn.Module) -> Callable[..., Tensor]:
    def loss(weights: Mapping[str, Tensor], images: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
        """CE over the samples that count, of one client: images (B, C, H, W), labels and counted (B,)."""
        logits: Any = functional_call(model, dict(weights), (images,))
        return (cross_entropy(logits, labels, reduction="none") * counted).sum() / counted.sum()

    return loss


def _padded(batches: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """(K, B, …) for K batches of at most B samples; the last one says which samples are real."""
    length = max(len(labels) for _, labels in batches)
    images = torch.stack([_longer(images, length) for images, _ in batches])
    labels = torch.stack([_longer(labels, length) for _, labels in batches])
    counted = torch.stack([_longer(torch.ones_like(own, dtype=torch.float32), length) for _, own in batches])
    return images, labels, counted


def _longer(rows: Tensor, length: int) -> Tensor:
    return rows if len(rows) == length else torch.cat([rows, rows.new_zeros(length - len(rows), *rows.shape[1:])])


def _clip(gradients: Mapping[str, Tensor], limit: float) -> None:
    """clip_grad_norm_ for each client by itself."""
    squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients.values()])
    scale = (limit / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1)
    for gradient in gradients.values():
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
