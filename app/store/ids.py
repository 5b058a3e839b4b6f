"""Ids: ULID text, growing within one process, so that newest-first is one index scan."""

import threading

from ulid import ULID

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """Two ids of the same millisecond still come in the order they were made."""
    global _last
    with _lock:
        _last = max(int(ULID()), _last + 1)
        return str(ULID.from_int(_last))
