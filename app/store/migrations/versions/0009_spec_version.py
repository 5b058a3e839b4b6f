"""Which version of the spec an experiment was stored with."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # the server's default stays: an older process that is still at work writes rows without it
    op.add_column("experiment", sa.Column("spec_version", sa.Integer, nullable=False, server_default="1"))
