"""The batches of an epoch: every sample once, in a new order, and never one alone at the end."""

import pytest
import torch

from engine.data.client_dataset import split_batches
from engine.kit.training import shuffled_batches
from engine.runtime.run import Run
from tests.engine.conftest import SpecMaker


@pytest.mark.parametrize(
    ("samples", "batch_size", "sizes"),
    [(10, 5, [5, 5]), (10, 4, [4, 4, 2]), (9, 4, [4, 5]), (3, 8, [3]), (1, 8, [1]), (5, 1, [1, 1, 1, 2]), (2, 1, [2])],
)
def test_no_sample_is_dropped_and_a_last_one_joins_the_batch_before(
    samples: int, batch_size: int, sizes: list[int]
) -> None:
    batches = split_batches(torch.arange(samples), batch_size)
    assert [len(batch) for batch in batches] == sizes
    assert torch.equal(torch.cat(batches), torch.arange(samples))


def test_every_epoch_round_and_client_has_an_order_of_its_own_and_the_method_has_no_say(small_spec: SpecMaker) -> None:
    def orders(method: str) -> dict[tuple[int, int, int], list[float]]:
        run = Run(small_spec(method, partition={"name": "iid"}))
        next(run.rounds())
        found = {}
        for client_id, number in ((0, 1), (0, 2), (3, 1)):
            client = run.federation.load(client_id, number)
            for epoch in range(2):
                images = torch.cat([x for x, _ in shuffled_batches(client, client.train, range(epoch, epoch + 1))])
                found[client_id, number, epoch] = images.sum((1, 2, 3)).tolist()
        return found

    standalone = orders("standalone")
    assert len(set(map(str, standalone.values()))) == 6
    assert sorted(standalone[0, 1, 0]) == sorted(standalone[0, 1, 1]) == sorted(standalone[0, 2, 1])
    assert orders("fedrod") == standalone
