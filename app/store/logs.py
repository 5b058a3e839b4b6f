"""Log lines: what a worker said while it ran an experiment, the newest ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlmodel import Session, col

from app.store import lifecycle
from app.store.claims import Claim
from app.store.tables import LogLine

KEEP_LINES = 500
LONGEST_LINE = 2000


@dataclass(frozen=True)
class Line:
    """One record of the log."""

    at: float
    level: str
    text: str


def append(session: Session, claim: Claim, lines: Sequence[Line]) -> bool:
    """Keep the lines, and of all only the newest; False: another worker has claimed the experiment since."""
    row = lifecycle.locked_with_deleted(session, claim.experiment)
    if row is None or row.fence != claim.fence:
        return False
    query = select(func.max(col(LogLine.number))).where(col(LogLine.experiment) == claim.experiment)
    last = session.execute(query).scalar_one() or 0
    for number, line in enumerate(lines[-KEEP_LINES:], last + 1):
        text = line.text.replace("\0", "")  # which PostgreSQL does not take
        text = text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"
        session.add(LogLine(experiment=row.id, number=number, at=line.at, level=line.level, text=text))
        last = number
    session.flush()
    old = delete(LogLine).where(col(LogLine.experiment) == row.id, col(LogLine.number) <= last - KEEP_LINES)
    session.execute(old)
    return True


def after(session: Session, experiment: str, number: int = 0) -> list[LogLine]:
    """The lines with a greater number, in order."""
    query = (
        select(LogLine)
        .where(col(LogLine.experiment) == experiment, col(LogLine.number) > number)
        .order_by(col(LogLine.number))
    )
    return list(session.scalars(query))
