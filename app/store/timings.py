"""How long a round takes here, judged from the rounds that were computed before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlmodel import Session, col

from app.store.tables import Experiment

LOOK_BACK = 300
"""So many of the newest experiments are looked at."""

DECIDES = ("algorithm", "dataset", "partition", "models", "topology", "clients", "participation", "training")
"""What the duration of a round depends on."""

GUESS = 20e9
"""FLOPs a second of one slow core, for a store without a single round."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one round and where the number comes from: rounds of equal specs, of other specs, or a guess."""

    seconds: float
    basis: Literal["measured", "rate", "guess"]
    experiments: int


def seconds_per_round(session: Session, spec: Mapping[str, Any], flops: int) -> Timing:
    """`flops` of the clients in one round scale what other experiments took."""
    query = (
        select(Experiment)
        .where(col(Experiment.next_round) > 2, col(Experiment.seconds) > 0)
        .order_by(col(Experiment.id).desc())
        .limit(LOOK_BACK)
    )
    rows = list(session.scalars(query))
    wanted = [spec[key] for key in DECIDES]
    same = [row for row in rows if [row.spec.get(key) for key in DECIDES] == wanted]
    if same:
        seconds = sum(row.seconds for row in same) / sum(row.next_round - 1 for row in same)
        return Timing(seconds, "measured", len(same))
    rates = sorted(row.totals["client_flops"] / row.seconds for row in rows if row.totals["client_flops"] > 0)
    if rates:
        return Timing(flops / rates[len(rates) // 2], "rate", len(rates))
    return Timing(flops / GUESS, "guess", 0)
