"""Alembic's scripts, run at start by app.store.migrate."""
