"""Sweeps, webhook messages, artifacts, log lines; pauses, windows and early stopping of experiments."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # one ALTER each: no table is copied, so a large store migrates in an instant
    for column in (
        sa.Column("window_from", sa.Integer),
        sa.Column("window_to", sa.Integer),
        sa.Column("sweep", sa.String(26)),
        sa.Column("cell", sa.JSON),
        sa.Column("retry_of", sa.String(26)),
        sa.Column("stop", sa.JSON),
        sa.Column("stopped_by", sa.Text),
        sa.Column("deleted_at", sa.Double),
        sa.Column("pause", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("hold", sa.Text),
    ):
        op.add_column("experiment", column)
    op.create_index("ix_experiment_sweep", "experiment", ["sweep"])
    op.add_column("worker", sa.Column("report", sa.JSON))
    op.add_column("worker", sa.Column("machine", sa.String(200)))
    op.create_table(
        "sweep",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("name", sa.String(200)),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("cells", sa.JSON, nullable=False),
        sa.Column("reused", sa.JSON, nullable=False),
        sa.Column("webhook", sa.Text),
        sa.Column("notified_at", sa.Double),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("deleted_at", sa.Double),
    )
    op.create_table(
        "delivery",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("sweep", sa.String(26)),
        sa.Column("experiment", sa.String(26)),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_try", sa.Double),
        sa.Column("delivered_at", sa.Double),
        sa.Column("error", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index("ix_delivery_next_try", "delivery", ["next_try"])
    op.create_table(
        "artifact",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("media_type", sa.String(100)),
        sa.Column("file", sa.String(200)),
        sa.Column("sha256", sa.String(64)),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.String(200)),
        sa.Column("lease", sa.Double),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("ready_at", sa.Double),
        sa.UniqueConstraint("experiment", "kind", "key", name="uq_artifact_key"),
    )
    op.create_table(
        "log_line",
        sa.Column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
