"""Accuracy on the validation samples, of each round and in the headline."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("round", sa.Column("validation_accuracy", sa.Double))
    op.add_column("experiment", sa.Column("best_validation_accuracy", sa.Double))
    op.add_column("experiment", sa.Column("best_validation_round", sa.Integer))
    op.add_column("experiment", sa.Column("accuracy_at_best_validation", sa.Double))
    op.add_column("experiment", sa.Column("final_validation_accuracy", sa.Double))
