"""What an experiment leaves behind beside its rounds."""

import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load
from sklearn.neighbors import NearestNeighbors

from engine.artifacts import ArtifactRequest, File, in_the_plane, made_by_itself, parse_request, picture_grid
from engine.methods import REGISTRY
from engine.methods.ditto import PERSONAL
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from engine.spec.problems import SpecError

DIGITS: dict[str, Any] = {
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "tiny-3"},
    "clients": 3,
    "rounds": 1,
    "training": {"epochs": 1, "batch_size": 64},
    "seed": 3,
}
FEW = {"samples": 4, "count": 3}


def spec_of(method: str | dict[str, Any], **changes: Any) -> ExperimentSpec:
    algorithm = {"name": method} if isinstance(method, str) else method
    return ExperimentSpec.parse({**DIGITS, "algorithm": algorithm, **changes})


def finished(spec: ExperimentSpec, **options: Any) -> Run:
    run = Run(spec, **options)
    list(run.rounds())
    return run


def make(run: Run, kind: str, **parameters: Any) -> list[File]:
    return parse_request(run.spec, kind, parameters).make(run)


def arrays(file: File) -> dict[str, Any]:
    with np.load(io.BytesIO(file.content)) as found:
        return dict(found)


@pytest.fixture(scope="module")
def pfedes() -> Run:
    return finished(spec_of("pfedes"))


@pytest.mark.parametrize("method", list(REGISTRY))
def test_every_method_has_features_that_its_answers_come_from(method: str) -> None:
    run = finished(spec_of(method))
    plane, vectors = make(run, "features", **FEW)
    document, found = json.loads(plane.content), arrays(vectors)
    assert np.isfinite(document["points"]).all()
    assert len(document["points"]) == len(document["label"]) == len(document["client"]) == 12
    assert document["label"] == run.dataset.labels[torch.tensor(document["sample"])].tolist()
    assert document["client"] == [0] * 4 + [1] * 4 + [2] * 4
    [panel] = document["panels"]
    assert found[f"features_{panel['width']}"].shape == (12, panel["width"])
    check_answers(run)


def check_answers(run: Run) -> None:
    """The head on top of the features gives the predictor's answer; FedAPEN and FedRoD answer with two heads."""
    method = run.spec.algorithm.name
    if method in {"fedapen", "fedrod"}:
        return

    def ask(client: Any, received: Any) -> None:
        run.algorithm.prepare(client, received)
        features, predictor = run.algorithm.features(client), run.algorithm.predictor(client)
        assert predictor is not None
        head = client.parts[PERSONAL].head if method == "ditto" else client.model.head
        client.model.eval()
        client.parts.eval()
        images, _ = next(client.test.in_order())
        with torch.no_grad():
            assert torch.equal(head(features(images)), predictor(images))

    run.query_clients(range(3), ask)


def test_the_same_request_gives_the_same_bytes_from_the_run_and_from_its_checkpoint(tmp_path: Any) -> None:
    spec = spec_of("pfedafm", rounds=2)
    run, checkpoints = Run(spec), Checkpoints(tmp_path)
    saved = [saved for _, saved in rounds_with_checkpoints(run, checkpoints)][-1]
    assert saved is not None
    again = Run(spec, resume_from=checkpoints.load(saved.manifest, saved.sha256))
    for kind in ("features", "weights"):
        assert make(run, kind) == make(again, kind)


def test_asking_changes_nothing_in_the_run() -> None:
    spec = spec_of("fedavg-ft", rounds=3)
    asked = Run(spec)
    records = []
    for record in asked.rounds():
        make(asked, "features", **FEW)
        records.append(record.without_times())
    assert records == [record.without_times() for record in Run(spec).rounds()]


def test_vectors_of_different_width_have_panels_of_their_own() -> None:
    run = finished(spec_of("fedavg"))
    narrow, wide = torch.nn.Linear(16, 3), torch.nn.Linear(16, 7)

    def features(client: Any) -> Any:
        return torch.nn.Sequential(client.model.body, narrow if client.id == 1 else wide)

    run.algorithm.features = features  # type: ignore[method-assign]
    plane, vectors = make(run, "features", samples=6, count=3)
    document = json.loads(plane.content)
    assert [(panel["width"], panel["points"]) for panel in document["panels"]] == [(3, 6), (7, 12)]
    assert document["panel"] == [1] * 6 + [0] * 6 + [1] * 6
    assert arrays(vectors)["features_7"].shape == (12, 7)


def test_the_plane_keeps_clusters_together() -> None:
    draws = np.random.default_rng(0)
    centres = 50 * draws.normal(size=(3, 8))
    vectors = (centres[:, None] + draws.normal(size=(3, 30, 8))).reshape(90, 8).astype(np.float32)
    points = in_the_plane(vectors, 10, 0)
    nearest = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points, return_distance=False)
    assert (nearest // 30 == np.repeat(np.arange(3), 30)[:, None]).all()


def test_equal_vectors_still_get_places_and_too_few_are_refused() -> None:
    assert np.isfinite(in_the_plane(np.zeros((10, 4), np.float32), 3, 0)).all()
    with pytest.raises(ValueError, match="at least 5 samples"):
        in_the_plane(np.zeros((4, 4), np.float32), 1, 0)


def test_enhanced_images_are_what_the_shared_proxy_makes_of_the_originals(pfedes: Run) -> None:
    picture, values = make(pfedes, "pictures", samples=2, clients=[0, 2])
    found = arrays(values)
    for client in (0, 2):
        rows = torch.from_numpy(found[f"client_{client}_sample"])
        assert np.array_equal(found[f"client_{client}_original"][:, 0], pfedes.dataset.images[rows][..., 0].numpy())

    def enhanced(client: Any, received: Any) -> Any:
        position = torch.tensor([client.test.index.tolist().index(row) for row in found["client_2_sample"]])
        images, _ = client.test.batch(position)
        pfedes.algorithm.receive(client, received)  # type: ignore[attr-defined]
        with torch.no_grad():
            return client.parts["proxy"](images).numpy()

    assert np.array_equal(pfedes.query_clients([2], enhanced)[0], found["client_2_enhanced"])
    with Image.open(io.BytesIO(picture.content)) as image:
        assert image.format == "PNG"
        assert image.width > image.height / 2


def test_the_grid_shows_originals_above_what_was_made_of_them() -> None:
    bright, dark = np.full((1, 3, 4, 4), 255, np.uint8), np.zeros((1, 3, 4, 4), np.uint8)
    with Image.open(io.BytesIO(picture_grid({0: {"original": bright, "enhanced": dark}}))) as image:
        column = np.asarray(image.convert("L"))[:, -40]
    assert column[40] == 255
    assert column[120] == 0


def test_only_a_method_that_makes_pictures_gets_them_by_itself() -> None:
    assert list(made_by_itself(spec_of("pfedes"))) == ["pictures"]
    assert made_by_itself(spec_of("fedavg")) == {}


@pytest.mark.parametrize(
    ("kind", "parameters", "field", "words"),
    [
        ("portrait", {}, "kind", "must be one of features, pictures, weights"),
        ("pictures", {}, "kind", "FedAvg makes no pictures"),
        ("features", {"clients": [0, 3]}, "parameters.clients", "from 0 to 2, but got [3]"),
        ("features", {"samples": 0}, "parameters.samples", "greater than or equal to 1"),
        ("features", {"colour": "red"}, "parameters.colour", "no field 'colour'"),
        ("features", {"samples": 1000, "clients": [0]}, None, ""),
        ("weights", {"clients": []}, "parameters.clients", "at least 1 item"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_its_field(
    kind: str, parameters: dict[str, Any], field: str | None, words: str
) -> None:
    if field is None:
        assert isinstance(parse_request(spec_of("fedavg"), kind, parameters), ArtifactRequest)
        return
    with pytest.raises(SpecError) as refused:
        parse_request(spec_of("fedavg"), kind, parameters)
    [problem] = refused.value.problems
    assert problem.field == field
    assert words in problem.message


def test_too_many_points_are_refused_before_anything_is_computed() -> None:
    with pytest.raises(SpecError, match="at most 5000, but got 10000"):
        parse_request(spec_of("fedavg", clients=10), "features", {"samples": 1000})


def test_the_weights_hold_the_first_network_of_each_architecture_or_those_of_named_clients() -> None:
    run = finished(spec_of("standalone", clients=4))
    [file] = make(run, "weights")
    names = {key.rsplit("/", 1)[0] for key in load(file.content)}
    assert names == {"client-0/tiny-mlp", "client-1/tiny-cnn", "client-2/tiny-bn"}
    [file] = make(run, "weights", clients=[3])
    assert {key.rsplit("/", 1)[0] for key in load(file.content)} == {"client-3/tiny-mlp"}
