"""What the answers of two models are good for: the divergence that one learns from, and the best mixture of both."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from engine.data.client_dataset import split_batches


def divergence(teacher: Tensor, student: Tensor, *, detach: bool = True) -> Tensor:
    """KL(p_teacher ‖ p_student) of two sets of logits (B, L): the sum over classes, the mean over the batch.

    torch's reduction "mean" would divide by the number of classes too. `detach` keeps the gradient off the teacher.
    """
    target = log_softmax(teacher.detach() if detach else teacher, 1)
    return kl_div(log_softmax(student, 1), target, reduction="batchmean", log_target=True)


def learn_share(
    first: Tensor, second: Tensor, labels: Tensor, share: float, *, lr: float, epochs: int, batch_size: int
) -> float:
    """The a in [0, 1] with which CE(a·first + (1-a)·second, y) falls, from `share` on: plain SGD in a fixed order.

    `first` and `second` are logits (m, L) of two models that stay as they are.
    """
    labels = labels.to(first.device)
    a = torch.tensor(share, dtype=first.dtype, device=first.device, requires_grad=True)
    batches = split_batches(torch.arange(len(labels), device=first.device), batch_size)
    for _ in range(epochs if len(labels) else 0):
        for rows in batches:
            loss = cross_entropy(a * first[rows] + (1 - a) * second[rows], labels[rows])
            [gradient] = torch.autograd.grad(loss, [a])
            with torch.no_grad():
                a.sub_(lr * gradient).clamp_(0, 1)
    return a.item()
