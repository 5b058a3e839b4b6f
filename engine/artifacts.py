"""What an experiment can leave behind beside its rounds: features in the plane, pictures, and trained networks.

Everything is made from the state after the last round, each client with its own tensors and the newest download, as
protocol B tests it. Nothing is drawn from the experiment's own generators, so asking changes no result.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors.torch import save
from torch import Tensor

from engine.data.client_dataset import ClientDataset
from engine.kit import rng
from engine.kit.contract import Algorithm, Client, Payload
from engine.kit.tensors import copy_tensors
from engine.methods import REGISTRY
from engine.models import SplitModel
from engine.runtime.client_states import contiguous
from engine.runtime.pretrained import network_key
from engine.spec.experiment import ExperimentSpec
from engine.spec.frozen import Frozen
from engine.spec.problems import Problem, SpecError, explained

if TYPE_CHECKING:
    from engine.runtime.run import Run

POINT_LIMIT = 5000
FEWEST_POINTS = 5
TILE_PIXELS, GAP_PIXELS, LABEL_PIXELS = 72, 6, 120

Array = NDArray[Any]


@dataclass(frozen=True)
class File:
    """One file of an artifact. The first of several has the artifact's own kind."""

    kind: str
    name: str
    media_type: str
    content: bytes


class ArtifactRequest(Frozen):
    """What is wanted of a finished experiment."""

    kind: ClassVar[str]
    clients: tuple[int, ...] | None = Field(
        None, min_length=1, max_length=1000, description="These clients; null: chosen for you"
    )

    @abstractmethod
    def make(self, run: "Run") -> list[File]:
        """From a run that stands after its last round."""

    def problems(self, spec: ExperimentSpec) -> list[Problem]:
        """Why this experiment cannot have it."""
        strangers = [client for client in self.clients or () if not 0 <= client < spec.clients]
        message = f"must be ids from 0 to {spec.clients - 1}, but got {strangers[:1]}"
        return [Problem("clients", message, list(self.clients or ()))] if strangers else []


class WeightsRequest(ArtifactRequest):
    """Trained networks as safetensors, of the clients named or of the first client of each architecture."""

    kind = "weights"

    def make(self, run: "Run") -> list[File]:
        architectures = run.setup.architectures
        first = sorted(architectures.index(name) for name in set(architectures))
        chosen = first if self.clients is None else sorted(set(self.clients))

        def network(client: Client, received: Payload) -> dict[str, Tensor]:
            """The one that answers, where a method has several."""
            run.algorithm.prepare(client, received)
            predictor = run.algorithm.predictor(client)
            model = predictor if isinstance(predictor, SplitModel) else client.model
            return {
                network_key(client.id, model.architecture, name): tensor.cpu()
                for name, tensor in copy_tensors(model).items()
            }

        tensors = {name: tensor for found in run.query_clients(chosen, network) for name, tensor in found.items()}
        content = save(contiguous(tensors))  # no metadata: its order is random, and the file is named by its content
        return [File("weights", "weights.safetensors", "application/octet-stream", content)]


class SamplesRequest(ArtifactRequest):
    """Clients and samples to look at, drawn by a seed of their own."""

    count: int = Field(10, ge=1, le=1000, description="How many clients, drawn by the seed, where none is named")
    samples: int = Field(50, ge=1, le=1000, description="Samples of each client, drawn by the seed")
    part: Literal["test", "train"] = Field("test", description="From which of the client's samples")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Decides which clients and samples, and the layout")

    def chosen(self, clients: int) -> list[int]:
        if self.clients is not None:
            return sorted(set(self.clients))
        order = torch.randperm(clients, generator=rng.generator(self.seed, "artifact clients"))
        return sorted(order[: self.count].tolist())

    def drawn(self, client: Client) -> ClientDataset:
        samples = client.test if self.part == "test" else client.train
        order = torch.randperm(len(samples), generator=rng.generator(self.seed, "artifact samples", client.id))
        return samples.subset(order[: self.samples].sort().values)


class FeaturesRequest(SamplesRequest):
    """The vectors a method answers from, and their t-SNE in the plane."""

    kind = "features"
    perplexity: float = Field(30.0, ge=2, le=1000, description="t-SNE: about how many neighbours count; less for few")

    def problems(self, spec: ExperimentSpec) -> list[Problem]:
        number = self.samples * len(self.chosen(spec.clients))
        if number > POINT_LIMIT:
            message = f"clients times samples must be at most {POINT_LIMIT}, but got {number}: take fewer of either"
            return [*super().problems(spec), Problem("samples", message, self.samples)]
        return super().problems(spec)

    def make(self, run: "Run") -> list[File]:
        chosen = self.chosen(run.spec.clients)

        def look(client: Client, received: Payload) -> tuple[Tensor, Tensor]:
            run.algorithm.prepare(client, received)
            drawn = self.drawn(client)
            return _over(client, run.algorithm.features(client), drawn).flatten(1).cpu(), drawn.index

        found = run.query_clients(chosen, look)
        rows = torch.cat([index for _, index in found])
        client_of = [client for client, (vectors, _) in zip(chosen, found, strict=True) for _ in vectors]
        label = run.dataset.labels[rows]
        # vectors of different width cannot be compared, so every width has a panel of its own
        widths = sorted({vectors.shape[1] for vectors, _ in found})
        panel = [widths.index(vectors.shape[1]) for vectors, _ in found for _ in vectors]
        points, panels = np.zeros((len(panel), 2)), []
        arrays: dict[str, Array] = {
            "label": label.numpy(),
            "client": np.array(client_of),
            "sample": rows.numpy(),
            "panel": np.array(panel),
        }
        for number, width in enumerate(widths):
            vectors = torch.cat(
                [found_vectors for found_vectors, _ in found if found_vectors.shape[1] == width]
            ).numpy()
            perplexity = min(self.perplexity, (len(vectors) - 1) / 3)
            points[arrays["panel"] == number] = in_the_plane(vectors, perplexity, self.seed)
            panels.append({"width": width, "points": len(vectors), "perplexity": perplexity})
            arrays[f"features_{width}"] = vectors
        document = {
            "algorithm": run.spec.algorithm.name,
            "fingerprint": run.spec.fingerprint(),
            "round": run.last_round,
            "parameters": self.model_dump(mode="json"),
            "classes": run.dataset.classes,
            "architectures": {str(client): run.setup.architectures[client] for client in chosen},
            "panels": panels,
            "points": [[round(x, 4), round(y, 4)] for x, y in points.tolist()],
            **{name: arrays[name].tolist() for name in ("label", "client", "sample", "panel")},
        }
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        return [
            File("features", "features.json", "application/json", text.encode()),
            File("feature-vectors", "features.npz", "application/octet-stream", _npz(arrays)),
        ]


class PicturesRequest(SamplesRequest):
    """Images of clients above what the method makes of them."""

    kind = "pictures"
    count: int = Field(4, ge=1, le=50, description="How many clients, drawn by the seed")
    samples: int = Field(8, ge=1, le=50, description="Samples of each client, drawn by the seed")

    def problems(self, spec: ExperimentSpec) -> list[Problem]:
        if not makes_pictures(spec):
            title = REGISTRY[spec.algorithm.name].method.title
            return [Problem("kind", f"{title} makes no pictures; ask for features or weights", self.kind)]
        return super().problems(spec)

    def make(self, run: "Run") -> list[File]:
        chosen = self.chosen(run.spec.clients)

        def look(client: Client, received: Payload) -> dict[str, Array]:
            run.algorithm.prepare(client, received)
            drawn = self.drawn(client)
            original = run.dataset.images[drawn.index].permute(0, 3, 1, 2).cpu()
            made = {name: _over(client, path, drawn).cpu() for name, path in run.algorithm.pictures(client).items()}
            rows = {"original": original, **made, "label": run.dataset.labels[drawn.index], "sample": drawn.index}
            return {name: tensor.contiguous().numpy() for name, tensor in rows.items()}

        found = dict(zip(chosen, run.query_clients(chosen, look), strict=True))
        arrays = {f"client_{client}_{name}": array for client, rows in found.items() for name, array in rows.items()}
        return [
            File("pictures", "pictures.png", "image/png", picture_grid(found)),
            File("picture-values", "pictures.npz", "application/octet-stream", _npz(arrays)),
        ]


REQUESTS: Mapping[str, type[ArtifactRequest]] = {
    request.kind: request for request in (FeaturesRequest, PicturesRequest, WeightsRequest)
}


def parse_request(spec: ExperimentSpec, kind: str, parameters: Any) -> ArtifactRequest:
    """Every problem comes as in a spec, below `parameters`."""
    if kind not in REQUESTS:
        known = ", ".join(REQUESTS)
        raise SpecError((Problem("kind", f"must be one of {known}, but got {kind!r}", kind),))
    try:
        request = REQUESTS[kind].model_validate(parameters)
        problems = request.problems(spec)
    except ValidationError as error:
        problems = list(explained(error.errors(include_url=False)))
    if problems:
        raise SpecError(tuple(_below_parameters(problem) for problem in problems))
    return request


def makes_pictures(spec: ExperimentSpec) -> bool:
    return REGISTRY[spec.algorithm.name].pictures is not Algorithm.pictures


def made_by_itself(spec: ExperimentSpec) -> dict[str, dict[str, Any]]:
    """Kinds and parameters of what every finished experiment of this spec gets without being asked."""
    return {"pictures": PicturesRequest().model_dump(mode="json")} if makes_pictures(spec) else {}


def in_the_plane(vectors: Array, perplexity: float, seed: int) -> Array:
    """t-SNE, (n, d) to (n, 2): one thread, because the order of a sum changes its last bits."""
    from sklearn.manifold import TSNE  # takes a second
    from threadpoolctl import threadpool_limits

    if len(vectors) < FEWEST_POINTS:
        raise ValueError(f"t-SNE needs at least {FEWEST_POINTS} samples of one feature width, but got {len(vectors)}")
    spread = vectors.shape[1] > 1 and bool(vectors.std(0).max() > 0)
    layout = TSNE(perplexity=perplexity, init="pca" if spread else "random", random_state=seed, n_jobs=1)
    with threadpool_limits(1):
        points: Array = layout.fit_transform(vectors)
    return points


def picture_grid(clients: Mapping[int, Mapping[str, Array]]) -> bytes:
    """A PNG: for each client a row of originals and under it a row for each thing made of them.

    Values without a fixed range are stretched to it, every image on its own.
    """
    from PIL import Image, ImageDraw

    kinds = [name for name in next(iter(clients.values())) if name not in {"label", "sample"}]
    columns = max(len(rows["original"]) for rows in clients.values())
    step = TILE_PIXELS + GAP_PIXELS
    height = len(clients) * (len(kinds) * step + GAP_PIXELS) + GAP_PIXELS
    sheet = Image.new("RGB", (LABEL_PIXELS + columns * step, height), "white")
    pen = ImageDraw.Draw(sheet)
    top = GAP_PIXELS
    for client, rows in clients.items():
        for position, kind in enumerate(kinds):
            flat = len(np.unique(rows[kind])) == 1  # such as the output of a dead ReLU
            title = f"client {client}\n{kind}" if position == 0 else f"{kind}\n(constant)" if flat else kind
            pen.text((GAP_PIXELS, top + TILE_PIXELS / 2), title, fill="black", anchor="lm")
            for column, image in enumerate(rows[kind]):
                tile = Image.fromarray(_pixels(image)).resize((TILE_PIXELS, TILE_PIXELS), Image.Resampling.NEAREST)
                sheet.paste(tile, (LABEL_PIXELS + column * step, top))
            top += step
        top += GAP_PIXELS
    file = BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def _pixels(image: Array) -> Array:
    """(C, H, W) to (H, W, 3) of bytes; a grey image has three equal channels, a third one is made up for two."""
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (255 * (image - low) / (high - low if high > low else 1)).round().astype(np.uint8)
    channels = image[[0, 1, 2] if len(image) >= 3 else [0, 0, 0] if len(image) == 1 else [0, 1, 1]]
    return np.ascontiguousarray(channels.transpose(1, 2, 0))


def _over(client: Client, path: Any, samples: ClientDataset) -> Tensor:
    for module in (client.model, client.parts):
        module.eval()
    with torch.no_grad():
        return torch.cat([path(images) for images, _ in samples.in_order()])


def _npz(arrays: Mapping[str, Array]) -> bytes:
    file = BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _below_parameters(problem: Problem) -> Problem:
    if problem.field == "kind":
        return problem
    field = f"parameters.{problem.field}" if problem.field else "parameters"
    return Problem(field, problem.message, problem.value)
