"""A piece of local work and what it leaves behind: the words between a run and its topology."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.kit.contract import Client, Payload, Upload
from engine.kit.tensors import Tensors
from engine.kit.training import Diverged
from engine.records import Dropped

if TYPE_CHECKING:
    from engine.runtime.evaluation import Tested


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
    tested: "Tested | None" = None
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
