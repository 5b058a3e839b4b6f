"""Read the pickles of published data sets without running anything that is written in them.

Only lists, tuples, dicts, strings, bytes, numbers and plain numpy arrays can be built. The few names such a file may
mention stand for small builders of this module; numpy's own reconstruction code is never called.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import DataDamaged

_KINDS = {"b", "i", "u", "f"}  # booleans and numbers; objects are handled apart
_DEPTH = 16  # nesting that is followed: a CIFAR file has 2 levels, a client of PFLlib 3


class _Refused(Exception):
    pass


class _Builder:
    """What a name in the file stands for: callable, and closed to every other use."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args)

    def __setstate__(self, state: object) -> None:
        raise _Refused("it changes the state of a function")


class _DType:
    """numpy.dtype, as far as numbers and objects go."""

    __slots__ = ("value",)

    def __init__(self, code: object, *_: object) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(text, str) or (text != "O8" and text != "O" and text[:1] not in _KINDS):
            raise _Refused(f"it holds an array of type {code!r}")
        self.value = np.dtype("O") if text.startswith("O") else np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order == "<":
            self.value = self.value.newbyteorder("<")
        elif order == ">":
            self.value = self.value.newbyteorder(">")
        elif order not in {"|", "="}:
            raise _Refused(f"it has the byte order {order!r}")


class _Array:
    """numpy.ndarray while it is being built."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[Any] | list[Any] = []

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        self._fill(shape, kind, "F" if fortran else "C", raw)

    def _fill(self, shape: Any, kind: Any, order: str, raw: Any) -> None:
        if not isinstance(kind, _DType) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise _Refused("it holds an array that is put together in an unknown way")
        if kind.value.hasobject:
            if not isinstance(raw, list):
                raise _Refused("it holds an array of objects that is not a list")
            self.value = raw[0] if tuple(shape) == () and len(raw) == 1 else raw
            return
        if isinstance(raw, str):  # written by Python 2
            raw = raw.encode("latin-1")
        flat = np.frombuffer(raw, kind.value)
        self.value = flat.reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: Any, kind: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array._fill(shape, kind, order, bytes(raw))
    return array


def _scalar(kind: Any, raw: Any) -> Any:
    if not isinstance(kind, _DType) or kind.value.hasobject or not isinstance(raw, bytes):
        raise _Refused("it holds a number that is put together in an unknown way")
    return np.frombuffer(raw, kind.value)[0].item()


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in {"latin1", "latin-1"}:
        raise _Refused("it encodes a text in an unknown way")
    return text.encode("latin-1")


def _never(*_: object) -> None:
    raise _Refused("it makes an array in an unknown way")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        package = module.replace("numpy._core", "numpy.core")
        known: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
            ("numpy.core.multiarray", "scalar"): _scalar,
            ("numpy.core.numeric", "_frombuffer"): _from_buffer,
            ("numpy", "dtype"): _DType,
            ("numpy", "ndarray"): _never,  # named as an argument of _reconstruct, never called
            ("_codecs", "encode"): _encode,
        }
        if (package, name) not in known:
            raise _Refused(f"it asks for {module}.{name}")
        return _Builder(known[package, name])


def _plain(value: Any, depth: int, done: dict[int, Any]) -> Any:
    """The value with every array under construction replaced by the finished one."""
    if depth > _DEPTH:
        raise _Refused(f"it is nested more than {_DEPTH} levels deep")
    if isinstance(value, str | bytes | int | float | bool | np.ndarray) or value is None:
        return value
    if id(value) in done:
        return done[id(value)]
    made: Any
    if isinstance(value, _Array):
        made = _plain(value.value, depth + 1, done)
    elif isinstance(value, dict):
        made = {
            (key.decode("latin-1") if isinstance(key, bytes) else key): _plain(item, depth + 1, done)
            for key, item in value.items()
        }
    elif isinstance(value, list | tuple):
        made = [_plain(item, depth + 1, done) for item in value]
    else:
        raise _Refused(f"it holds a {type(value).__name__.strip('_')}")
    done[id(value)] = made
    return made


def unpickle(data: bytes | memoryview, path: Path) -> Any:
    """The content of a pickle; keys of dicts become text. `path` is for the message only."""
    try:
        return _plain(_Unpickler(io.BytesIO(data), encoding="latin1").load(), 0, {})
    except _Refused as reason:
        raise DataDamaged(
            f"{path} was not read: a data file may hold only lists, dicts, text, numbers and arrays, but {reason}"
        ) from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataDamaged(f"{path} is not a whole pickle file ({type(error).__name__}: {error})") from error
