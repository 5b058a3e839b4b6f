"""The starter comparison: what a new user finds already growing on the first page."""

from typing import Any

_BASE: dict[str, Any] = {
    "tags": ["starter"],
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 3},
    "models": {"family": "cnn-1-5"},
    "clients": 10,
    "participation": 1.0,
    "rounds": 24,
    "training": {"epochs": 1, "batch_size": 32, "lr": 0.02, "momentum": 0.5, "weight_decay": 0.001},
    "evaluation": {"protocol": "A", "every": 1},
    "seed": 44,
}

_METHODS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Standalone", {"name": "standalone"}, "Every client trains alone on its three digits."),
    ("FedAvg", {"name": "fedavg"}, "Clients with the same network share one model, averaged after every round."),
    ("pFedES", {"name": "pfedes", "proxy_epochs": 1}, "All share a proxy of 153 parameters in front of their models."),
    ("pFedAFM", {"name": "pfedafm"}, "All share a small extractor that is mixed with their own, feature by feature."),
    ("FedARC", {"name": "fedarc"}, "All share a small extractor, with residual vectors and a common anchor."),
    ("CompFL", {"name": "compfl", "warmup": 3}, "Bodies are shared per network; large clients also train small ones."),
)

SPECS: tuple[dict[str, Any], ...] = tuple(
    {**_BASE, "name": f"Starter: {title}", "notes": notes, "algorithm": algorithm}
    for title, algorithm, notes in _METHODS
)
"""Five networks over ten clients, one seed: same data, same clients, same batches. Small enough for a laptop.

The seed is one with which pFedES' proxy is alive on one channel (see its file); the others were not looked at."""
