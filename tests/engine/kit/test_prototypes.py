"""Class tables: means by class, merging, masked terms and the nearest row, with numbers by hand."""

import pytest
import torch
from torch import nn

from engine.kit.contract import Upload
from engine.kit.prototypes import ClassMeans, ClassTable, all_rows, distances, keep_missing, mean_rows
from engine.kit.tensors import Tensors


def table(classes: list[int], means: list[list[float]], counts: list[int] | None = None) -> Tensors:
    return {
        "classes": torch.tensor(classes),
        "means": torch.tensor(means),
        "counts": torch.tensor(counts or [1] * len(classes)),
    }


def sent(client: int, classes: list[int], means: list[list[float]], counts: list[int] | None = None) -> Upload:
    return Upload(client, 10, "all", table(classes, means, counts))


def loaded(classes: list[int], means: list[list[float]], width: int) -> ClassTable:
    held = ClassTable(3, width)
    held.load(table(classes, means))
    return held


def test_means_are_taken_by_class_and_classes_without_samples_are_left_out() -> None:
    means = ClassMeans(4)
    means.add(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([2, 2]))
    means.add(torch.tensor([[5.0, 5.0]]), torch.tensor([0]))
    result = means.table()
    assert result["classes"].tolist() == [0, 2]
    assert result["means"].tolist() == [[5.0, 5.0], [2.0, 1.0]]
    assert result["counts"].tolist() == [1, 2]


def test_the_first_samples_can_be_skipped() -> None:
    means = ClassMeans(2, skip=3)
    for value in (9.0, 9.0, 4.0):
        size = 1 if value == 4.0 else 2
        means.add(torch.full((size, 1), value), torch.zeros(size, dtype=torch.int64))
    assert means.table()["means"].tolist() == [[4.0]]


def test_a_table_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        ClassMeans(2).table()


def test_means_hold_no_graph_and_no_memory_of_what_was_added() -> None:
    vectors = torch.ones(2, 1, requires_grad=True)
    means = ClassMeans(1)
    means.add(vectors, torch.tensor([0, 0]))
    result = means.table()["means"]
    assert not result.requires_grad
    assert result.data_ptr() != vectors.data_ptr()


def test_the_servers_row_is_the_plain_mean_of_its_senders() -> None:
    rows = all_rows([sent(0, [0, 1], [[0.0], [4.0]], [30, 10]), sent(3, [1], [[8.0]], [30])])
    merged = mean_rows(rows)
    assert merged["classes"].tolist() == [0, 1]
    assert merged["means"].tolist() == [[0.0], [6.0]]


def test_by_size_a_sender_weighs_as_much_as_its_samples_of_the_class() -> None:
    rows = all_rows([sent(0, [1], [[4.0]], [10]), sent(3, [1], [[8.0]], [30])])
    assert mean_rows(rows, by_size=True)["means"].tolist() == [[7.0]]


def test_one_sender_gives_its_row_to_the_bit() -> None:
    row = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    upload = Upload(0, 7, "all", {"classes": torch.tensor([2]), "means": row, "counts": torch.tensor([7])})
    for by_size in (False, True):
        assert torch.equal(mean_rows(all_rows([upload]), by_size=by_size)["means"], row)


def test_a_class_that_nobody_sent_keeps_its_row() -> None:
    old, new = table([0, 2], [[1.0], [2.0]]), table([1, 2], [[3.0], [4.0]])
    merged = keep_missing(old, new)
    assert merged["classes"].tolist() == [0, 1, 2]
    assert merged["means"].tolist() == [[1.0], [3.0], [4.0]]
    assert old["means"].tolist() == [[1.0], [2.0]]


def test_a_sample_of_an_unknown_class_adds_nothing_but_still_counts_in_the_mean() -> None:
    held = loaded([1], [[1.0, 1.0]], 2)
    z, y = torch.tensor([[3.0, 2.0], [9.0, 9.0]]), torch.tensor([1, 0])
    assert held.distance(z, y).item() == ((4 + 1) / 2) / 2


def test_loading_an_empty_table_forgets_the_old_one() -> None:
    held = loaded([1], [[1.0, 1.0]], 2)
    held.load({})
    assert not held.known.any()
    assert not held.rows.any()


def test_the_nearest_row_answers_and_unknown_classes_never_do() -> None:
    held = loaded([0, 2], [[0.0, 0.0], [4.0, 0.0]], 2)
    nearest = held.nearest(nn.Identity(), [0, 1, 2])
    assert nearest is not None
    assert nearest(torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.1]])).argmax(1).tolist() == [0, 2, 0]


def test_candidates_narrow_the_choice_and_without_any_there_is_no_answer() -> None:
    held = loaded([0, 2], [[0.0], [4.0]], 1)
    nearest = held.nearest(nn.Identity(), [1, 2])
    assert nearest is not None
    assert nearest(torch.tensor([[0.0]])).argmax(1).tolist() == [2]
    assert held.nearest(nn.Identity(), [1]) is None
    assert ClassTable(3, 1).nearest(nn.Identity(), [0, 1, 2]) is None


def test_a_vector_has_distance_zero_to_itself_and_a_finite_gradient_there() -> None:
    vectors = 10 * torch.randn(40, 512, generator=torch.Generator().manual_seed(1))
    copy = vectors.clone().requires_grad_(True)
    found = distances(vectors, copy)
    assert not found.diagonal().any()
    found.sum().backward()
    assert copy.grad is not None
    assert copy.grad.isfinite().all()
