"""What the list of experiments is filtered by gets an index, without the deleted ones."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    shown = sa.text("deleted_at IS NULL")
    for column in ("state", "algorithm", "dataset"):
        op.create_index(
            f"ix_experiment_shown_{column}",
            "experiment",
            [column, "id"],
            sqlite_where=shown,
            postgresql_where=shown,
        )
