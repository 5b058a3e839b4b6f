"""Class tables: one vector for each class somebody knows, be it the mean feature (a prototype) or the mean logits.

A table travels as {"classes": (m,) ids, "means": (m, d), "counts": (m,) samples}; ids and counts are side information.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.kit.contract import Client, Payload, Predictor, Upload
from engine.kit.tensors import Tensors
from engine.kit.training import Objective, forward_pass

TABLE = {"classes", "means", "counts"}


def is_table(payload: Payload) -> bool:
    """Whether a message is a table of classes, in which every row stands for itself."""
    return payload.keys() == TABLE


class ClassMeans:
    """Adds up vectors by class and makes their means; the first `skip` samples do not count."""

    def __init__(self, classes: int, skip: int = 0) -> None:
        self.classes = classes
        self.skip = skip
        self.sums: Tensor | None = None  # (L, d), in double precision
        self.counts = torch.zeros(classes, dtype=torch.int64)

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        """Vectors (B, d) with their classes (B,); a batch counts as a whole or not at all."""
        if self.skip > 0:
            self.skip -= len(labels)
            return
        if self.sums is None:
            self.sums = vectors.new_zeros(self.classes, vectors.shape[1], dtype=torch.float64)
        self.sums.index_add_(0, labels, vectors.detach().double())
        self.counts += torch.bincount(labels, minlength=self.classes).to(self.counts.device)

    def table(self) -> Tensors:
        """The classes that occurred, in ascending order."""
        if self.sums is None:
            raise ValueError("a table needs at least one sample, but none was added")
        classes = self.counts.nonzero().flatten().to(self.sums.device)
        counts = self.counts.to(self.sums.device)[classes]
        return {"classes": classes, "means": (self.sums[classes] / counts[:, None]).float(), "counts": counts}


class ClassTable(nn.Module):
    """The server's table as a client holds it during a round."""

    rows: Tensor  # (L, d)
    known: Tensor  # (L,)

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(classes, width))
        self.register_buffer("known", torch.zeros(classes, dtype=torch.bool))

    def load(self, received: Payload) -> None:
        self.rows.zero_()
        self.known.zero_()
        if received:
            classes = received["classes"].to(self.rows.device)
            self.rows[classes] = received["means"].to(self.rows.device)
            self.known[classes] = True

    def mean_over_batch(self, terms: Tensor, y: Tensor) -> Tensor:
        """Samples (B,) whose class the table does not know count as 0; the mean still divides by B."""
        return (terms * self.known[y]).mean()

    def distance(self, z: Tensor, y: Tensor) -> Tensor:
        """MSE(z, p̄_y): mean over batch and dimensions."""
        return self.mean_over_batch((z - self.rows[y]).square().mean(1), y)

    def nearest(self, body: nn.Module, candidates: Sequence[int]) -> Predictor | None:
        """Answer with the closest row among the candidates; None while there is none to choose."""
        allowed = torch.zeros_like(self.known)
        allowed[list(candidates)] = True
        allowed &= self.known
        if not allowed.any():
            return None
        return lambda x: (-distances(body(x), self.rows)).masked_fill(~allowed, -torch.inf)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """‖a - b‖₂, (A, d) and (B, d) to (A, B), by difference: expanded squares give 0.4 for 0 at d = 512 in float32."""
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


def prototypes(client: Client) -> Tensors:
    """p_{k,c}: mean feature of the client's own samples of class c, by one pass with the body as it is now."""
    body, means = client.model.body, ClassMeans(client.setup.classes)
    features = forward_pass(client, body, client.train, forward=[body])
    means.add(features, client.train.labels.to(features.device))
    return means.table()


def pulled_to(
    table: ClassTable, client: Client, λ: float, observe: Callable[[Tensor, Tensor], None] | None = None
) -> Objective:
    """CE(h_k(z), y) + λ·MSE(z, p̄_y) with z = f_k(x); `observe` sees every z and y."""
    f, h = client.model.body, client.model.head
    pulls = λ > 0 and bool(table.known.any())

    def objective(x: Tensor, y: Tensor) -> Tensor:
        z = f(x)
        if observe is not None:
            observe(z, y)
        loss = cross_entropy(h(z), y)
        return loss + λ * table.distance(z, y) if pulls else loss

    return objective


def all_rows(uploads: Sequence[Upload]) -> Tensors:
    """The rows of all tables sent, each with its sender, in the order of the uploads."""
    rows = {name: torch.cat([upload.payload[name] for upload in uploads]) for name in ("classes", "means", "counts")}
    rows["senders"] = torch.cat([torch.full_like(upload.payload["classes"], upload.client) for upload in uploads])
    return rows


def mean_rows(rows: Mapping[str, Tensor], *, by_size: bool = False) -> Tensors:
    """One row a class, ascending: the plain mean of its rows, or the mean weighted by their samples."""
    classes, place = torch.unique(rows["classes"], return_inverse=True)
    amounts = rows["counts"].double() if by_size else torch.ones_like(place, dtype=torch.float64)
    totals = amounts.new_zeros(len(classes)).index_add_(0, place, amounts)
    weighted = (amounts / totals[place])[:, None] * rows["means"].double()
    means = weighted.new_zeros(len(classes), weighted.shape[1]).index_add_(0, place, weighted)
    return {"classes": classes, "means": means.float()}


def keep_missing(old: Payload, new: Tensors) -> Tensors:
    """The new rows, and the old ones of every class that has no new one, in ascending order of class."""
    if not old:
        return new
    before = {name: old[name].to(tensor.device) for name, tensor in new.items()}
    missing = ~torch.isin(before["classes"], new["classes"])
    order = torch.cat([new["classes"], before["classes"][missing]]).argsort(stable=True)
    return {name: torch.cat([tensor, before[name][missing]])[order] for name, tensor in new.items()}
