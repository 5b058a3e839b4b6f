"""What was left out of a round because it was not finite."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # the server's default stays: an older process that is still at work writes rows without it
    op.add_column("round", sa.Column("dropped", sa.JSON, nullable=False, server_default="[]"))
