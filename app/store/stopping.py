"""Early stopping: whether a round ends an experiment before its last one, and in which words."""

from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.store.plan import StopRule
from app.store.tables import Experiment, Round


def reason_to_stop(session: Session, row: Experiment, number: int, accuracy: float | None) -> str | None:
    """None: go on. `number` and `accuracy` are the newest round's, whether or not it is stored yet."""
    if row.stop is None or accuracy is None or number == 0:
        return None
    rule = StopRule.model_validate(row.stop)
    if rule.target is not None and accuracy >= rule.target:
        return f"accuracy {accuracy:.4f} reached the target {rule.target:g} in round {number}"
    if rule.patience is None or number <= rule.patience:
        return None
    edge = number - rule.patience
    before = _best(session, row.id, col(Round.round) > 0, col(Round.round) <= edge)
    recent = _best(session, row.id, col(Round.round) > edge, col(Round.round) < number)
    if before is None:
        return None
    gain = max(accuracy, accuracy if recent is None else recent) - before
    if gain > 0 and gain >= rule.min_gain:
        return None
    asked = f"at least {rule.min_gain:g}" if rule.min_gain else "anything"
    return f"{rule.patience} rounds brought {gain:+.4f} over the best before them, not {asked}, up to round {number}"


def _best(session: Session, experiment: str, *conditions: Any) -> float | None:
    query = select(func.max(col(Round.accuracy))).where(col(Round.experiment) == experiment, *conditions)
    best: float | None = session.execute(query).scalar_one()
    return best
