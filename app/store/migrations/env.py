"""Alembic's entry: uses the connection that app.store.migrate hands over."""

from alembic import context
from sqlmodel import SQLModel

import app.store.tables  # noqa: F401 the tables must be known to the metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
