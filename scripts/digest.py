"""Digests of what small experiments compute, to see whether a change of the code changes a bit.

`scripts/digest.py before.json` writes them, `scripts/digest.py --against before.json` names what differs. Every method
runs on two threads, is stopped in the middle and continues from its checkpoint; the digests are of all records without
their times and of the last checkpoint's tensors. Bits depend on the machine: compare on one.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from engine.methods import REGISTRY
from engine.records import RoundRecord
from engine.runtime.checkpoint import Checkpoints
from engine.runtime.run import Run
from engine.spec.experiment import ExperimentSpec

SMALL: dict[str, Any] = {
    "dataset": {"name": "synthetic", "classes": 4, "samples_per_class": 40, "channels": 3, "size": 16},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "tiny-3"},
    "clients": 6,
    "participation": 0.5,
    "rounds": 4,
    "training": {"epochs": 2, "batch_size": 8, "lr": 0.05, "augment": True},
    "seed": 7,
}
STOPS_AFTER = 2
"""The round after which a run is stopped and another one continues."""


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """A title and what differs from SMALL."""
    everything = {"classes": 4, "samples_per_class": 40, "channels": 3, "size": 32}
    deep = {"dataset": {"name": "synthetic", **everything}, "models": {"family": "resnet18"}, "rounds": 3}
    for name in REGISTRY:
        for protocol in "ABC":
            yield f"{name}, protocol {protocol}", {"algorithm": {"name": name}, "evaluation": {"protocol": protocol}}
    for topology in ("token-walk", "gossip"):
        yield f"compfl, {topology}", {"algorithm": {"name": "compfl"}, "topology": topology}
    for name in ("fedproto", "pfedes", "fedarc", "fedkd"):
        training = {**SMALL["training"], "recalibrate_below": 1000}
        yield f"{name}, batch norm", {"algorithm": {"name": name}, "training": training, **deep}
    for name in ("standalone", "fedavg"):
        yield f"{name}, dropout", {"algorithm": {"name": name}, **deep, "models": {"family": "googlenet"}}
    for schedule in ("cosine", "exponential"):
        training = {**SMALL["training"], "schedule": schedule, "momentum": 0.9, "clip": 1.0}
        yield f"fedavg, {schedule}", {"algorithm": {"name": "fedavg"}, "training": training}
    for labels in ("independent", "permuted"):
        partition = {**SMALL["partition"], "labels": labels}
        yield f"compfl, {labels} labels", {"algorithm": {"name": "compfl"}, "partition": partition}
    for name, more in (
        ("practical", {}),
        ("dirichlet", {}),
        ("balanced", {"classes_per_client": 2, "local_size": 20}),
        ("dirichlet-mix", {"local_size": 20}),
        ("iid", {}),
    ):
        yield f"standalone, {name}", {"algorithm": {"name": "standalone"}, "partition": {"name": name, **more}}


def digest(spec: ExperimentSpec) -> dict[str, str]:
    """Of the records and of the tensors, whatever they are called."""
    with TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        first = Run(spec, threads=2)
        records = []
        for record in first.rounds():
            records.append(record)
            if record.round == STOPS_AFTER:
                saved = checkpoints.save(first)
                break
        second = Run(spec, threads=2, resume_from=checkpoints.load(saved.manifest, saved.sha256))
        records += second.rounds()
        saved = checkpoints.save(second)
        snapshot = checkpoints.load(saved.manifest, saved.sha256)
        server = sorted(_of(tensor) for tensor in snapshot.server.tensors())
        clients = [
            [client, sorted(_of(tensor) for tensor in file.read().values())]
            for client, file in sorted(snapshot.clients.items())
        ]
    return {
        "fingerprint": spec.fingerprint(),
        "records": _short([_said(record) for record in records]),
        "tensors": _short([server, clients]),
    }


def _said(record: RoundRecord) -> dict[str, Any]:
    """What is not empty, so that a new field of the record changes nothing where it has no value."""
    return {name: value for name, value in record.without_times().items() if value not in (None, [], {})}


def _of(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous()
    return _short([list(content.shape), str(content.dtype), hashlib.sha256(content.numpy().tobytes()).hexdigest()])


def _short(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="where to write the digests")
    parser.add_argument("--against", type=Path, help="digests that were written before")
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else {}
    digests = {}
    for title, changes in cases():
        digests[title] = digest(ExperimentSpec.parse({**SMALL, **changes}))
        differs = [key for key, value in digests[title].items() if before and before.get(title, {}).get(key) != value]
        print(title, *digests[title].values(), *(["DIFFERS:", *differs] if differs else []), flush=True)
    if options.file:
        options.file.write_text(json.dumps(digests, indent=1) + "\n")
    unequal = [title for title, value in digests.items() if before.get(title) != value]
    if options.against:
        raise SystemExit(f"{len(unequal)} of {len(digests)} differ: {', '.join(unequal)}" if unequal else 0)


if __name__ == "__main__":
    main()
