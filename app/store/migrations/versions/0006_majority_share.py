"""What is reached without learning, by which a finished experiment is said not to have converged."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiment", sa.Column("majority_share", sa.Double))
