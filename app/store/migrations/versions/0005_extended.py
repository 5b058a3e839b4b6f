"""Experiments that took over the first rounds of another one."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiment", sa.Column("continues", sa.String(26)))
    # the server's default stays: an older process that is still at work writes rows without it
    op.add_column("experiment", sa.Column("taken_over", sa.Integer, nullable=False, server_default="0"))
    op.create_index("ix_experiment_continues", "experiment", ["continues"])
