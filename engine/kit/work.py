"""A piece of local work and what it leaves behind: the words between a run and its topology."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.kit.contract import Client, Payload, Upload
from engine.kit.tensors import Tensors
from engine.kit.training import Diverged
from engine.records import Dropped

BYTES_PER_SCALAR = 4


@dataclass(frozen=True)
class Tested:
    """One client's result on its own test and validation samples."""

    correct: int
    num_samples: int
    flops: int  # of tuning a copy for the test
    readouts: Mapping[str, float]  # accuracy of further inference paths
    failure: str = ""  # why nothing was answered: what is tuned for the test diverged
    validation_correct: int = 0
    num_validation_samples: int = 0  # none: it does not count in the round's validation accuracy

    @property
    def accuracy(self) -> float:
        return self.correct / self.num_samples


@dataclass(frozen=True)
class ClientResult:
    """What one client leaves behind in one round."""

    id: int
    upload: Upload
    loss: float | None
    scalars_up: int
    scalars_down: int
    flops: int
    seconds: float
    traces: dict[str, Any]
    state: Tensors = field(default_factory=dict)
    tested: Tested | None = None
    usable: bool = True
    """Whether anything of the upload counts."""
    diverged: Diverged | None = None
    """Why nothing of its work counts: it sits out the round and keeps the state it had."""
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True)
class Task:
    """Something that one client does; it returns what it hands on."""

    client: int
    act: Callable[[Client], Payload]


Perform = Callable[[Sequence[Task], Mapping[int, Tensors]], list[ClientResult]]
"""Let clients work, at most one task each, from the states given or those they kept; nothing is kept yet."""
