"""Idempotency keys: the same request sent twice makes one experiment and gets one answer."""

import hashlib
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, col

from app.store.clock import now, read_clock
from app.store.tables import IdempotencyKey

KEEP_SECONDS = 7 * 86_400


class KeyReused(Exception):
    """The key belongs to a request with another content."""


def request_hash(method: str, path: str, body: bytes) -> str:
    return hashlib.sha256(b"\0".join([method.encode(), path.encode(), body])).hexdigest()


def find(session: Session, key: str, request: str) -> dict[str, Any] | None:
    """The stored answer; raises KeyReused when the key came with another request before."""
    row = session.get(IdempotencyKey, key)
    if row is None:
        return None
    if row.request != request:
        raise KeyReused(key)
    return row.answer


def keep(session: Session, key: str, request: str, experiment: str, answer: dict[str, Any]) -> None:
    """In the transaction that makes the experiment: both are there or neither."""
    session.add(
        IdempotencyKey(key=key, request=request, experiment=experiment, answer=answer, created_at=read_clock(session))
    )
    session.flush()


def forget_old(session: Session) -> None:
    session.execute(delete(IdempotencyKey).where(col(IdempotencyKey.created_at) < now() - KEEP_SECONDS))
