"""Whole rounds of four methods against the same rounds written down as plain loops with torch's own optimiser.

A step of each is computed by hand elsewhere. Here the steps are put together: who takes part, what is received, kept,
sent and trained, over three rounds with momentum, weight decay, clipping and clients that are away.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, mse_loss, one_hot

from engine.data.client_dataset import split_batches
from engine.kit.contract import Client
from engine.kit.training import shuffled_batches
from engine.runtime.run import Run
from tests.engine.conftest import SpecMaker
from tests.engine.methods.federation import own

SETTING: dict[str, Any] = {
    "models": {"family": "tiny-mlp"},
    "training": {"epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001, "clip": 1.0},
}
CLASSES, WIDTH = 4, 16


class Plain:
    """The clients of a run with models of their own, and nothing else of it but its data and draws."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.models = {k: run.setup.model("tiny-mlp") for k in range(run.setup.clients)}

    def client(self, k: int, t: int) -> Client:
        return self.run.federation.load(k, t, replicas=self.run.federation.replicas())

    def batches(self, k: int, t: int) -> Iterator[tuple[Tensor, Tensor]]:
        client = self.client(k, t)
        return shuffled_batches(client, client.train, range(2))

    def prototypes(self, k: int) -> list[tuple[Tensor, int]]:
        train = self.client(k, 1).train
        x, y = train.batch(torch.arange(len(train)))
        with torch.no_grad():
            z = self.models[k].body(x)
        return [(z[y == c].mean(0), c) for c in train.classes()]


def sgd(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=0.001)


def step(loss: Tensor, *optimisers: torch.optim.SGD) -> None:
    for optimiser in optimisers:
        optimiser.zero_grad()
    loss.backward()
    for optimiser in optimisers:
        nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
        optimiser.step()


def expect(run: Run, plain: Plain, prefix: str, part: str) -> None:
    """What the run's clients kept is what the loop made of its models."""
    for k in run.federation.states.ids():
        wanted = {name.removeprefix(part): tensor for name, tensor in plain.models[k].state_dict().items()}
        for name, tensor in own(run, k, prefix).items():
            assert torch.allclose(tensor, wanted[name], atol=1e-4), (k, name)


def test_three_rounds_of_fedtgp(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedtgp", "weight": 10, "server_epochs": 20, "server_lr": 0.1}, **SETTING))
    list(run.rounds())
    plain = Plain(run)
    L, d = CLASSES, WIDTH
    parts = run.setup.make("tgp", lambda: nn.ModuleList([nn.Embedding(L, d), nn.Linear(d, d), nn.Linear(d, d)]))
    embedding, inner, outer = parts
    table: Tensor | None = None
    for t in (1, 2, 3):
        pairs: list[tuple[Tensor, int]] = []
        for k in run.setup.participants(t):
            model = plain.models[k]
            optimiser = sgd(model)
            for x, y in plain.batches(k, t):
                z = model.body(x)
                loss = cross_entropy(model.head(z), y)
                step(loss if table is None else loss + 10 * mse_loss(z, table[y]), optimiser)
            pairs += plain.prototypes(k)
        p, c = torch.stack([row for row, _ in pairs]), torch.tensor([label for _, label in pairs])
        centres = torch.stack([p[c == label].mean(0) for label in torch.unique(c)])
        gaps = (centres[:, None] - centres).norm(dim=2) + torch.eye(len(centres)) * 1e9
        δ, draws = gaps.min(1).values.max(), run.setup.server_draws("fedtgp", t)
        for _ in range(20):
            for rows in torch.split(torch.randperm(len(p), generator=draws), 8):
                D = (p[rows][:, None] - outer(inner(embedding.weight).relu())).norm(dim=2)
                cross_entropy(-(D + δ * one_hot(c[rows], L)), c[rows]).backward()
                with torch.no_grad():
                    for weight in parts.parameters():
                        assert weight.grad is not None
                        weight.sub_(0.1 * weight.grad)
                        weight.grad = None
        table = outer(inner(embedding.weight).relu()).detach()
    assert table is not None
    assert torch.allclose(run.server.groups["all"]["means"], table, atol=1e-3)
    expect(run, plain, "model.", "")


def test_three_rounds_of_fedgh(small_spec: SpecMaker) -> None:
    run = Run(small_spec({"name": "fedgh", "server_lr": 0.1, "server_epochs": 3}, **SETTING))
    list(run.rounds())
    plain = Plain(run)
    φ = run.setup.model("tiny-mlp").head
    for t in (1, 2, 3):
        pairs: list[tuple[Tensor, int]] = []
        for k in run.setup.participants(t):
            model = plain.models[k]
            model.head.load_state_dict(φ.state_dict())
            optimiser = sgd(model)
            for x, y in plain.batches(k, t):
                step(cross_entropy(model(x), y), optimiser)
            pairs += plain.prototypes(k)
        for p, c in pairs * 3:
            loss = cross_entropy(φ(p)[None], torch.tensor([c]))
            gradients = torch.autograd.grad(loss, list(φ.parameters()))
            with torch.no_grad():
                for weight, gradient in zip(φ.parameters(), gradients, strict=True):
                    weight.sub_(0.1 * gradient)
    for name, tensor in φ.state_dict().items():
        assert torch.allclose(run.server.groups["16x4"][name], tensor, atol=1e-4)
    expect(run, plain, "model.body.", "body.")


def test_three_rounds_of_fml(small_spec: SpecMaker) -> None:
    algorithm = {"name": "fml", "alpha": 0.3, "beta": 0.6, "small_model": "compfl-cnn"}
    run = Run(small_spec(algorithm, partition={"name": "dirichlet", "beta": 1.0}, **SETTING))
    list(run.rounds())
    plain = Plain(run)
    G = run.algorithm.shared(plain.client(0, 1))  # type: ignore[attr-defined]
    newest = {name: tensor.clone() for name, tensor in G.state_dict().items()}
    for t in (1, 2, 3):
        sent: list[dict[str, Tensor]] = []
        cohort = run.setup.participants(t)
        for k in cohort:
            F = plain.models[k]
            G.load_state_dict(newest)
            G.requires_grad_(True)
            optimisers = sgd(F), sgd(G)
            for x, y in plain.batches(k, t):
                f, g = F(x).log_softmax(1), G(x).log_softmax(1)
                of_F = 0.3 * cross_entropy(f, y) + 0.7 * kl_div(f, g.detach().exp(), reduction="batchmean")
                of_G = 0.6 * cross_entropy(g, y) + 0.4 * kl_div(g, f.detach().exp(), reduction="batchmean")
                step(of_F + of_G, *optimisers)
            sent.append({name: tensor.detach().clone() for name, tensor in G.state_dict().items()})
        n = [run.setup.num_samples[k] for k in cohort]
        weighted = [(size / sum(n), tensors) for size, tensors in zip(n, sent, strict=True)]
        newest = {name: torch.stack([w * tensors[name] for w, tensors in weighted]).sum(0) for name in newest}
    for name, tensor in newest.items():
        assert torch.allclose(run.server.groups["all"][name], tensor, atol=1e-4), name
    expect(run, plain, "model.", "")


def test_three_rounds_of_fedapen(small_spec: SpecMaker) -> None:
    algorithm = {"name": "fedapen", "adaptability_ratio": 0.3, "weight_lr": 0.1, "small_model": "compfl-cnn"}
    run = Run(small_spec(algorithm, **SETTING))
    seen = {record.round: record.traces.get("ensemble_weight", {}) for record in run.rounds()}
    plain = Plain(run)
    a = dict.fromkeys(range(run.setup.clients), 0.5)
    trained: set[int] = set()
    G = run.algorithm.shared(plain.client(0, 1))  # type: ignore[attr-defined]
    newest = {name: tensor.clone() for name, tensor in G.state_dict().items()}
    for t in (1, 2, 3):
        sent: list[dict[str, Tensor]] = []
        for k in run.setup.participants(t):
            F, client = plain.models[k], plain.client(k, t)
            G.load_state_dict(newest)
            G.requires_grad_(True)
            train, held_out = run.algorithm._split(client)  # type: ignore[attr-defined]
            if k in trained:
                x, y = held_out.batch(torch.arange(len(held_out)))
                f, g = F(x).detach(), G(x).detach()
                for _ in range(10):
                    for rows in split_batches(torch.arange(len(y)), 8):
                        share = torch.tensor(a[k], requires_grad=True)
                        cross_entropy(share * f[rows] + (1 - share) * g[rows], y[rows]).backward()
                        assert share.grad is not None
                        a[k] = min(1.0, max(0.0, a[k] - 0.1 * share.grad.item()))
            trained.add(k)
            optimisers = sgd(F), sgd(G)
            for x, y in shuffled_batches(client, train, range(2)):
                f, g = F(x), G(x)
                p, q = f.log_softmax(1), g.log_softmax(1)
                of_F = cross_entropy(f, y) + kl_div(p, q.detach().exp(), reduction="batchmean")
                of_G = cross_entropy(g, y) + kl_div(q, p.detach().exp(), reduction="batchmean")
                of_F = of_F + cross_entropy(a[k] * f + (1 - a[k]) * g.detach(), y)
                of_G = of_G + cross_entropy(a[k] * f.detach() + (1 - a[k]) * g, y)
                step(of_F + of_G, *optimisers)
            sent.append({name: tensor.detach().clone() for name, tensor in G.state_dict().items()})
            assert abs(seen[t][str(k)] - a[k]) < 1e-4
        newest = {name: torch.stack([tensors[name] for tensors in sent]).mean(0) for name in newest}
    assert any(0.1 < abs(share - 0.5) < 0.5 for share in a.values())
    for name, tensor in newest.items():
        assert torch.allclose(run.server.groups["all"][name], tensor, atol=1e-3), name
    expect(run, plain, "model.", "")
