"""The private tensors of the clients that have taken part; beyond a budget the longest idle ones lie on disk."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load, save_file
from torch import Tensor

from engine.kit.contract import ServerState
from engine.kit.tensors import Tensors

DEFAULT_BUDGET = 1 << 30


class CheckpointDamaged(Exception):
    """A file on disk is missing or is not what was written."""


@dataclass(frozen=True)
class StateFile:
    """A file that holds a client's tensors, and its checksum where somebody else may have touched it."""

    path: Path
    sha256: str | None = None
    keeper: object = field(default=None, compare=False, repr=False)
    """Whoever deletes the file at the end of its own life: it lives at least as long as this."""

    def read(self) -> Tensors:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise CheckpointDamaged(f"{self.path.name} cannot be read: {error.strerror}") from error
        if self.sha256 is not None and hashlib.sha256(content).hexdigest() != self.sha256:
            raise CheckpointDamaged(f"{self.path.name} changed since it was written")
        return load(content)


@dataclass(frozen=True)
class Snapshot:
    """A verified checkpoint: the run goes on after `round`."""

    round: int
    fingerprint: str
    server: ServerState
    clients: Mapping[int, StateFile] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)  # where it was written


class ClientStates:
    """Client id to tensors. A client that never took part has no entry and costs nothing."""

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET) -> None:
        self.budget_bytes = budget_bytes
        self._memory: OrderedDict[int, Tensors] = OrderedDict()
        self._files: dict[int, StateFile] = {}  # a client's current state on disk; absent once it has changed
        self._bytes = 0
        self._spill: TemporaryDirectory[str] | None = None

    def __contains__(self, client: int) -> bool:
        return client in self._memory or client in self._files

    def ids(self) -> list[int]:
        return sorted(self._memory.keys() | self._files.keys())

    @property
    def in_memory(self) -> int:
        """How many clients' tensors are in memory."""
        return len(self._memory)

    def get(self, client: int) -> Mapping[str, Tensor]:
        """The client's tensors; none before its first round. Safe to call from several threads."""
        tensors = self._memory.get(client)
        if tensors is not None:
            return tensors
        file = self._files.get(client)
        return {} if file is None else file.read()

    def put(self, client: int, tensors: Tensors) -> None:
        """Replace a client's tensors."""
        self._forget(client)
        self._files.pop(client, None)
        self._memory[client] = tensors
        self._bytes += _size(tensors)
        self._evict()

    def adopt(self, client: int, file: StateFile) -> None:
        """The client's state is this file."""
        self._files[client] = file
        self._evict()

    def _forget(self, client: int) -> None:
        old = self._memory.pop(client, None)
        if old is not None:
            self._bytes -= _size(old)

    def _evict(self) -> None:
        while self._bytes > self.budget_bytes and len(self._memory) > 1:
            client = next(iter(self._memory))
            if client not in self._files:
                self._files[client] = self._write(client, self._memory[client])
            self._forget(client)

    def _write(self, client: int, tensors: Tensors) -> StateFile:
        if self._spill is None:
            self._spill = TemporaryDirectory(prefix="fedarena-states-")
        path = Path(self._spill.name) / f"{client}.safetensors"
        save_file(contiguous(tensors), path)
        return StateFile(path)


def contiguous(tensors: Mapping[str, Tensor]) -> Tensors:
    """What a file can hold: the same values in plain order."""
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
