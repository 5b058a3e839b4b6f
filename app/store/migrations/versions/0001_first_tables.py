"""The first tables: experiments, rounds, workers, the change counter, leases, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("name", sa.String(200)),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("algorithm", sa.String(64), nullable=False),
        sa.Column("dataset", sa.String(64), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("partition_fingerprint", sa.String(64)),
        sa.Column("environment", sa.JSON),
        sa.Column("mixed_environment", sa.Boolean, nullable=False),
        sa.Column("bit_identical", sa.Boolean, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error_reason", sa.Text),
        sa.Column("error_detail", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("start_after", sa.Double, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.String(200)),
        sa.Column("lease", sa.Double),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("cancel_at", sa.Double),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("next_round", sa.Integer, nullable=False),
        sa.Column("best_accuracy", sa.Double),
        sa.Column("best_round", sa.Integer),
        sa.Column("final_accuracy", sa.Double),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("totals", sa.JSON, nullable=False),
        sa.Column("checkpoint", sa.String(200)),
        sa.Column("checkpoint_sha256", sa.String(64)),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("state_seq", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_experiment_due", "experiment", ["state", "priority", "place"])
    op.create_index("ix_experiment_state_seq", "experiment", ["state_seq"])
    op.create_index("ix_experiment_fingerprint", "experiment", ["fingerprint"])
    op.create_table(
        "round",
        sa.Column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("accuracy", sa.Double),
        sa.Column("loss", sa.Double),
        sa.Column("scalars_up", sa.BigInteger, nullable=False),
        sa.Column("scalars_down", sa.BigInteger, nullable=False),
        sa.Column("bytes_up", sa.BigInteger, nullable=False),
        sa.Column("bytes_down", sa.BigInteger, nullable=False),
        sa.Column("client_flops", sa.BigInteger, nullable=False),
        sa.Column("server_flops", sa.BigInteger, nullable=False),
        sa.Column("eval_flops", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("client_seconds", sa.Double, nullable=False),
        sa.Column("server_seconds", sa.Double, nullable=False),
        sa.Column("cohort", sa.JSON, nullable=False),
        sa.Column("client_accuracy", sa.JSON, nullable=False),
        sa.Column("traces", sa.JSON, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("stored_at", sa.Double, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_round_seq", "round", ["seq"])
    op.create_table(
        "worker",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("host", sa.String(200), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("last_seen", sa.Double, nullable=False),
    )
    counter = op.create_table(
        "counter",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counter, [{"name": "seq", "value": 0}])
    op.create_table(
        "lease",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_table(
        "idempotency_key",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index("ix_idempotency_key_created_at", "idempotency_key", ["created_at"])
