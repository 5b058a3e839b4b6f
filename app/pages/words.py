"""Parts of a spec in a few words, as the scripts of the pages write them too."""

from typing import Any

from engine import catalogue
from engine.spec.problems import MOST_CLIENTS, cohort_size


def dataset_text(spec: dict[str, Any]) -> str:
    """digits, or cifar100 (coarse)."""
    name = spec.get("set") or spec.get("name", "")
    return f"{name} (coarse)" if spec.get("labels") == "coarse" else str(name)


def partition_text(spec: dict[str, Any]) -> str:
    """pathological, 2 classes."""
    parts = [str(spec.get("name", ""))]
    if "classes_per_client" in spec:
        count = spec["classes_per_client"]
        parts.append(f"{count} {'class' if count == 1 else 'classes'}")
    parts += [f"{letter} {spec[key]}" for key, letter in catalogue.partition_symbols().items() if key in spec]
    return ", ".join(part for part in parts if part)


def clients_text(spec: dict[str, Any]) -> str:
    """20 of 150 clients: those that take part in a round. A damaged spec is shown as it is stored."""
    clients, share = spec["clients"], spec["participation"]
    is_sound = 1 <= clients <= MOST_CLIENTS and 0 < share <= 1
    taking_part = cohort_size(clients, share) if is_sound else clients
    return f"{taking_part} of {clients} clients" if taking_part < clients else f"all {clients} clients"
