"""The device layer: every tensor in its place, precision, compilation, memory."""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.artifacts import parse_request
from engine.data.client_dataset import ClientDataset
from engine.data.datasets import Dataset
from engine.kit.training import fit, supervised
from engine.methods import REGISTRY
from engine.runtime.checkpoint import Checkpoints, rounds_with_checkpoints
from engine.runtime.device import DeviceMemoryError, DeviceUnavailable, find_device
from engine.runtime.executor import ClientPool
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec
from tests.engine.conftest import SpecMaker, records_of, same_results
from tests.engine.pretend import ELSEWHERE, Mixed, NoEqualBits, There, pretending

FEW: dict[str, Any] = {
    "clients": 3,
    "participation": 1.0,
    "rounds": 2,
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 16, "channels": 1, "size": 16},
    "training": {"epochs": 1, "batch_size": 8, "lr": 0.05, "augment": True},
}
VARIED = {"fedavg", "fedtgp", "fedkd", "fedapen", "compfl", "pfedafm"}
"""Methods that differ most in what they keep and send; the others run under the mark `slow`."""


@pytest.mark.parametrize(
    "method", [name if name in VARIED else pytest.param(name, marks=pytest.mark.slow) for name in REGISTRY]
)
def test_every_tensor_of_a_run_is_on_its_device(method: str, small_spec: SpecMaker) -> None:
    spec = small_spec(method, **FEW)
    with pretending():
        elsewhere = records_of(spec, device="meta")
    assert same_results(elsewhere, records_of(spec))


def test_the_pretended_device_notices_a_tensor_in_the_wrong_place() -> None:
    with pretending():
        there = torch.ones(3).to(ELSEWHERE)
        assert (there + 1).sum().item() == 6
        with pytest.raises(Mixed):
            there + torch.ones(3)
        with pytest.raises(Mixed):
            there.uniform_(generator=torch.Generator())


def test_an_operation_without_equal_bits_on_a_gpu_is_noticed() -> None:
    with pretending():
        there = torch.ones(3).to(ELSEWHERE)
        with pytest.raises(NoEqualBits):
            there.cumsum(0)
        assert there.long().cumsum(0).tolist() == [1, 2, 3]


COLOURED = {"name": "synthetic", "classes": 4, "samples_per_class": 32, "channels": 3, "size": 16}


@pytest.mark.parametrize("transform", ["none", "a", "c"])
def test_a_step_of_training_waits_for_no_more_than_one_copy_to_the_device(
    transform: str, small_spec: SpecMaker
) -> None:
    spec = small_spec(**{**FEW, "dataset": {**COLOURED, "transform": transform}})
    with pretending() as transfers:
        run = Run(spec, device="meta")
        next(run.rounds())
        client, steps = run.federation.load(0, 1), 0
        objective, before = supervised(client.model), transfers.number

        def count() -> None:
            nonlocal steps
            steps += 1

        fit(client, objective, client.train, update=[client.model], epochs=3, after_step=count)
        assert 0 < transfers.number - before <= steps


def test_domainnets_images_are_augmented_after_one_copy_to_the_device() -> None:
    draws = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (40, 16, 16, 3), dtype=torch.uint8, generator=draws)
    labels = torch.arange(40) % 4

    def batches(device: str) -> list[Any]:
        whole = Dataset("domainnet", images.to(device), labels, 4, labels < 0)
        everyone = torch.arange(40)
        place = torch.device(device)
        samples = ClientDataset.of(whole, everyone, None, transform="b", augment=True, device=place)
        return list(samples.shuffled(8, torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)))

    expected = batches("cpu")
    with pretending() as transfers:
        found = batches("meta")
        assert transfers.number <= 1 + 1 + 2, "the set, the epoch, and mean and deviation once"
    for (x, y), (x_there, y_there) in zip(expected, found, strict=True):
        assert torch.equal(x, x_there.raw)
        assert torch.equal(y, y_there.raw)


@pytest.mark.parametrize("method", ["pfedes", "pfedafm"])
def test_artifacts_are_made_on_the_device_as_on_the_cpu(method: str, small_spec: SpecMaker) -> None:
    def made(run: Run, kind: str) -> list[Any]:
        list(run.rounds())
        return parse_request(run.spec, kind, {"samples": 6, "count": 3} if kind != "weights" else {}).make(run)

    for kind in ("features", "pictures", "weights") if method == "pfedes" else ("features", "weights"):
        with pretending():
            elsewhere = made(Run(small_spec(method, **FEW), device="meta"), kind)
        assert elsewhere == made(Run(small_spec(method, **FEW)), kind)


def test_no_gradients_are_kept_after_the_work_of_a_client(small_spec: SpecMaker) -> None:
    run = Run(small_spec("fedproto", **FEW))
    next(run.rounds())
    client = run.federation.load(0, 1)
    fit(client, supervised(client.model), client.train, update=[client.model])
    assert [name for name, weight in client.model.named_parameters() if weight.grad is not None] == []


def test_the_data_set_is_on_the_device_once_for_all_clients(small_spec: SpecMaker) -> None:
    with pretending():
        run = Run(small_spec(**FEW), device="meta")
        assert isinstance(run.dataset.images, There)
        assert not isinstance(run.dataset.labels, There)
        for _ in run.rounds():
            pass
        assert all(isinstance(tensor, There) for tensor in run.federation.states.get(0).values())


def test_a_checkpoint_from_the_cpu_goes_on_elsewhere(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec("scaffold", **{**FEW, "rounds": 3})
    for record, _ in rounds_with_checkpoints(Run(spec), Checkpoints(tmp_path), every=1):
        if record.round == 1:
            break
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    with pretending():
        rest = records_of(spec, device="meta", resume_from=snapshot)
    assert same_results(rest, records_of(spec)[2:])


def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    wanted = "cuda" if torch.cuda.is_available() else "cpu"
    assert find_device("auto").type == wanted


@pytest.mark.parametrize("wanted", ["cuda:63", "gpu"])
def test_a_device_that_is_not_there_is_refused_by_name(wanted: str, small_spec: SpecMaker) -> None:
    with pytest.raises(DeviceUnavailable, match=wanted):
        Run(small_spec(), device=wanted)


def test_mixed_precision_changes_little_and_is_written_down(small_spec: SpecMaker) -> None:
    spec = small_spec("fedproto", rounds=2)
    mixed = Run(spec, precision="bfloat16")
    assert mixed.environment["precision"] == "bfloat16"
    losses = [record.loss for record in mixed.rounds()][1:]
    exact = [record.loss for record in records_of(spec)][1:]
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.05)
    for tensors in (*mixed.server.groups.values(), mixed.federation.states.get(mixed.federation.states.ids()[0])):
        assert not [name for name, tensor in tensors.items() if tensor.dtype is torch.bfloat16]


def test_mixed_precision_gives_the_same_bits_in_threads(small_spec: SpecMaker) -> None:
    first, second = (records_of(small_spec("fedavg"), precision="bfloat16", threads=threads) for threads in (1, 3))
    assert same_results(first, second)


@pytest.mark.slow
def test_compiled_steps_learn_the_same(small_spec: SpecMaker) -> None:
    spec = small_spec("fedproto", rounds=2)
    run = Run(spec, compile=True, threads=2)
    if not run.compute.compiles:
        pytest.skip(f"torch.compile does not work here: {run.compute.why_not_compiled}")
    assert run.environment["compile"] == "on"
    for compiled, plain in zip(run.rounds(), records_of(spec), strict=True):
        assert plain.loss is None or compiled.loss == pytest.approx(plain.loss, rel=1e-3)
        assert compiled.client_flops == plain.client_flops


def test_without_a_compiler_nothing_is_compiled_and_everybody_is_told(
    small_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no g++
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    assert shutil.which("g++") is None
    torch.compiler.reset()
    spec = small_spec("fedavg", rounds=1)
    run = Run(spec, compile=True)
    assert same_results(list(run.rounds()), records_of(spec))
    assert str(run.environment["compile"]).startswith("off: ")
    assert "torch.compile does not work here" in caplog.text


def test_exhausted_memory_says_what_to_do(small_spec: SpecMaker) -> None:
    def no_room() -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines.")

    run = Run(small_spec(), should_stop=no_room, stacked="on")
    with pytest.raises(DeviceMemoryError, match=re.escape("cpu has no memory left while working on round 1")) as caught:
        list(run.rounds())
    for words in ("Tried to allocate 2.00 GiB", "switch stacked clients off", "smaller training.batch_size"):
        assert words in str(caught.value)


def test_every_piece_of_a_threads_work_is_inside_its_stream() -> None:
    inside: list[bool] = []
    open_streams: set[int] = set()

    @contextmanager
    def stream() -> Iterator[None]:
        open_streams.add(threading.get_ident())
        yield
        open_streams.remove(threading.get_ident())

    def work(job: int) -> int:
        inside.append(threading.get_ident() in open_streams)
        return job

    pool = ClientPool(3, stream)
    assert pool.map(work, range(9), float) == list(range(9))
    pool.close()
    assert inside == [True] * 9
    assert not open_streams


def test_the_environment_names_everything_the_bits_depend_on(small_spec: SpecMaker) -> None:
    spec: ExperimentSpec = small_spec()
    assert Run(spec).environment == {
        "device": "cpu",
        "precision": "float32",
        "compile": "off",
        "stacked": "off",
        "torch": torch.__version__,
        "torch_threads": 1,
        "memory_format": "channels_last",
    }
