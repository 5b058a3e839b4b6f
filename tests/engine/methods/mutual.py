"""What the tests of methods with a shared small model have in common."""

from typing import Any

import torch

from engine.kit.flops import forward_flops
from engine.records import RoundRecord
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.methods.test_proposed import COLOUR, DIGITS

ONE_OF_TEN: dict[str, Any] = {**DIGITS, "dataset": COLOUR}


def only_record(algorithm: str | dict[str, Any], **changes: Any) -> tuple[Run, RoundRecord]:
    """One round of one client among ten that own CNN-1 to CNN-5."""
    named = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    run = Run(ExperimentSpec.parse({**ONE_OF_TEN, "algorithm": named, **changes}))
    *_, record = run.rounds()
    return run, record


def forward_prices(run: Run, client: int) -> tuple[int, int, int]:
    """n_k and the forward FLOPs of the private and of the small model."""
    networks, image = run.federation.networks[run.setup.architectures[client]], torch.zeros(1, *run.setup.shape)
    with torch.no_grad():
        private, small = (
            forward_flops(networks.model.eval(), image),
            forward_flops(networks.parts["small"].eval(), image),
        )
    return run.setup.num_samples[client], private, small


def private_model(run: Run, client: int) -> dict[str, list[Any]]:
    """The client's own model, to the bit."""
    state = run.federation.states.get(client)
    return {name: tensor.tolist() for name, tensor in sorted(state.items()) if name.startswith("model.")}


def histories(spec: ExperimentSpec) -> list[tuple[dict[int, Any], dict[str, float]]]:
    """After every round, all private models and the accuracies: what a method shares with Standalone at its limit."""
    run = Run(spec)
    return [
        ({client: private_model(run, client) for client in run.federation.states.ids()}, record.client_accuracy)
        for record in run.rounds()
    ]


def models_after_every_round(spec: ExperimentSpec) -> list[dict[int, Any]]:
    return [models for models, _ in histories(spec)]


def by_preset(algorithm: str, *fields: str) -> dict[str, tuple[Any, ...]]:
    """The method's parameters under the presets A, B and C."""
    base = {key: ONE_OF_TEN[key] for key in ("dataset", "partition", "models")} | {"algorithm": {"name": algorithm}}
    specs = [ExperimentSpec.parse({**base, "preset": preset}) for preset in "ABC"]
    return {field: tuple(getattr(spec.algorithm, field) for spec in specs) for field in fields}
