"""FLOPs: twice the multiply-accumulates of convolutions and linear layers, priced by what a module does in a phase.

Activations, pooling, normalisation, biases, softmax and the optimiser's arithmetic are left out, as are the products of
queries, keys and values inside attention: the papers count layers with weights.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Price(IntEnum):
    """Multiples of the forward cost of a module."""

    FORWARD = 1  # inference, frozen teacher, prototype pass
    THROUGH = 2  # frozen, but the gradient passes to an earlier module
    UPDATE = 3  # forward, gradient of the input, gradient of the weights


class Meter:
    """Adds up the FLOPs of one client or of the server."""

    def __init__(self) -> None:
        self.flops = 0

    @contextmanager
    def watch(self, priced: Iterable[tuple[nn.Module, Price]]) -> Iterator["Reading"]:
        """Measure what the calls inside cost; nothing is added yet."""
        reading = Reading()
        handles = [handle for module, price in priced for handle in _hooks(module, price, reading)]
        try:
            yield reading
        finally:
            for handle in handles:
                handle.remove()


class Reading:
    """The cost of the calls made while it was open."""

    def __init__(self) -> None:
        self.flops = 0


def forward_flops(module: nn.Module, *inputs: Tensor) -> int:
    """Forward FLOPs of one call."""
    with Meter().watch([(module, Price.FORWARD)]) as reading:
        module(*inputs)
    return reading.flops


def _hooks(module: nn.Module, price: Price, reading: Reading) -> list[RemovableHandle]:
    def record(layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        reading.flops += 2 * int(price) * _macs(layer, args, kwargs, output)

    return [
        layer.register_forward_hook(record, with_kwargs=True)
        for layer in module.modules()
        if isinstance(layer, (*Convolution, nn.Linear, nn.MultiheadAttention))
    ]


def _macs(layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> int:
    if isinstance(layer, nn.Linear):
        return int(output.numel()) * layer.in_features
    if isinstance(layer, nn.MultiheadAttention):
        query = args[0] if args else kwargs["query"]
        # projections of query, key and value, and the one of the output: its own linear layer is never called as one
        return 4 * int(query.numel()) * int(layer.embed_dim)
    if isinstance(layer, Convolution):
        return int(output.numel()) * int(layer.weight[0].numel())  # in_channels / groups × kernel size
    raise TypeError(f"no rule for {type(layer).__name__}")
