"""Interrupted anywhere and resumed, a run gives the same bits."""

import hashlib
import itertools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save as to_bytes

from engine.kit import rng
from engine.methods import REGISTRY
from engine.records import RoundRecord
from engine.runtime import checkpoint as checkpoint_module
from engine.runtime.checkpoint import Budget, CheckpointDamaged, Checkpoints, LocalFiles, Saved, rounds_with_checkpoints
from engine.runtime.run import Run
from tests.engine.conftest import SpecMaker, records_of, same_results


def run_until(run: Run, checkpoints: Checkpoints, stop_after: int, every: int = 1) -> list[RoundRecord]:
    records = []
    for record, saved in rounds_with_checkpoints(run, checkpoints, every):
        records.append(record)
        if saved:
            checkpoints.prune()
        if record.round == stop_after:
            break
    return records


@pytest.mark.parametrize("method", list(REGISTRY))
@pytest.mark.parametrize("protocol", ["A", "B"])
def test_a_resumed_run_equals_an_undisturbed_one(
    method: str, protocol: str, small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = small_spec(method, rounds=5, evaluation={"protocol": protocol})
    records = run_until(Run(spec), Checkpoints(tmp_path), stop_after=2)
    snapshot = Checkpoints(tmp_path, writer="1").newest(spec.fingerprint())
    assert snapshot is not None
    assert snapshot.round == 2
    records += records_of(spec, resume_from=snapshot, threads=2)
    assert same_results(records, records_of(spec))


SHARED: dict[str, dict[str, Any]] = {
    "scaffold": {},
    "fedgen": {"full_fedgen": True},
    "fedkd": {"strict_wire": True, "small_model": "compfl-cnn"},
    "fedtgp": {},
    "feddbe": {},
    "fedarc": {},
    "compfl": {},
}
"""Methods whose server holds something beside its groups, and options with which it holds most."""

IN_FORMAT_1 = {"control": "control of {}", "generator": "generator {}", "adam": "adam generator {}"}


def to_format_1(folder: Path, saved: Saved) -> Saved:
    """The same checkpoint as an earlier version wrote it: what is shared stood among the groups."""
    state = Checkpoints(folder).load(saved.manifest, saved.sha256).server
    groups = {group: dict(tensors) for group, tensors in state.groups.items()}
    for name, held in state.shared.items():
        if name == "means":
            groups["means"] = {group: own["mean"] for group, own in held.items()}
        else:
            groups |= {IN_FORMAT_1.get(name, name).format(group): dict(own) for group, own in held.items()}
    manifest = json.loads((folder / saved.manifest).read_bytes())
    content = to_bytes({f"{group}|{name}": t.contiguous() for group, own in groups.items() for name, t in own.items()})
    (folder / "server.safetensors").write_bytes(content)
    entry = {"file": "server.safetensors", "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    text = json.dumps({**manifest, "format": 1, "groups": list(groups), "server": entry}).encode()
    (folder / "manifest.json").write_bytes(text)
    return Saved("manifest.json", hashlib.sha256(text).hexdigest(), saved.round)


@pytest.mark.parametrize("method", SHARED)
def test_a_run_continues_from_a_checkpoint_of_the_format_before(
    method: str, small_spec: SpecMaker, tmp_path: Path
) -> None:
    topology = "token-walk" if method == "compfl" else "server"
    spec = small_spec({"name": method, **SHARED[method]}, topology=topology)
    run, checkpoints = Run(spec), Checkpoints(tmp_path)
    records = list(itertools.islice(run.rounds(), 3))
    assert run.server.shared, "nothing to tell apart"
    old = to_format_1(tmp_path, checkpoints.save(run))
    resumed = Run(spec, resume_from=checkpoints.load(old.manifest, old.sha256))
    assert same_results(records + list(resumed.rounds()), records_of(spec))


def test_a_checkpoint_of_a_later_format_is_refused(small_spec: SpecMaker, tmp_path: Path) -> None:
    run = Run(small_spec())
    list(run.rounds())
    saved = Checkpoints(tmp_path).save(run)
    manifest = json.loads((tmp_path / saved.manifest).read_bytes())
    later = json.dumps({**manifest, "format": 3}).encode()
    (tmp_path / "later.json").write_bytes(later)
    with pytest.raises(CheckpointDamaged, match="has format 3, but this version reads 1 and 2"):
        Checkpoints(tmp_path).load("later.json", hashlib.sha256(later).hexdigest())


def test_rounds_after_an_older_checkpoint_are_computed_again(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=5)
    run_until(Run(spec), Checkpoints(tmp_path), stop_after=3, every=2)
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    assert snapshot is not None
    assert [record.round for record in records_of(spec, resume_from=snapshot)] == [3, 4, 5]


def test_a_second_interruption_resumes_from_files_of_two_writers(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=6, participation=0.34)
    records = run_until(Run(spec), Checkpoints(tmp_path, writer="1"), stop_after=2)
    for writer, stop in (("2", 4), ("3", 6)):
        checkpoints = Checkpoints(tmp_path, writer=writer)
        snapshot = checkpoints.newest(spec.fingerprint())
        records += run_until(Run(spec, resume_from=snapshot), checkpoints, stop_after=stop)
    assert same_results(records, records_of(spec))


def test_only_clients_that_changed_are_written_again(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=2, participation=0.34)
    checkpoints = Checkpoints(tmp_path, keep=5)
    records = run_until(Run(spec), checkpoints, stop_after=2)
    written = {path.name.split("-writer")[0] for path in tmp_path.glob("client-*")}
    assert written == {f"client-{k}-round-{record.round}" for record in records for k in record.cohort}


def test_pruning_keeps_the_last_two_checkpoints_and_nothing_else(small_spec: SpecMaker, tmp_path: Path) -> None:
    (tmp_path / "client-0-round-1-writer-0.safetensors.tmp").write_bytes(b"left over")
    run_until(Run(small_spec(rounds=4)), Checkpoints(tmp_path), stop_after=4)
    manifests = sorted(tmp_path.glob("manifest-*"))
    assert [json.loads(path.read_bytes())["round"] for path in manifests] == [3, 4]
    named = {path.name for path in manifests}
    for path in manifests:
        data = json.loads(path.read_bytes())
        named |= {data["server"]["file"], *(entry["file"] for entry in data["clients"].values())}
    assert {path.name for path in tmp_path.iterdir()} == named


def test_pruning_leaves_a_later_writers_files_alone(small_spec: SpecMaker, tmp_path: Path) -> None:
    successor = tmp_path / "client-0-round-1-writer-10.safetensors"
    successor.write_bytes(b"not named by a manifest yet")
    run_until(Run(small_spec(rounds=3)), Checkpoints(tmp_path, writer="9"), stop_after=3)
    assert successor.exists()


def test_what_was_saved_last_outlives_later_rounds_that_never_counted(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=6)
    for writer in ("1", "2"):
        run = Run(spec)
        checkpoints = Checkpoints(tmp_path, writer=writer)
        for record, _ in zip(run.rounds(), range(6), strict=False):
            if record.round == 5:
                checkpoints.save(run)
    third = Checkpoints(tmp_path, writer="3", keep=1)
    run_until(Run(spec), third, stop_after=2)
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    assert snapshot is not None
    assert snapshot.round == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "empty"])
@pytest.mark.parametrize("kind", ["client-*-round-2-*", "server-round-2-*", "manifest-round-000002-*"])
def test_a_damaged_file_is_noticed_and_the_checkpoint_before_is_taken(
    damage: str, kind: str, small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = small_spec(rounds=4)
    run_until(Run(spec), Checkpoints(tmp_path), stop_after=2)
    path = next(tmp_path.glob(kind))
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    else:
        flipped = bytes([content[len(content) // 2] ^ 1])
        path.write_bytes(
            {
                "flip": content[: len(content) // 2] + flipped + content[len(content) // 2 + 1 :],
                "truncate": content[: len(content) // 2],
                "empty": b"",
            }[damage]
        )
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    assert snapshot is not None
    assert snapshot.round == 1


def damage(path: Path, dice: random.Random) -> None:
    """One bit, half of it, or all of it."""
    content = bytearray(path.read_bytes())
    kind = dice.choice(["flip", "truncate", "delete"])
    if kind == "delete":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.chaos])])
def test_whatever_is_damaged_a_run_goes_on_with_the_same_bits(
    times: int, small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec, dice = small_spec("fedper", rounds=4), random.Random(times)
    run_until(Run(spec), Checkpoints(tmp_path / "whole"), stop_after=2)
    expected = records_of(spec)
    for number in range(times):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        damage(dice.choice(sorted(folder.iterdir())), dice)
        checkpoints = Checkpoints(folder, writer="2")
        snapshot = checkpoints.newest(spec.fingerprint())
        rest = []
        for record, _ in rounds_with_checkpoints(Run(spec, resume_from=snapshot), checkpoints, every=1):
            rest.append(record)
            checkpoints.prune()
        assert same_results(rest, expected[-len(rest) :])
        assert len(list(folder.glob("manifest-*"))) == 2, "two whole ones are kept, damaged ones are not counted"


def test_a_manifest_is_refused_when_its_own_checksum_differs(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=1)
    [*_, (_, saved)] = rounds_with_checkpoints(Run(spec), Checkpoints(tmp_path))
    assert saved is not None
    Checkpoints(tmp_path).load(saved.manifest, saved.sha256)
    with pytest.raises(CheckpointDamaged, match="checksum"):
        Checkpoints(tmp_path).load(saved.manifest, "0" * 64)


def test_a_checkpoint_of_another_spec_is_refused(small_spec: SpecMaker, tmp_path: Path) -> None:
    run_until(Run(small_spec()), Checkpoints(tmp_path), stop_after=1)
    other = small_spec(seed=99)
    assert Checkpoints(tmp_path).newest(other.fingerprint()) is None
    snapshot = Checkpoints(tmp_path).newest(small_spec().fingerprint())
    with pytest.raises(ValueError, match="belongs to spec"):
        Run(other, resume_from=snapshot)


def test_a_checkpoint_of_a_round_that_was_never_stored_is_left_out(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=4)
    run_until(Run(spec), Checkpoints(tmp_path), stop_after=2)
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint(), before=2)
    assert snapshot is not None
    assert snapshot.round == 1


def test_a_manifest_cannot_reach_outside_its_folder(small_spec: SpecMaker, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    folder = tmp_path / "experiment"
    folder.mkdir()
    with pytest.raises(CheckpointDamaged, match=r"secret\.json cannot be read"):
        Checkpoints(folder).load("../secret.json", "0" * 64)


def test_clients_beyond_the_memory_budget_live_on_disk_with_the_same_result(small_spec: SpecMaker) -> None:
    spec = small_spec(rounds=4)
    run = Run(spec, state_budget_bytes=1)
    assert same_results(list(run.rounds()), records_of(spec))
    assert run.federation.states.in_memory == 1
    assert len(run.federation.states.ids()) > 1


def test_clients_on_disk_reach_the_checkpoint(small_spec: SpecMaker, tmp_path: Path) -> None:
    spec = small_spec(rounds=4)
    records = run_until(Run(spec, state_budget_bytes=1), Checkpoints(tmp_path), stop_after=3, every=3)
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    records += records_of(spec, resume_from=snapshot, state_budget_bytes=1)
    assert same_results(records, records_of(spec))


@pytest.mark.parametrize("rounds", [24, 200, 1000])
@pytest.mark.parametrize("seconds_per_file", [0.001, 0.02, 0.03])
@pytest.mark.parametrize(("clients", "cohort", "round_seconds"), [(100, 10, 3.0), (10, 10, 3.0), (1000, 10, 3.0)])
def test_all_checkpoints_together_cost_five_per_cent_if_the_last_one_allows_it(
    rounds: int, seconds_per_file: float, clients: int, cohort: int, round_seconds: float
) -> None:
    budget = Budget(clients, cohort)
    seconds = spent = 0.0
    changed: set[int] = set()
    written = []
    for number in range(1, rounds + 1):
        seconds += round_seconds
        changed |= set(rng.numpy_generator(0, "cohort", number).permutation(clients)[:cohort].tolist())
        to_come = rounds - number
        if to_come == 0 or budget.allows(done=number, to_come=to_come, changed=len(changed), seconds=seconds):
            cost = seconds_per_file * (1 + len(changed))
            budget.book(done=number, changed=len(changed), seconds=cost)
            seconds += cost
            spent += cost
            written.append(number)
            changed.clear()
    last_alone = seconds_per_file * (1 + clients * (1 - (1 - cohort / clients) ** rounds))
    first = seconds_per_file * (1 + cohort)  # written to learn what a file costs
    assert spent <= max(0.05 * seconds, last_alone) + first
    if rounds == 1000 and clients <= 100:
        assert max(late - early for early, late in itertools.pairwise(written)) < rounds / 10


def test_the_manifest_appears_only_after_every_file_it_names(
    small_spec: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at any instant: every rename is one, and before each of them what is there must be readable."""
    spec = small_spec(rounds=2)
    rename, seen = Path.rename, []

    def checked(self: Path, target: Path) -> Path:
        snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
        seen.append(None if snapshot is None else snapshot.round)
        if target.name.startswith("manifest"):
            assert not [path for path in tmp_path.glob("*.tmp") if path != self]
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", checked)
    run_until(Run(spec), Checkpoints(tmp_path), stop_after=2)
    assert seen == [None] * 5 + [1] * 5  # three clients, the server and the manifest, twice


def test_everything_is_synced_before_it_gets_its_name(
    small_spec: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync, rename = os.fsync, Path.rename

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def checked(self: Path, target: Path) -> Path:
        assert self.name in synced
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", checked)
    run_until(Run(small_spec(rounds=1)), Checkpoints(tmp_path), stop_after=1)
    assert tmp_path.name in synced


def test_a_client_file_damaged_after_it_was_verified_is_noticed_when_it_is_needed(
    small_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = small_spec("fedper", rounds=4)
    run_until(Run(spec), Checkpoints(tmp_path), stop_after=2)
    snapshot = Checkpoints(tmp_path).newest(spec.fingerprint())
    assert snapshot is not None
    path = next(iter(snapshot.clients.values())).path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointDamaged, match="changed since it was written"):
        list(Run(spec, resume_from=snapshot).rounds())


@pytest.mark.parametrize("failing", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("again", [True, False], ids=["at once", "after the next round"])
def test_a_save_that_failed_half_way_is_repeated_and_whole(
    failing: int, again: bool, small_spec: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes whose sync failed may be lost: here they are, and all must be written anew."""
    spec = small_spec("fedper", rounds=4, participation=0.34)
    run, checkpoints = Run(spec), Checkpoints(tmp_path)
    rounds = run.rounds()
    list(itertools.islice(rounds, 3))  # rounds 0 to 2
    calls = itertools.count()
    sync = checkpoint_module._sync

    def failing_once(path: Path) -> None:
        if next(calls) == failing:
            raise OSError(5, "Input/output error")
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "_sync", failing_once)
        with pytest.raises(OSError, match="Input/output error"):
            checkpoints.save(run)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    if not again:
        next(rounds)
    saved = checkpoints.save(run)
    snapshot = Checkpoints(tmp_path).load(saved.manifest, saved.sha256)
    rest = records_of(spec, resume_from=snapshot)
    assert same_results(rest, records_of(spec)[-len(rest) :])


def test_pruning_deletes_nothing_while_a_manifest_cannot_be_read(
    small_spec: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    run_until(Run(small_spec(rounds=2)), checkpoints, stop_after=2)
    there = {path.name for path in tmp_path.iterdir()}

    def stale(_: LocalFiles, name: str) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(LocalFiles, "read", stale)
    with pytest.raises(OSError, match="Stale file handle"):
        checkpoints.prune()
    assert {path.name for path in tmp_path.iterdir()} == there
