"""Batch norm's running statistics taken from all samples at once, while a network has seen few batches.

They start at mean 0 and variance 1 and move a tenth of the way with every batch. In training nobody asks for them, so a
deep network learns well from ten batches; asked in eval mode, it then multiplies the errors of a hundred layers. Even
after a hundred batches of ten samples they can lag too far behind the weights.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engine.kit.contract import Client, Trace
from engine.kit.flops import Price
from engine.models import SplitModel

RECALIBRATED = Trace("recalibrated", "Batches seen when batch norm was recalibrated", "batches")
"""Left by any method that computes in eval mode with a network whose batch norm had seen few batches."""


def bodies(client: Client, among: Iterable[nn.Module]) -> list[tuple[nn.Module, list[_BatchNorm]]]:
    """The client's bodies whose batch norm belongs to these modules."""
    chosen = {id(module) for root in among for module in root.modules()}
    models = [client.model, *(part for part in client.parts.modules() if isinstance(part, SplitModel))]
    found = []
    for model in models:
        layers = [layer for layer in model.body.modules() if isinstance(layer, _BatchNorm)]
        if any(id(layer) in chosen for layer in layers):
            found.append((model.body, layers))
    return found


def batches_seen(layers: Sequence[_BatchNorm]) -> int:
    return max(int(layer.num_batches_tracked) for layer in layers if layer.num_batches_tracked is not None)


def recalibrate(client: Client, body: nn.Module, layers: Sequence[_BatchNorm], images: Iterable[Tensor]) -> None:
    """Replace the running statistics by the mean over these batches; the count of batches seen stays as it was.

    Only batch norm is in train mode: dropout draws nothing. The pass is part of the client's FLOPs.
    """
    client.trace(RECALIBRATED.name, float(batches_seen(layers)))
    before = [(layer, layer.momentum, layer.num_batches_tracked.clone()) for layer in layers]  # type: ignore[union-attr]
    answer: Callable[[Tensor], Tensor] = client.compute.inference(body)
    body.eval()
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # each batch counts the same
            layer.train()
        with torch.no_grad(), client.meter.watch([(body, Price.FORWARD)]) as reading:
            for batch in images:
                answer(batch)
        client.meter.flops += reading.flops
    finally:
        for layer, momentum, seen in before:
            layer.momentum = momentum
            layer.num_batches_tracked.copy_(seen)  # type: ignore[union-attr]
            layer.eval()
