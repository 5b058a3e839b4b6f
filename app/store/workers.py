"""Workers: who is there, by when they were last seen."""

from sqlalchemy import delete, func, select, update
from sqlmodel import Session, col

from app.store.clock import now, read_clock
from app.store.tables import Worker


def register(session: Session, *, name: str, host: str, pid: int, device: str, slots: int) -> None:
    time = read_clock(session)
    session.merge(Worker(name=name, host=host, pid=pid, device=device, slots=slots, started_at=time, last_seen=time))


def seen(session: Session, name: str) -> bool:
    """False: nobody knows this worker; it should register again."""
    statement = update(Worker).where(col(Worker.name) == name).values(last_seen=now()).returning(col(Worker.name))
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


def live_slots(session: Session, silent_seconds: float) -> int:
    """How many experiments the workers seen lately can run at once."""
    query = select(func.coalesce(func.sum(col(Worker.slots)), 0)).where(col(Worker.last_seen) >= now() - silent_seconds)
    return int(session.execute(query).scalar_one())
