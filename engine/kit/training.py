"""fit(): the only loop of local SGD. The roles of the modules decide freezing, optimiser groups and the price."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from engine.data.client_dataset import EVALUATION_BATCH, ClientDataset, split_batches
from engine.kit import rng
from engine.kit.calibration import batches_seen, bodies, recalibrate
from engine.kit.contract import Client, Setup
from engine.kit.flops import Meter, Price
from engine.kit.sgd import SGD, Group

ADAM_KEEPS = ("step", "exp_avg", "exp_avg_sq")

Objective = Callable[[Tensor, Tensor], Tensor]
"""Images (B, C, H, W) and labels (B,) to the loss of the batch."""


class Diverged(Exception):
    """Training that ended with numbers that are not finite."""

    def __init__(self, round: int, client: int | None, loss: float | None) -> None:
        """No client: the server's own training. No loss: it was finite, but what was trained is not."""
        who = "the server" if client is None else f"client {client}"
        if loss is None:
            super().__init__(f"the networks of {who} were no longer finite after training in round {round}")
            self.reason = "its networks were no longer finite after training"
        else:
            super().__init__(f"the training loss of {who} became {loss} in round {round}")
            self.reason = f"its training loss became {loss}"
        self.round = round
        self.client = client


class TooManyDiverged(Diverged):
    """A larger part of a cohort diverged than may sit out."""

    def __init__(self, failures: Sequence[Diverged], cohort: int, tolerance: float) -> None:
        first = failures[0]
        super().__init__(first.round, first.client, None)
        names = [str(failure.client) for failure in failures]
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        self.args = (
            f"the training of clients {shown} diverged in round {first.round}: {len(names)} of a cohort of {cohort}, "
            f"but training.divergence_tolerance is {tolerance:g}; {first}",
        )
        self.reason = first.reason


NAMED = 20
"""How many clients an error lists."""


class Interrupted(Exception):
    """Someone asked the run to stop; nothing of the open round counts."""


@dataclass(frozen=True)
class Unit:
    """A module that is updated with its own settings; its gradient is clipped on its own. None: as in the spec.

    An infinite `clip` switches clipping off.
    """

    module: nn.Module
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    clip: float | None = None


def supervised(model: Callable[[Tensor], Tensor]) -> Objective:
    """CE(F(x), y), the objective of ordinary training."""

    def objective(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y)

    return objective


def proximity(module: nn.Module, center: Mapping[str, Tensor]) -> Tensor:
    """½‖w - w°‖² over all parameters, the head and batch norm's γ and β among them; buffers have no gradient."""
    distances = [(w - center[name]).square().sum() for name, w in module.named_parameters()]
    return torch.stack(distances).sum() / 2


def fit(
    client: Client,
    objective: Objective,
    train: ClientDataset,
    *,
    update: Sequence[nn.Module | Unit],
    through: Sequence[nn.Module] = (),
    forward: Sequence[nn.Module] = (),
    epochs: int | None = None,
    first_epoch: int = 0,
    before_step: Callable[[], None] | None = None,
    after_step: Callable[[], None] | None = None,
) -> float:
    """Train the modules in `update` on the client's samples and return the mean loss.

    `through` is frozen but passes gradients on; `forward` is frozen and ends them; every other module of the client is
    frozen and must not be used. The optimiser is new in every call, so momentum never leaks between clients or rounds.
    Learning rates follow the spec's schedule. `before_step` sees the clipped gradients and may change them;
    `after_step` sees the new parameters.
    """
    training, factor = client.setup.training, client.lr_factor
    epochs = training.epochs if epochs is None else epochs
    units = [unit if isinstance(unit, Unit) else Unit(unit) for unit in update]
    _calibrate_untrained(client, [*through, *forward])
    _assign_roles(client, [unit.module for unit in units], [*through, *forward])
    parameters = [list(unit.module.parameters()) for unit in units]
    limits = [training.clip if unit.clip is None else unit.clip for unit in units]
    optimiser = SGD(
        [
            Group(
                own,
                lr=(training.lr if unit.lr is None else unit.lr) * factor,
                momentum=training.momentum if unit.momentum is None else unit.momentum,
                weight_decay=training.weight_decay if unit.weight_decay is None else unit.weight_decay,
            )
            for unit, own in zip(units, parameters, strict=True)
        ],
        fused=True,
    )
    priced = [
        *((unit.module, Price.UPDATE) for unit in units),
        *((module, Price.THROUGH) for module in through),
        *((module, Price.FORWARD) for module in forward),
    ]
    measured, step = client.compute.inference(objective), client.compute.step(objective)
    loss_sum = torch.zeros((), dtype=torch.float64, device=train.device)
    flops_per_sample: int | None = None
    for images, labels in shuffled_batches(client, train, range(first_epoch, first_epoch + epochs)):
        if client.setup.interrupted():
            raise Interrupted
        if flops_per_sample is None:
            with client.meter.watch(priced) as reading:
                loss = measured(images, labels)
            flops_per_sample = reading.flops // len(labels)
        else:
            loss = step(images, labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for own, limit in zip(parameters, limits, strict=True):
            if limit is not None and limit < math.inf:
                clip_grad_norm_(own, limit)
        if before_step is not None:
            before_step()
        optimiser.step()
        if after_step is not None:
            after_step()
        loss_sum += loss.detach() * len(labels)
    optimiser.zero_grad()  # a gradient is as large as its weight, and every thread keeps all architectures
    if flops_per_sample is None:
        return 0.0
    client.meter.flops += flops_per_sample * len(train) * epochs
    mean = loss_sum.item() / (len(train) * epochs)
    if not math.isfinite(mean):
        raise Diverged(client.round, client.id, mean)
    _calibrate_trained(client, [unit.module for unit in units], train)
    client.losses.append(mean)
    return mean


def shuffled_batches(client: Client, train: ClientDataset, epochs: range) -> Iterator[tuple[Tensor, Tensor]]:
    """The client's batches of this round, epoch after epoch, in its own order."""
    for epoch in epochs:
        key = (client.round, client.id, epoch)
        yield from train.shuffled(
            client.setup.training.batch_size,
            rng.generator(client.setup.seed, "batches", *key),
            rng.generator(client.setup.seed, "augmentation", *key),
        )


def fit_classifier(client: Client) -> float:
    """E epochs of min CE(F_k(x), y) on the whole private model, as Standalone trains."""
    if client.trainer is not None:
        trainer, client.trainer = client.trainer, None
        return trainer(client)
    return fit(client, supervised(client.model), client.train, update=[client.model])


def forward_pass(
    client: Client,
    function: Callable[[Tensor], Tensor],
    samples: ClientDataset,
    *,
    forward: Sequence[nn.Module],
) -> Tensor:
    """One pass in eval mode without gradients over unaugmented samples: (n, …), in the order of the samples."""
    _calibrate_untrained(client, forward)
    _assign_roles(client, [], forward)
    function = client.compute.inference(function)
    outputs = []
    with torch.no_grad(), client.meter.watch((module, Price.FORWARD) for module in forward) as reading:
        for images, _ in samples.in_order():
            if client.setup.interrupted():
                raise Interrupted
            outputs.append(function(images))
    client.meter.flops += reading.flops
    return torch.cat(outputs)


def server_fit(
    setup: Setup,
    objective: Callable[..., Tensor],
    batches: Iterable[tuple[Tensor, ...]],
    *,
    update: nn.Module,
    through: Sequence[nn.Module] = (),
    lr: float,
    optimiser: type[torch.optim.Optimizer] | None = None,
    weight_decay: float = 0.0,
    memory: dict[str, Tensor] | None = None,
    round: int,
) -> int:
    """Train a module of the server, one step a batch, and return the FLOPs.

    The optimiser, SGD unless another one is named, has neither momentum nor clipping. It is new in every call unless
    `memory` is given, for Adam: what it kept at the end of the last call, empty at first and changed in place.
    `through` as in fit().
    """
    for module in through:
        module.eval().requires_grad_(False)
    update.train().requires_grad_(True)
    weights = list(update.parameters())
    steps: SGD | torch.optim.Optimizer
    if optimiser is None:
        steps = SGD([Group(weights, lr, weight_decay=weight_decay)])
    else:
        steps = optimiser(weights, lr=lr, weight_decay=weight_decay)  # type: ignore[call-arg]
        if memory:
            for name, parameter in update.named_parameters():
                steps.state[parameter] = {key: memory[f"{name}|{key}"].clone() for key in ADAM_KEEPS}
    loss = torch.zeros(())
    priced = [(update, Price.UPDATE), *((module, Price.THROUGH) for module in through)]
    with Meter().watch(priced) as reading:
        for batch in batches:
            if setup.interrupted():
                raise Interrupted
            loss = objective(*batch)
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
    if not math.isfinite(last := loss.item()):
        raise Diverged(round, None, last)
    if memory is not None and not isinstance(steps, SGD):
        kept = {name: steps.state[parameter] for name, parameter in update.named_parameters()}
        memory.update({f"{name}|{key}": state[key] for name, state in kept.items() for key in ADAM_KEEPS if state})
    return reading.flops


def pair_batches(
    first: Tensor, second: Tensor, *, batch_size: int, epochs: int, draws: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Mini-batches of rows that belong together, in a new order every epoch; without draws in the order they have."""
    for _ in range(epochs):
        order = torch.arange(len(first)) if draws is None else torch.randperm(len(first), generator=draws)
        for positions in torch.split(order, batch_size):
            yield first[positions], second[positions]


def _calibrate_trained(client: Client, trained: Sequence[nn.Module], train: ClientDataset) -> None:
    """Before anybody asks what was just trained: on the samples it was trained on, unaugmented."""
    below = client.setup.training.recalibrate_below
    if below > 0 and len(train) > 1:  # batch norm cannot work on one sample
        for body, layers in bodies(client, trained):
            if batches_seen(layers) < below:
                recalibrate(client, body, layers, _whole(client, train))


def _calibrate_untrained(client: Client, frozen: Sequence[nn.Module]) -> None:
    """A body that was never trained, and so never calibrated, before a phase in which it is asked."""
    if client.setup.training.recalibrate_below > 0 and len(client.train) > 1:
        for body, layers in bodies(client, frozen):
            if batches_seen(layers) == 0:
                recalibrate(client, body, layers, _whole(client, client.train))


def _whole(client: Client, samples: ClientDataset) -> Iterator[Tensor]:
    for positions in split_batches(torch.arange(len(samples)), EVALUATION_BATCH):
        if client.setup.interrupted():
            raise Interrupted
        yield samples.batch(positions)[0]


def _assign_roles(client: Client, trained: Iterable[nn.Module], frozen: Iterable[nn.Module]) -> None:
    """Everything is frozen and in eval mode except what is trained."""
    for module in (client.model, client.parts, *frozen):
        module.eval().requires_grad_(False)
    for module in trained:
        module.train().requires_grad_(True)
