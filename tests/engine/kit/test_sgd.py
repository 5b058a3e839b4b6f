"""The optimiser: torch's SGD to the bit, without torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from engine.kit.sgd import SGD, Group


def parameters() -> list[Tensor]:
    draws = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draws).requires_grad_() for shape in ((3, 4), (5,))]


def descend(weights: list[Tensor], optimiser: SGD | torch.optim.SGD) -> list[Tensor]:
    for scale in (1.0, -0.3, 2.0):
        optimiser.zero_grad()
        loss = torch.stack([(scale * weight.square()).sum() for weight in weights]).sum()
        loss.backward()
        optimiser.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize("fused", [True, None])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_its_steps_are_those_of_torch_to_the_bit(fused: bool | None, momentum: float, weight_decay: float) -> None:
    ours, theirs = parameters(), parameters()
    group = Group(ours, lr=0.05, momentum=momentum, weight_decay=weight_decay)
    same = torch.optim.SGD(theirs, lr=0.05, momentum=momentum, weight_decay=weight_decay, fused=fused)
    first, second = descend(ours, SGD([group], fused=fused)), descend(theirs, same)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_parameter_without_a_gradient_stays() -> None:
    used, idle = parameters()
    optimiser = SGD([Group([used, idle], lr=0.1, momentum=0.9)], fused=True)
    before = idle.detach().clone()
    used.sum().backward()
    optimiser.step()
    assert torch.equal(idle, before)


def test_ordinary_training_does_not_import_the_compiler() -> None:
    program = """
import sys
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
spec = {"algorithm": {"name": "fedavg"}, "dataset": {"name": "synthetic", "samples_per_class": 20},
        "partition": {"name": "iid"}, "models": {"family": "tiny-3"}, "clients": 2, "rounds": 1}
assert len(list(Run(ExperimentSpec.parse(spec)).rounds())) == 2
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
