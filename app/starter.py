"""The starter comparison: what a new user finds already growing on the first page."""

from typing import Any

_BASE: dict[str, Any] = {
    "tags": ["starter"],
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "cnn-5"},
    "clients": 10,
    "participation": 1.0,
    "rounds": 60,
    "training": {"epochs": 1, "batch_size": 32, "lr": 0.01, "momentum": 0.9, "weight_decay": 0.001},
    "evaluation": {"protocol": "A", "every": 1},
    "seed": 42,
}

SPECS: tuple[dict[str, Any], ...] = (
    {
        **_BASE,
        "name": "Starter: Standalone",
        "notes": "Every client trains alone on its two digits.",
        "algorithm": {"name": "standalone"},
    },
    {
        **_BASE,
        "name": "Starter: FedAvg",
        "notes": "The same clients share one model, averaged after every round.",
        "algorithm": {"name": "fedavg"},
    },
)
"""Two methods, the same seed: same data, same clients, same batches. Small enough for a laptop."""
