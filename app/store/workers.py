"""Workers: who is there, by when they were last seen."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, select, update
from sqlmodel import Session, col

from app.store.clock import now, read_clock
from app.store.tables import Worker


def register(
    session: Session, *, name: str, host: str, pid: int, device: str, slots: int, machine: str | None = None
) -> None:
    """`machine` tells where the process number means something: see workers.launch."""
    time = read_clock(session)
    session.merge(
        Worker(
            name=name,
            host=host,
            pid=pid,
            machine=machine,
            device=device,
            slots=slots,
            started_at=time,
            last_seen=time,
        )
    )


def seen(session: Session, name: str, report: Mapping[str, Any] | None = None) -> bool:
    """False: nobody knows this worker; it should register again."""
    values: dict[str, Any] = {"last_seen": now()} | ({} if report is None else {"report": dict(report)})
    statement = update(Worker).where(col(Worker.name) == name).values(**values).returning(col(Worker.name))
    return session.execute(statement.execution_options(synchronize_session=False)).first() is not None


def set_device(session: Session, name: str, device: str) -> None:
    statement = update(Worker).where(col(Worker.name) == name).values(device=device)
    session.execute(statement.execution_options(synchronize_session=False))


def remove(session: Session, name: str) -> None:
    session.execute(delete(Worker).where(col(Worker.name) == name))


def forget_silent(session: Session, silent_seconds: float) -> None:
    session.execute(delete(Worker).where(col(Worker.last_seen) < now() - silent_seconds))


def known(session: Session) -> list[Worker]:
    return list(session.scalars(select(Worker).order_by(col(Worker.name))))


def live(session: Session, silent_seconds: float) -> list[Worker]:
    """Those seen lately, by name."""
    return list(session.scalars(select(Worker).where(_is_live(silent_seconds)).order_by(col(Worker.name))))


def _is_live(silent_seconds: float) -> ColumnElement[bool]:
    # seen in the future: the clock was set back since
    return and_(col(Worker.last_seen) >= now() - silent_seconds, col(Worker.last_seen) <= now() + silent_seconds)


def live_slots(session: Session, silent_seconds: float) -> int:
    """How many experiments the workers seen lately can run at once."""
    query = select(func.coalesce(func.sum(col(Worker.slots)), 0)).where(_is_live(silent_seconds))
    return int(session.execute(query).scalar_one())
