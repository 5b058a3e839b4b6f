"""pFedES: local work by hand, the proxy, and options."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.methods.pfedes import PROXIES
from engine.models import Proxy, count
from engine.runtime.run import Run
from engine.testing import Stage
from tests.engine.conftest import SpecMaker
from tests.engine.methods.byhand import TRAINING, alike, batches, descend, trainable, unit
from tests.engine.methods.federation import weights_of


@pytest.mark.parametrize("client_id", [0, 1, 2])  # the third has batch norm
@pytest.mark.parametrize("μ", [0.3, 1.0])
def test_local_work_is_that_of_the_paper(client_id: int, μ: float, small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec({"name": "pfedes", "mu": μ, "proxy_epochs": 3}, training=TRAINING)))
    client = stage.client(client_id)
    F, G = trainable(client.model), trainable(client.parts["proxy"])
    private, proxy = unit(F), unit(G)
    for x, y in batches(client):
        loss = μ * cross_entropy(F(G(x).detach()), y)
        if μ < 1:
            loss = loss + (1 - μ) * cross_entropy(F(x), y)
        descend(loss, private)
    F.eval()
    for x, y in batches(client, epochs=3):
        descend(cross_entropy(F(G(x)), y), proxy)

    sent = stage.algorithm.local_update(client, stage.algorithm.download(stage.run.server, client))

    assert alike(client.model, F)
    assert alike(client.parts["proxy"], G)
    for name, tensor in client.parts["proxy"].state_dict().items():
        assert torch.equal(sent[name], tensor)


def test_the_private_model_answers_for_the_original_image(small_spec: SpecMaker) -> None:
    stage = Stage(Run(small_spec("pfedes")))
    client = stage.client()
    assert stage.algorithm.predictor(client) is client.model


def test_the_paper_s_proxy_is_two_convolutions_each_with_a_relu_behind_it() -> None:
    proxy = Proxy(3)
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    first, second = proxy.conv1, proxy.conv2
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    hidden = nn.functional.conv2d(image, first.weight, first.bias, padding=1).clamp(min=0)
    expected = nn.functional.conv2d(hidden, second.weight, second.bias, padding=1).clamp(min=0)
    assert torch.equal(proxy(image), expected)
    assert (count(Proxy(3)), count(Proxy(1))) == ((443, 0), (153, 0))


@pytest.mark.parametrize("proxy", list(PROXIES))
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_every_proxy_keeps_the_size_of_the_image(proxy: str, shape: tuple[int, int, int]) -> None:
    for layers in (1, 2, 4):
        assert PROXIES[proxy](shape[0], layers, 6)(torch.zeros(2, *shape)).shape == (2, *shape)


def test_layers_and_width_of_the_proxy_give_the_numbers_of_a_hand_count(small_spec: SpecMaker) -> None:
    assert [count(Proxy(3, layers, 16))[0] for layers in (1, 2, 3)] == [
        3 * 3 * 9 + 3,
        3 * 16 * 9 + 16 + 16 * 3 * 9 + 3,
        3 * 16 * 9 + 16 + 16 * 16 * 9 + 16 + 16 * 3 * 9 + 3,
    ]
    *_, last = Run(small_spec({"name": "pfedes", "proxy_layers": 3, "proxy_width": 4})).rounds()
    assert last.scalars_up == 3 * (1 * 4 * 9 + 4 + 4 * 4 * 9 + 4 + 4 * 1 * 9 + 1)  # three participants, one channel


def test_another_proxy_needs_one_line(small_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    class Brighter(nn.Module):
        def __init__(self, channels: int, layers: int, width: int) -> None:
            super().__init__()
            self.light = nn.Parameter(torch.zeros(channels, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.light

    monkeypatch.setitem(PROXIES, "conv", Brighter)
    run = Run(small_spec("pfedes"))
    *_, last = run.rounds()
    assert last.scalars_up == last.scalars_down == 3  # one channel at each of three clients
    assert run.server.groups["all"]["light"].any()


def test_every_option_changes_what_is_learned(small_spec: SpecMaker) -> None:
    variants: list[dict[str, Any]] = [{}, {"mu": 0.5}, {"mu": 1}, {"mu": 0}, {"proxy_epochs": 1}, {"proxy": "residual"}]
    results = [weights_of(small_spec({"name": "pfedes", **variant})) for variant in variants]
    assert len(set(results)) == len(variants)


def test_without_epochs_the_proxy_stays_as_it_was(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "pfedes", "proxy_epochs": 0}))
    iterator = run.rounds()
    next(iterator)
    start = {name: tensor.clone() for name, tensor in run.server.groups["all"].items()}
    list(iterator)
    for name, tensor in run.server.groups["all"].items():
        assert torch.allclose(tensor, start[name], rtol=0, atol=1e-7)
