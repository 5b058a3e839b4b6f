"""A device that is not there: tensors that say they are elsewhere, hold real values, and refuse what a GPU refuses.

Inside `pretending()` everything put on the device "meta" becomes such a tensor. Values are computed on the CPU, so the
results must be those of the CPU to the bit; an operation that mixes both places raises, as it would with CUDA, and so
does one that gives other bits every time there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("meta")
aten = torch.ops.aten
MAY_MIX = {aten.copy_.default, aten._foreach_copy_.default, aten._to_copy.default}
"""Transfers between the two places."""
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""Their indices may be on the CPU if the values are on the device, not the other way round."""


NO_EQUAL_BITS = {
    aten.bincount.default,
    aten.cumsum.default,
    aten.grid_sampler_2d_backward.default,
    aten.histc.default,
    aten.kthvalue.default,
    aten.put_.default,
    aten.reflection_pad2d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.scatter_reduce.two,
    aten.upsample_bilinear2d_backward.default,
}
"""CUDA has no form of these that gives the same bits twice; of integers it has."""


class Mixed(Exception):
    """An operation got tensors of both places."""


class NoEqualBits(Exception):
    """The same computation may give other bits on a GPU."""


class There(Tensor):
    """A tensor on the pretended device."""

    raw: Tensor

    @staticmethod
    def __new__(cls: type["There"], raw: Tensor) -> "There":
        wrapper: There = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), dtype=raw.dtype, device=ELSEWHERE
        )
        wrapper.raw = raw
        return wrapper

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch declares it without `func`
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.raw.tolist()


class _Constants(TorchFunctionMode):
    """torch.tensor() makes its value out of sight of the dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") == ELSEWHERE:
            gradient = kwargs.pop("requires_grad", False)
            return torch.tensor(*args, **{**kwargs, "device": "cpu"}).to(ELSEWHERE).requires_grad_(gradient)
        return func(*args, **kwargs)


class _Pretend(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Transfers:
    """How many tensors travelled to the device."""

    def __init__(self) -> None:
        self.number = 0


_transfers = Transfers()


@contextmanager
def pretending() -> Iterator[Transfers]:
    _transfers.number = 0
    with _Constants(), _Pretend():
        yield _transfers


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    inputs = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, (Tensor, torch.Generator))]
    tensors = [each for each in inputs if isinstance(each, Tensor)]
    there = any(isinstance(each, There) for each in tensors)
    wanted = kwargs.get("device")
    if wanted is not None and torch.device(wanted) == ELSEWHERE:
        _transfers.number += func in MAY_MIX and not there
        there, kwargs = True, {**kwargs, "device": "cpu"}
    elif wanted is not None:
        there = False
    elif there:
        _check(func, args, tensors, inputs)
    outputs = func(*tree_map(_raw, args), **tree_map(_raw, kwargs))
    own = {id(each.raw): each for each in tensors if isinstance(each, There)}

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in own:
            return own[id(value)]  # changed in place
        return There(value) if there else value

    return tree_map(back, outputs)


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, There) else value


def _check(func: Any, args: Any, tensors: list[Tensor], inputs: list[Any]) -> None:
    if any(isinstance(each, torch.Generator) for each in inputs):
        raise Mixed(f"{func} draws from a generator of the CPU for a tensor that is elsewhere")
    if func in MAY_MIX:
        arrived = [each for each in tensors[1:] if not isinstance(each, There) and each.ndim > 0]
        _transfers.number += len(arrived) if isinstance(tensors[0], There) else 0
        return
    if func in NO_EQUAL_BITS and any(each.is_floating_point() for each in tensors):
        raise NoEqualBits(f"{func} adds up in any order on a GPU: let the CPU do it")
    if func in INDEXED:
        _transfers.number += sum(isinstance(each, Tensor) and not isinstance(each, There) for each in args[1])
        tensors = [args[0], *(each for each in args[2:3] if isinstance(each, Tensor))]
    here = [tuple(each.shape) for each in tensors if not isinstance(each, There) and each.ndim > 0]
    if here:
        raise Mixed(f"{func} mixes tensors of the device with tensors of the CPU of shape {here}")
