"""Leases on jobs that only one process at a time should do."""

from sqlmodel import Session

from app.store.clock import read_clock
from app.store.tables import Lease


def acquire(session: Session, name: str, owner: str, seconds: float) -> bool:
    """Take or prolong the lease; False: another process has it. Two at the same instant: one gets an IntegrityError."""
    time = read_clock(session)
    row = session.get(Lease, name, with_for_update=True)
    if row is None:
        session.add(Lease(name=name, owner=owner, until=time + seconds))
        session.flush()
        return True
    # a lease further ahead than anybody takes one was written before the clock was set back
    if row.owner != owner and time < row.until <= time + 2 * seconds:
        return False
    row.owner, row.until = owner, time + seconds
    return True


def give_up(session: Session, name: str, owner: str) -> None:
    row = session.get(Lease, name, with_for_update=True)
    if row is not None and row.owner == owner:
        session.delete(row)
