"""Ids: ULID text, growing within one process, so that newest-first is one index scan."""

import threading
from collections.abc import Iterator, Sequence

from ulid import ULID

CHUNK = 500
"""Values in one IN list."""

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """Two ids of the same millisecond still come in the order they were made."""
    global _last
    with _lock:
        _last = max(int(ULID()), _last + 1)
        return str(ULID.from_int(_last))


def in_chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many at a time as one statement may name."""
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]
