"""Numbers of distillation, by hand."""

import math

import pytest
import torch
from torch import Tensor

from engine.kit.distillation import divergence, learn_share

LN2, LN3 = math.log(2), math.log(3)
TEACHER = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # p = (¾, ¼) and (½, ½)
STUDENT = torch.tensor([[0.0, 0.0], [0.0, 0.0]])  # q = (½, ½)


def test_divergence_sums_over_classes_and_averages_over_the_batch() -> None:
    by_hand = (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)) / 2
    assert divergence(TEACHER, STUDENT).item() == pytest.approx(by_hand, rel=1e-6)


def test_divergence_does_not_shrink_with_the_number_of_classes() -> None:
    padded = [torch.cat([logits, torch.full((2, 98), -80.0)], 1) for logits in (TEACHER, STUDENT)]
    assert divergence(*padded).item() == pytest.approx(divergence(TEACHER, STUDENT).item(), rel=1e-5)


def gradients(*, detach: bool) -> tuple[Tensor | None, Tensor | None]:
    teacher, student = TEACHER.clone().requires_grad_(), STUDENT.clone().requires_grad_()
    divergence(teacher, student, detach=detach).backward()
    return teacher.grad, student.grad


def test_the_gradient_of_the_student_is_q_minus_p_over_the_batch_and_the_teacher_has_none() -> None:
    teacher, student = gradients(detach=True)
    assert teacher is None
    assert student is not None
    assert torch.allclose(student, torch.tensor([[-0.125, 0.125], [0.0, 0.0]]), atol=1e-7)


def test_without_detach_the_teacher_gets_a_gradient_too() -> None:
    teacher, _ = gradients(detach=False)
    assert teacher is not None
    assert teacher.abs().sum() > 0


def test_one_step_of_the_ensemble_weight_by_hand() -> None:
    """With logits (d, 0) and (0, 0), label 0: CE = ln(1 + e^{-a d}), so its slope in a is -d / (1 + e^{a d})."""
    first, second, label = torch.tensor([[2 * LN2, 0.0]]), torch.zeros(1, 2), torch.tensor([0])
    learned = learn_share(first, second, label, 0.5, lr=0.1, epochs=1, batch_size=8)
    assert learned == pytest.approx(0.5 + 0.1 * 2 * LN2 / (1 + 2), rel=1e-6)


def test_the_ensemble_weight_never_leaves_zero_to_one() -> None:
    first, second = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 9.0]])
    for label, end in ((0, 1.0), (1, 0.0)):
        assert learn_share(first, second, torch.tensor([label]), 0.5, lr=1.0, epochs=50, batch_size=1) == end


@pytest.mark.parametrize("still", [{"lr": 0.0, "epochs": 5}, {"lr": 1.0, "epochs": 0}])
def test_the_ensemble_weight_stays_without_steps_or_step_size(still: dict[str, float]) -> None:
    assert learn_share(TEACHER, STUDENT, torch.tensor([0, 1]), 0.25, batch_size=1, **still) == 0.25  # type: ignore[arg-type]


def test_an_empty_set_leaves_the_ensemble_weight_alone() -> None:
    nothing, no_labels = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    assert learn_share(nothing, nothing, no_labels, 0.5, lr=1.0, epochs=3, batch_size=4) == 0.5


def test_the_ensemble_weight_steps_once_per_batch() -> None:
    first, second = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(6, 3)
    labels = torch.arange(6) % 3
    halves = learn_share(first[:3], second[:3], labels[:3], 0.5, lr=0.1, epochs=1, batch_size=3)
    both = learn_share(first[3:], second[3:], labels[3:], halves, lr=0.1, epochs=1, batch_size=3)
    assert learn_share(first, second, labels, 0.5, lr=0.1, epochs=1, batch_size=3) == pytest.approx(both, rel=1e-6)
