"""What a number may be in a row and in JSON: finite or null."""

import json
import math
from typing import Any


def finite(value: Any) -> Any:
    """NaN and infinities become null, at any depth; tuples become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def json_text(record: Any) -> str:
    """Records as JSON; a number that is none, which PostgreSQL can hold, becomes null."""
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json_text(finite(record))
