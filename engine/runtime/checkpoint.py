"""The state of a run on disk: written atomically, verified when read, resumable to the bit.

One safetensors file holds the server, one each client that has taken part; a manifest names them all with their
checksums and carries its own in its name. Only clients that changed since the last checkpoint are written. A file
appears under its final name complete or not at all. The manifest comes after all files it names are there; these are
settled together, because a disk is quicker that way. Round and writer stand in every name, so a writer that lost its
lease can never overwrite its successor's files. Where the files lie is the caller's choice: see `Files`.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from engine.kit.contract import ServerState
from engine.kit.tensors import Tensors
from engine.records import RoundRecord
from engine.runtime.client_states import CheckpointDamaged, Snapshot, StateFile, contiguous
from engine.runtime.run import Run

__all__ = ["CheckpointDamaged", "Checkpoints", "Files", "LocalFiles", "Saved", "Snapshot", "rounds_with_checkpoints"]

FORMAT = 2
LARGEST_SHARE = 0.05
_BETWEEN = "|"  # shared name, which is empty for the groups themselves; group; tensor. No name or group contains it
_MANIFEST = re.compile(r"manifest-round-\d+-[0-9a-f]{64}-writer-[^/]*\.json")


@dataclass(frozen=True)
class Saved:
    """How to find a checkpoint again, and proof that it is the one."""

    manifest: str
    sha256: str
    round: int


class Files(Protocol):
    """Whole files in one flat place: a folder, or an object store that several hosts share."""

    def write(self, name: str, content: bytes) -> object:
        """The file need not be there before `settle`, and is never there in part."""

    def settle(self) -> None:
        """Afterwards all that was written is there, also after a power cut."""

    def read(self, name: str) -> bytes:
        """OSError: there is no such file, or it cannot be read."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None:
        """Nothing happens where there is no such file."""

    def fetch(self, name: str, content: bytes, /) -> Path:
        """The file on this machine's disk, for somebody who reads it later; `content` is what `read` gave.

        It stays as long as this object.
        """


class LocalFiles:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsettled: dict[str, None] = {}  # final names of files that still have their temporary one, in order

    def write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self._temporary(name)
        try:
            temporary.write_bytes(content)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk is not filled further by what did not fit
            raise
        self._unsettled[name] = None

    def settle(self) -> None:
        """fsync, rename, fsync of the folder. What an error leaves must be written again: its bytes may be lost."""
        names, self._unsettled = self._unsettled, {}
        for name in names:
            _sync(self._temporary(name))
            self._temporary(name).rename(self.folder / name)
        _sync(self.folder)

    def _temporary(self, name: str) -> Path:
        return self.folder / f"{name}.tmp"

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def fetch(self, name: str, _content: bytes, /) -> Path:
        return self.folder / name


class Checkpoints:
    """One experiment's checkpoints."""

    def __init__(self, files: Files | Path, *, writer: str = "0", keep: int = 2) -> None:
        """`writer` differs between two that may be at work at once; where it is a number, the later one has more."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, but got {keep}")
        self._files: Files = LocalFiles(files) if isinstance(files, Path) else files
        self.writer = writer
        self.keep = keep
        self._written: dict[int, dict[str, Any]] = {}  # client to the entry of its newest file
        self._saved: Saved | None = None

    def save(self, run: Run) -> Saved:
        """Write what changed and a manifest that names everything. What failed may be repeated."""
        saved = self._save(
            run.last_round, run.server, run.federation.changed(), run.spec.fingerprint(), run.environment
        )
        run.federation.note_checkpoint()
        return saved

    def adopt(self, other: Snapshot, fingerprint: str) -> Saved:
        """Copy what another experiment left, as a checkpoint of the spec with this fingerprint.

        The caller answers for it that both specs come to the same state after this round. CheckpointDamaged: a file of
        it is gone.
        """
        clients = ((client, file.read()) for client, file in other.clients.items())
        return self._save(other.round, other.server, clients, fingerprint, other.environment)

    def _save(
        self,
        number: int,
        state: ServerState,
        changed: Iterable[tuple[int, Mapping[str, Tensor]]],
        fingerprint: str,
        environment: Mapping[str, Any],
    ) -> Saved:
        written = dict(self._written)
        for client, tensors in changed:
            written[client] = self._write(f"client-{client}-round-{number}", to_bytes(contiguous(tensors)))
        parts = {"": state.groups, **state.shared}
        server = {
            _BETWEEN.join((part, group, name)): tensor
            for part, groups in parts.items()
            for group, tensors in groups.items()
            for name, tensor in contiguous(tensors).items()
        }
        server_entry = self._write(f"server-round-{number}", to_bytes(server))
        self._files.settle()
        manifest = {
            "format": FORMAT,
            "round": number,
            "fingerprint": fingerprint,
            "environment": environment,
            "server": server_entry,
            "groups": {part: list(groups) for part, groups in parts.items()},
            "clients": {str(client): entry for client, entry in sorted(written.items())},
        }
        content = json.dumps(manifest, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        entry = self._write(f"manifest-round-{number:06d}-{digest}", content, ".json")
        self._files.settle()
        self._written = written
        self._saved = Saved(entry["file"], digest, number)
        return self._saved

    def load(self, manifest: str, sha256: str) -> Snapshot:
        """Read a checkpoint and verify every file it names."""
        content = self._read({"file": manifest, "sha256": sha256})
        try:
            data = json.loads(content)
            if data["format"] not in (1, FORMAT):
                raise CheckpointDamaged(
                    f"{manifest} has format {data['format']}, but this version reads 1 and {FORMAT}"
                )
            read_server = _server if data["format"] == FORMAT else _server_of_format_1
            server = read_server(data["groups"], from_bytes(self._read(data["server"])), data["round"])
            clients = {int(client): entry for client, entry in data["clients"].items()}
            states = {k: StateFile(self._fetch(entry), entry["sha256"], self._files) for k, entry in clients.items()}
        except (KeyError, TypeError, ValueError, SafetensorError) as error:
            raise CheckpointDamaged(f"{manifest} is not a checkpoint: {error!r}") from error
        self._written = clients
        return Snapshot(
            round=data["round"],
            fingerprint=data["fingerprint"],
            server=server,
            clients=states,
            environment=data.get("environment", {}),
        )

    def newest(self, fingerprint: str, before: int | None = None) -> Snapshot | None:
        """The newest checkpoint of this spec that is whole; damaged ones are passed over.

        `before` leaves out rounds from that number on: written, but never stored by the one who wrote them.
        """
        for manifest in self._manifests():
            try:
                snapshot = self.load(manifest, _digest(manifest))
            except CheckpointDamaged:
                continue
            if snapshot.fingerprint == fingerprint and (before is None or snapshot.round < before):
                return snapshot
        return None

    def prune(self) -> None:
        """Delete what no kept manifest names. Call it only after the newest checkpoint counts.

        What this writer saved last is kept whatever else lies there: others may have written later rounds that never
        counted. Files of a later writer are left alone: it may be about to name them. OSError: not all could be read.
        """
        manifests = self._manifests()
        if self._saved is not None:
            counting = self._saved
            others = [name for name in manifests if name != counting.manifest and _round(name) <= counting.round]
            manifests = [counting.manifest, *others]
        named: set[str] = set()
        kept = 0
        for manifest in manifests:
            if kept == self.keep:
                break
            try:
                data = json.loads(self._read({"file": manifest, "sha256": _digest(manifest)}))
            except CheckpointDamaged as error:
                if (reason := out_of_reach(error)) is not None:
                    raise reason from None  # it may be whole, and then what it names must stay
                continue  # worth nothing, and not counted
            kept += 1
            named.add(manifest)
            named.add(data["server"]["file"])
            named.update(entry["file"] for entry in data["clients"].values())
        for name in self._files.names():
            if name not in named and not self._is_of_a_later_writer(name):
                self._files.remove(name)

    def _is_of_a_later_writer(self, name: str) -> bool:
        writer = name.rpartition("-writer-")[2].split(".")[0]
        return writer.isdecimal() and self.writer.isdecimal() and int(writer) > int(self.writer)

    def _manifests(self) -> list[str]:
        """Newest round first."""
        return sorted((name for name in self._files.names() if _MANIFEST.fullmatch(name)), reverse=True)

    def _write(self, stem: str, content: bytes, suffix: str = ".safetensors") -> dict[str, Any]:
        """Nothing counts before the files are settled."""
        name = f"{stem}-writer-{self.writer}{suffix}"
        self._files.write(name, content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}

    def _fetch(self, entry: Mapping[str, Any]) -> Path:
        return self._files.fetch(_plain(entry["file"]), self._read(entry))

    def _read(self, entry: Mapping[str, Any]) -> bytes:
        name = _plain(entry["file"])
        try:
            content = self._files.read(name)
        except OSError as error:
            raise CheckpointDamaged(f"{name} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise CheckpointDamaged(f"{name} does not have the checksum its manifest gives")
        return content


def _server(names: Mapping[str, Sequence[str]], tensors: Mapping[str, Tensor], round: int) -> ServerState:
    parts: dict[str, dict[str, Tensors]] = {part: {group: {} for group in groups} for part, groups in names.items()}
    for key, tensor in tensors.items():
        part, group, name = key.split(_BETWEEN, 2)
        parts[part][group][name] = tensor
    return ServerState(parts.pop(""), parts, round)


_SHARED_IN_FORMAT_1 = (
    (re.compile(r"control of (.+)"), "control"),
    (re.compile(r"adam generator (.+)"), "adam"),
    (re.compile(r"generator (.+)"), "generator"),
    (re.compile(r"(?:labels|anchor|network|base|update|model|holders)"), ""),
)
"""Format 1 had groups alone; what belongs to no client was told by the name of its group."""


def _server_of_format_1(names: Sequence[str], tensors: Mapping[str, Tensor], round: int) -> ServerState:
    old: dict[str, Tensors] = {group: {} for group in names}
    for key, tensor in tensors.items():
        group, name = key.split(_BETWEEN, 1)
        old[group][name] = tensor
    groups: dict[str, Tensors] = {}
    shared: dict[str, dict[str, Tensors]] = {}
    for group, content in old.items():
        matches = ((pattern.fullmatch(group), name) for pattern, name in _SHARED_IN_FORMAT_1)
        found = next(((match, name) for match, name in matches if match), None)
        if group == "means":  # one tensor for each architecture
            shared["means"] = {architecture: {"mean": mean} for architecture, mean in content.items()}
        elif found is None:
            groups[group] = content
        else:
            match, name = found
            shared.setdefault(name or group, {})[match[1] if name else "all"] = content
    return ServerState(groups, shared, round)


def out_of_reach(error: CheckpointDamaged) -> OSError | None:
    """Why a file could not be read that may be whole, and readable later; None: it is gone or damaged."""
    cause = error.__cause__
    return cause if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError) else None


def _plain(name: str) -> str:
    """A manifest cannot reach outside its folder."""
    return Path(name).name


def _round(manifest: str) -> int:
    return int(manifest.split("-")[2])


def _digest(manifest: str) -> str:
    return manifest.split("-")[3]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Budget:
    """Says after which rounds to write, so that the sum of all checkpoints stays within a share of the run's time.

    The last round is written whatever it costs. What that will probably be is set aside from the beginning; what is
    left of the share is spent evenly. A checkpoint guards the rounds before it during those that follow, so none is
    written when less is to come than it would guard.
    """

    def __init__(self, clients: int, cohort: int) -> None:
        self._clients = clients
        self._idle = 1 - cohort / clients  # probability that a client does not take part in a round
        self._spent = self._per_file = 0.0
        self._written_after = 0

    def allows(self, *, done: int, to_come: int, changed: int, seconds: float) -> bool:
        """Whether to write now: after so many rounds and seconds of this process, with so many clients changed."""
        if to_come < done - self._written_after:
            return False
        part = done / (done + to_come)
        will_change = self._clients * (1 - self._idle**to_come) if changed else 0  # expected, between now and the end
        last_one = self._per_file * (1 + will_change)
        allowance = LARGEST_SHARE * seconds - part * last_one  # part × (5 % of the whole run - the last one)
        return self._spent + self._per_file * (1 + changed) <= allowance

    def book(self, *, done: int, changed: int, seconds: float) -> None:
        """So many clients were written in so many seconds; the dearest file so far is what the next ones may cost."""
        self._spent += seconds
        self._per_file = max(self._per_file, seconds / (1 + changed))  # the server's file counts as one more
        self._written_after = done


class Saver(Protocol):
    """Who writes a checkpoint when it is time."""

    def save(self, run: Run) -> Saved | None:
        """None: none was written, and the run goes on without."""


def rounds_with_checkpoints(
    run: Run,
    checkpoints: Saver,
    every: int | None = None,
    is_last: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[RoundRecord, Saved | None]]:
    """Every record, with the checkpoint that was written right after it if there was one.

    `every` is in rounds; None writes as often as keeps the cost within five per cent of the time. The last round is
    always written, and so is the one after which `is_last` says that the caller will stop. The caller prunes once a
    checkpoint counts.
    """
    started = time.perf_counter()
    budget = Budget(run.spec.clients, run.setup.cohort)
    for done, record in enumerate(run.rounds(), start=1):
        now = time.perf_counter()
        changed, to_come = run.federation.changed_clients, run.spec.rounds - record.round
        if every is not None:
            due = record.round % every == 0
        else:
            due = budget.allows(done=done, to_come=to_come, changed=changed, seconds=now - started)
        saved = None
        if record.round > 0 and (due or to_come == 0 or is_last()):
            saved = checkpoints.save(run)
            budget.book(done=done, changed=changed, seconds=time.perf_counter() - now)
        yield record, saved
