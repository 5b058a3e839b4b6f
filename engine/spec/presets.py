"""The papers' settings: values for fields that a spec leaves out."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "A": {
        "dataset": {"transform": "a"},
        "partition": {"split": "stratified-80-20"},
        "rounds": 500,
        "training": {
            "epochs": 10,
            "batch_size": 512,
            "lr": 0.01,
            "momentum": 0.9,
            "weight_decay": 0.001,
            "clip": 50.0,
            "augment": True,
        },
        "evaluation": {"protocol": "A"},
    },
    "B": {
        "dataset": {"transform": "b"},
        "partition": {"split": "random-75-25"},
        "rounds": 1000,
        "training": {
            "epochs": 1,
            "batch_size": 10,
            "lr": 0.01,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "clip": None,
            "augment": False,
            "recalibrate_below": 1000,
        },
        "evaluation": {"protocol": "B"},
    },
    "C": {
        "dataset": {"transform": "c"},
        "partition": {"split": "official"},
        "clients": 20,
        "participation": 1.0,
        "rounds": 200,
        "training": {
            "epochs": 5,
            "batch_size": 50,
            "lr": 0.02,
            "momentum": 0.5,
            "weight_decay": 0.0005,
            "clip": None,
            "augment": True,
        },
        "evaluation": {"protocol": "C"},
        "models": {"assign": "blocks"},
    },
}
"""The papers' families: pFedAFM and pFedES (A), FedARC (B), CompFL (C)."""
