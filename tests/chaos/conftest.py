"""Fixtures of the chaos tests."""

from tests.services import postgres_server

__all__ = ["postgres_server"]
