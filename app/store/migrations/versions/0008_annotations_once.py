"""Name, tags and notes are kept in their columns alone, no longer in the spec as well."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ANNOTATIONS = ("name", "tags", "notes")
AT_ONCE = 500


def upgrade() -> None:
    # read as text, which a damaged value cannot break, and changed in Python, which keeps the order of the fields
    connection, last = op.get_bind(), ""
    table = sa.table("experiment", sa.column("id", sa.Text), sa.column("spec", sa.JSON))
    key, spec = table.c.id, table.c.spec
    chosen = sa.select(key, sa.cast(spec, sa.Text).label("text")).order_by(key).limit(AT_ONCE)
    change = sa.update(table).where(key == sa.bindparam("key")).values(spec=sa.bindparam("kept", type_=sa.JSON))
    while rows := connection.execute(chosen.where(key > last)).all():
        last = rows[-1].id
        changed = [{"key": row.id, "kept": kept} for row in rows if (kept := _without(row.text)) is not None]
        if changed:
            connection.execute(change, changed)


def _without(text: str) -> dict[str, Any] | None:
    """None: there is nothing to take out of it."""
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(spec, dict) or not any(name in spec for name in ANNOTATIONS):
        return None
    return {name: value for name, value in spec.items() if name not in ANNOTATIONS}
