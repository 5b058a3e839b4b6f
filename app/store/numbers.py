"""What a number may be in the store: finite or null."""

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
