"""Finished experiments put straight into a store: pages can be tested in seconds, without training."""

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from app.store import experiments, lifecycle, queue, rounds
from app.store.claims import Claim
from app.store.database import Database
from app.store.plan import Plan
from app.store.tables import Round
from engine.records import RoundRecord, headline
from engine.spec.experiment import ExperimentSpec

LEASE_SECONDS = 100.0
"""Lease of experiments that only seem to run: long enough for a test, and no longer than a real claim can last, or the
product's own worker would take them over and train."""

FIRST_IN_LINE = 1_000_000
"""Priority while `put` claims its own row. It is beyond what a user can ask for: an experiment of an earlier test whose
lease has run out is due again, and must not be claimed in place of the new one."""

SPEC: dict[str, Any] = {
    "algorithm": {"name": "fedavg"},
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "cnn-5"},
    "clients": 10,
    "rounds": 40,
    "training": {"epochs": 1, "batch_size": 32, "lr": 0.05, "augment": False},
    "seed": 42,
}

COSTS = {
    # end accuracy, rounds until two thirds of it, bytes a client and round, FLOPs a client and round
    "pfedafm": (0.884, 9, 260_000, 61e6),
    "pfedes": (0.861, 12, 3_544, 58e6),
    "fedarc": (0.902, 10, 262_000, 66e6),
    "compfl": (0.872, 7, 410_000, 80e6),
    "standalone": (0.835, 6, 0, 40e6),
    "fedavg": (0.792, 16, 1_900_000, 40e6),
}


def shape(method: str) -> tuple[float, float, int, float]:
    """The typical run of a method; one that is not listed gets a shape that follows from its name."""
    if method in COSTS:
        return COSTS[method]
    dice = random.Random(method)
    return dice.uniform(0.70, 0.88), dice.uniform(5, 20), int(10 ** dice.uniform(4, 6.5)), dice.uniform(4e7, 1.2e8)


def run(spec: Mapping[str, Any], *, lift: float = 0.0) -> list[RoundRecord]:
    """A run as an experiment would hand it in, the same for the same spec; `lift` raises its accuracy."""
    method, seed, clients = spec["algorithm"]["name"], spec["seed"], spec["clients"]
    end, pace, bytes_each, flops_each = shape(method)
    dice = random.Random(f"{method} {seed} {lift}")
    skill = random.Random(f"clients of {seed}")
    offsets = [skill.gauss(0, 0.06) for _ in range(clients)]
    own = [dice.gauss(0, 0.025) for _ in range(clients)]
    luck = dice.gauss(0, 0.008)
    records = []
    for number in range(spec["rounds"] + 1):
        level = (end + lift + luck) * (1 - math.exp(-1.1 * number / pace)) + 0.1 * math.exp(-1.1 * number / pace)
        tested = [
            round(min(1.0, max(0.0, level + offsets[k] + own[k] + dice.gauss(0, 0.006))), 4) for k in range(clients)
        ]
        records.append(
            RoundRecord(
                round=number,
                accuracy=sum(tested) / clients if number else None,
                loss=2.3 * math.exp(-number / (1.5 * pace)) + 0.05 + abs(dice.gauss(0, 0.01)) if number else None,
                scalars_up=bytes_each * clients // 8 if number else 0,
                scalars_down=bytes_each * clients // 8 if number else 0,
                bytes_up=bytes_each * clients // 2 if number else 0,
                bytes_down=bytes_each * clients // 2 if number else 0,
                client_flops=int(flops_each * clients) if number else 0,
                server_flops=0,
                eval_flops=0,
                seconds=0.5 + dice.random() / 10,
                client_seconds=0.4,
                server_seconds=0.01,
                cohort=list(range(clients)) if number else [],
                client_accuracy={str(k): tested[k] for k in range(clients)} if number else {},
            )
        )
    return records


def put(
    database: Database,
    records: Sequence[RoundRecord] | None = None,
    *,
    fingerprint: str | None = None,
    majority_share: float | None = None,
    upto: int | None = None,
    **changes: Any,
) -> str:
    """Store an experiment with its rounds, all of them or up to one; gives its id. `fingerprint`: of its partition."""
    spec = ExperimentSpec.parse({**SPEC, **changes})
    plain = spec.canonical()
    history = list(records) if records is not None else run(plain)
    told = hashlib.sha256(f"{plain['dataset']}{plain['partition']}{plain['clients']}{plain['seed']}".encode())
    *past, last = history[: None if upto is None else upto + 1]
    with database.write() as session:
        row = experiments.submit(session, plain, spec.fingerprint(), Plan())
        row.priority = FIRST_IN_LINE
        session.flush()
        claim = queue.claim(session, "filler", LEASE_SECONDS)
        assert claim is not None
        assert claim.experiment == row.id
        row.priority = 100
        lifecycle.begin(session, claim, fingerprint or told.hexdigest(), {"machine": "none"}, majority_share)
        row = lifecycle.held(session, claim) or row
        # the past in one go: a page does not see how it came, and thousands of rounds are quick
        session.add_all(
            Round(experiment=row.id, fence=claim.fence, stored_at=0.0, seq=row.seq, **record.model_dump())
            for record in past
        )
        for name, value in headline(past):
            setattr(row, name, value)
        row.next_round = len(past)
        row.seconds = sum(record.seconds for record in past)
        row.totals = {key: sum(getattr(record, key) for record in past) for key in row.totals}
        session.flush()
        rounds.commit_round(session, claim, last, LEASE_SECONDS)
        return row.id


def advance(database: Database, experiment: str, record: RoundRecord) -> None:
    """Store the next round of an experiment that was put up to a round, as its worker would."""
    with database.write() as session:
        row = experiments.get(session, experiment)
        assert row is not None
        claim = Claim(experiment, row.fence, "filler", row.spec, row.next_round)
        rounds.commit_round(session, claim, record, LEASE_SECONDS)
