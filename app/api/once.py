"""Idempotency keys at the door: a request that is sent again makes nothing new."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Request
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from app.api.services import Services
from app.errors import Refusal
from app.store import idempotency
from app.store.idempotency import KeyReused

IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="The same key with the same body makes it once")
]


def created(description: str, what: str) -> dict[str, Any]:
    """A 201 in OpenAPI."""
    location = {"schema": {"type": "string"}, "description": f"Address of the {what}"}
    return {"description": description, "headers": {"Location": location}}


async def request_digest(request: Request) -> str:
    """What tells two requests with one key apart."""
    address = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return idempotency.request_hash(request.method, address, await request.body())


def once(
    use: Services, key: str | None, digest: str, store: Callable[[Session], dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Store in one transaction, unless a request with this key has done it; the answer, and whether it was there."""
    try:
        with use.database.write() as session:
            if key is not None and (stored := _find(session, key, digest)) is not None:
                return stored, True
            return store(session), False
    except IntegrityError:
        # on PostgreSQL two requests with one key can meet: the other one was first
        if key is None or (stored := find_answer(use, key, digest)) is None:
            raise
        return stored, True


def find_answer(use: Services, key: str, digest: str) -> dict[str, Any] | None:
    """What a request with this key was answered before."""
    with use.database.read() as session:
        return _find(session, key, digest)


def _find(session: Session, key: str, digest: str) -> dict[str, Any] | None:
    try:
        return idempotency.find(session, key, digest)
    except KeyReused:
        raise Refusal(
            422,
            "this key was used before for another request; take a new key for a new one",
            field="Idempotency-Key",
            value=key,
        ) from None
