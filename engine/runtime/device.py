"""Where and how networks compute: the only module that knows CUDA, streams, precision and torch's compiler.

All of it is operation, never part of a spec. The defaults are plain float32 on the CPU and cost nothing.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from engine.data.datasets import Dataset
from engine.kit.tensors import Tensors

log = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16"]
Stacking = Literal["auto", "on", "off"]
Function = Callable[..., Tensor]

RECOMPILE_LIMIT = 256
"""One compiled form for each architecture, batch size and role; torch's own limit of 8 ends in silence."""


class DeviceUnavailable(ValueError):
    """What was asked for is not there."""


class DeviceMemoryError(MemoryError):
    """The device has no room for the work."""


class CompileFailed(RuntimeError):
    """torch.compile works here, but not for this method."""


def find_device(wanted: str) -> torch.device:
    """auto, cpu, cuda or cuda:N as a device that is really there."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise DeviceUnavailable(f"a device is auto, cpu, cuda or cuda:N, but got {wanted!r}") from None
    if device.type == "cuda" and (device.index or 0) >= (seen := torch.cuda.device_count()):
        raise DeviceUnavailable(
            f"{wanted} was asked for, but torch {torch.__version__} sees {seen} CUDA devices: use auto or cpu, or "
            "install a CUDA build of torch and its driver"
        )
    return device


class Compute:
    """The device with everything that decides how a step is computed on it."""

    def __init__(
        self,
        device: str = "cpu",
        *,
        precision: Precision = "float32",
        compile: bool = False,
        stacked: Stacking = "auto",
    ) -> None:
        """`stacked` auto: clients of one architecture train together on a GPU only; on a CPU that is slower."""
        self.device = find_device(device)
        self.precision = precision
        self.stacks = stacked == "on" or (stacked == "auto" and self.device.type == "cuda")
        if self.device.type == "cuda":
            _prefer_equal_bits()
        self.why_not_compiled = _why_not_compiled(self.device) if compile else "not asked for"
        self.compiles = not self.why_not_compiled
        if compile and not self.compiles:
            log.warning("torch.compile does not work here, so nothing is compiled: %s", self.why_not_compiled)
        self._streams = threading.local()

    @property
    def environment(self) -> dict[str, str | int]:
        """What the last bits depend on."""
        asked = self.why_not_compiled != "not asked for"
        found: dict[str, str | int] = {
            "device": self.device.type,
            "precision": self.precision,
            "compile": "on" if self.compiles else f"off: {self.why_not_compiled}" if asked else "off",
        }
        if self.device.type == "cuda":
            found["gpu"] = torch.cuda.get_device_name(self.device)
        return found

    def resident(self, dataset: Dataset) -> Dataset:
        """The data set with its images on the device, once for all clients; labels and indices stay on the CPU."""
        with self.explained_memory("loading the data set"):
            return replace(dataset, images=dataset.images.to(self.device))

    def place(self, tensors: Mapping[str, Tensor]) -> Tensors:
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def autocast(self) -> AbstractContextManager[Any]:
        """Forward passes inside are made in this precision; weights and gradients stay float32."""
        mixed = self.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if mixed else nullcontext()

    def inference(self, function: Function) -> Function:
        """A forward pass in this precision; the answer is float32."""
        if self.precision == "float32":
            return function

        def mixed(*inputs: Tensor) -> Tensor:
            with self.autocast():
                answer = function(*inputs)
            return answer.float() if answer.dtype is torch.bfloat16 else answer

        return mixed

    def step(self, objective: Function) -> Function:
        """The forward pass of a training step: this precision, and compiled if asked for."""
        if not self.compiles:
            return self.inference(objective)
        compiled = torch.compile(objective)

        def checked(*inputs: Tensor) -> Tensor:
            try:
                return compiled(*inputs)
            except torch._dynamo.exc.TorchDynamoException as error:
                raise CompileFailed(
                    f"torch.compile fails on this method's objective ({_first_line(error)}): run it without compile"
                ) from error

        return self.inference(checked)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A thread's own CUDA stream: it starts after what the main thread queued, and is empty when the work is done.

        Blocks that one stream freed may go to another only after both met: here, at the beginning and at the end.
        """
        if self.device.type != "cuda":
            yield
            return
        if not hasattr(self._streams, "own"):
            self._streams.own = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        own: torch.cuda.Stream = self._streams.own
        own.wait_stream(torch.cuda.default_stream(self.device))
        with torch.cuda.stream(own):
            yield
        own.synchronize()

    @contextmanager
    def explained_memory(self, when: str) -> Iterator[None]:
        """Torch's report that memory is exhausted becomes an error that says what to do."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            stacked = "switch stacked clients off, " if self.stacks else ""
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            raise DeviceMemoryError(
                f"{self.device} has no memory left while {when} ({_first_line(error)}): {stacked}run fewer threads or "
                "experiments at once on it, or use a smaller training.batch_size"
            ) from error


def _prefer_equal_bits() -> None:
    """float32 is float32, and the same work gives the same bits where CUDA can do that."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)


def _why_not_compiled(device: torch.device) -> str:
    """Try it on one line; empty: it works."""
    import torch._dynamo

    try:
        probe = torch.ones(2, device=device, requires_grad=True)
        torch.compile(lambda x: (x * x).sum())(probe).backward()
    except Exception as error:  # whatever the tool chain lacks, it is one of many kinds
        return _first_line(error)
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return ""


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__
