"""The tables. Times are seconds since 1970 by the database's clock; a value that does not exist is null."""

from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlmodel import Field, SQLModel

from app.store.sound import BigWhole, ListOf, Moment, Object, Real, StateText, Totals, Whole
from app.store.states import State


def _shown_by(column: str) -> Index:
    """For the list and its counts: the experiments that are not deleted by one column, then newest or oldest first.

    Columns that change with every round have none: it would be written with every commit, and sorting all rows by
    them takes a few milliseconds.
    """
    shown = text("deleted_at IS NULL")
    return Index(f"ix_experiment_shown_{column}", column, "id", sqlite_where=shown, postgresql_where=shown)


class Experiment(SQLModel, table=True):
    """One spec, one seed: what it is, where it stands, who works on it, and its numbers so far."""

    __tablename__: ClassVar[str] = "experiment"
    __table_args__ = (
        Index("ix_experiment_due", "state", "priority", "place"),
        Index("ix_experiment_state_seq", "state_seq"),
        Index("ix_experiment_fingerprint", "fingerprint"),
        Index("ix_experiment_sweep", "sweep"),
        Index("ix_experiment_continues", "continues"),
        _shown_by("state"),
        _shown_by("algorithm"),
        _shown_by("dataset"),
    )

    id: str = Field(sa_column=Column(String(26), primary_key=True))
    name: str | None = Field(default=None, sa_column=Column(String(200)))
    tags: list[str] = Field(default_factory=list, sa_column=Column(ListOf(str), nullable=False))
    notes: str = Field(default="", sa_column=Column(Text, nullable=False))
    algorithm: str = Field(sa_column=Column(String(64), nullable=False))
    dataset: str = Field(sa_column=Column(String(64), nullable=False))
    spec: dict[str, Any] = Field(sa_column=Column(Object(), nullable=False))
    """Without name, tags and notes: app.store.experiments.full_spec."""
    spec_version: int = Field(default=1, sa_column=Column(Whole(1), nullable=False, server_default="1"))
    """Of engine.spec.versions."""
    fingerprint: str = Field(sa_column=Column(String(64), nullable=False))
    partition_fingerprint: str | None = Field(default=None, sa_column=Column(String(64)))
    environment: dict[str, Any] | None = Field(default=None, sa_column=Column(Object(nullable=True)))
    mixed_environment: bool = Field(default=False, sa_column=Column(Boolean, nullable=False))
    """Rounds were computed in more than one environment, so recomputed ones may differ without being wrong."""
    bit_identical: bool = Field(default=True, sa_column=Column(Boolean, nullable=False))
    """False: a recomputed round differed from the stored one, on a GPU or after the environment had changed."""

    state: State = Field(default=State.QUEUED, sa_column=Column(StateText(), nullable=False))
    error_reason: str | None = Field(default=None, sa_column=Column(Text))
    error_detail: str | None = Field(default=None, sa_column=Column(Text))
    created_at: float = Field(sa_column=Column(Moment(), nullable=False))
    started_at: float | None = Field(default=None, sa_column=Column(Moment()))
    finished_at: float | None = Field(default=None, sa_column=Column(Moment()))

    priority: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    place: int = Field(sa_column=Column(BigWhole(), nullable=False))
    """Order among experiments of one priority."""
    start_after: float = Field(default=0.0, sa_column=Column(Moment(), nullable=False))
    window_from: int | None = Field(default=None, sa_column=Column(Whole(None)))
    """Runs only from this minute of the day (UTC) to `window_to`; null: at any time."""
    window_to: int | None = Field(default=None, sa_column=Column(Whole(None)))
    sweep: str | None = Field(default=None, sa_column=Column(String(26)))
    cell: dict[str, Any] | None = Field(default=None, sa_column=Column(Object(nullable=True)))
    """The swept fields and their values, the seed apart; null outside a sweep."""
    retry_of: str | None = Field(default=None, sa_column=Column(String(26)))
    """The experiment that this one repeats because it ended badly."""
    continues: str | None = Field(default=None, sa_column=Column(String(26)))
    """The experiment with another number of rounds whose first rounds it took over."""
    taken_over: int = Field(default=0, sa_column=Column(Whole(), nullable=False, server_default="0"))
    """How many rounds it took over, the opening among them."""
    stop: dict[str, Any] | None = Field(default=None, sa_column=Column(Object(nullable=True)))
    """The rule that may end it before its last round."""
    stopped_by: str | None = Field(default=None, sa_column=Column(Text))
    """Which rule ended it, in words; null: it ran all its rounds."""
    deleted_at: float | None = Field(default=None, sa_column=Column(Moment()))
    """Marked for deletion: hidden everywhere, and its files may be removed later."""

    fence: int = Field(default=0, sa_column=Column(BigWhole(), nullable=False))
    """Grows with every claim; a worker that holds an older number may not write."""
    owner: str | None = Field(default=None, sa_column=Column(String(200)))
    lease: float | None = Field(default=None, sa_column=Column(Moment()))
    attempts: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    deaths: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    """Workers that died on it since the last new round."""
    cancel: bool = Field(default=False, sa_column=Column(Boolean, nullable=False))
    cancel_at: float | None = Field(default=None, sa_column=Column(Moment()))
    pause: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    """The worker is asked to give it back as paused after the present round."""
    hold: str | None = Field(default=None, sa_column=Column(Text))
    """Why it is paused."""

    rounds: int = Field(sa_column=Column(Whole(), nullable=False))
    next_round: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    best_accuracy: float | None = Field(default=None, sa_column=Column(Real(None)))
    best_round: int | None = Field(default=None, sa_column=Column(Whole(None)))
    final_accuracy: float | None = Field(default=None, sa_column=Column(Real(None)))
    majority_share: float | None = Field(default=None, sa_column=Column(Real(None)))
    """What naming the most frequent class of each client's test set reaches; null before it began."""
    best_validation_accuracy: float | None = Field(default=None, sa_column=Column(Real(None)))
    best_validation_round: int | None = Field(default=None, sa_column=Column(Whole(None)))
    accuracy_at_best_validation: float | None = Field(default=None, sa_column=Column(Real(None)))
    final_validation_accuracy: float | None = Field(default=None, sa_column=Column(Real(None)))
    seconds: float = Field(default=0.0, sa_column=Column(Real(), nullable=False))
    totals: dict[str, int] = Field(sa_column=Column(Totals(), nullable=False))
    """Sums over the rounds; JSON because FLOPs of a long run can pass 64 bits."""
    checkpoint: str | None = Field(default=None, sa_column=Column(String(200)))
    """Manifest of the newest checkpoint, a name inside the experiment's folder."""
    checkpoint_sha256: str | None = Field(default=None, sa_column=Column(String(64)))

    seq: int = Field(default=0, sa_column=Column(BigWhole(), nullable=False))
    """Number of the last change of any kind."""
    state_seq: int = Field(default=0, sa_column=Column(BigWhole(), nullable=False))
    """Number of the last change that is not a round."""


class Round(SQLModel, table=True):
    """One round, never deleted and never overwritten; per-client values are packed in one column."""

    __tablename__: ClassVar[str] = "round"
    __table_args__ = (Index("ix_round_seq", "seq"), {"sqlite_with_rowid": False})

    experiment: str = Field(sa_column=Column(String(26), ForeignKey("experiment.id"), primary_key=True))
    round: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    accuracy: float | None = Field(default=None, sa_column=Column(Double))
    validation_accuracy: float | None = Field(default=None, sa_column=Column(Double))
    loss: float | None = Field(default=None, sa_column=Column(Double))
    scalars_up: int = Field(sa_column=Column(BigInteger, nullable=False))
    scalars_down: int = Field(sa_column=Column(BigInteger, nullable=False))
    bytes_up: int = Field(sa_column=Column(BigInteger, nullable=False))
    bytes_down: int = Field(sa_column=Column(BigInteger, nullable=False))
    client_flops: int = Field(sa_column=Column(BigInteger, nullable=False))
    server_flops: int = Field(sa_column=Column(BigInteger, nullable=False))
    eval_flops: int = Field(sa_column=Column(BigInteger, nullable=False))
    seconds: float = Field(sa_column=Column(Double, nullable=False))
    client_seconds: float = Field(sa_column=Column(Double, nullable=False))
    server_seconds: float = Field(sa_column=Column(Double, nullable=False))
    cohort: list[int] = Field(sa_column=Column(ListOf(int), nullable=False))
    client_accuracy: dict[str, float | None] = Field(sa_column=Column(Object(), nullable=False))
    traces: dict[str, Any] = Field(sa_column=Column(Object(), nullable=False))
    dropped: list[dict[str, Any]] = Field(
        default_factory=list, sa_column=Column(ListOf(dict), nullable=False, server_default="[]")
    )
    fence: int = Field(sa_column=Column(BigInteger, nullable=False))
    stored_at: float = Field(sa_column=Column(Double, nullable=False))
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))


class Sweep(SQLModel, table=True):
    """Many experiments from one document. Where it stands follows from its experiments."""

    __tablename__: ClassVar[str] = "sweep"

    id: str = Field(sa_column=Column(String(26), primary_key=True))
    name: str | None = Field(default=None, sa_column=Column(String(200)))
    notes: str = Field(default="", sa_column=Column(Text, nullable=False))
    document: dict[str, Any] = Field(sa_column=Column(Object(), nullable=False))
    """What was submitted: base, grid, zip, list, seeds, exclude."""
    cells: list[dict[str, Any]] = Field(default_factory=list, sa_column=Column(ListOf(dict), nullable=False))
    """The combinations of swept values, in the order of its table."""
    reused: list[dict[str, Any]] = Field(default_factory=list, sa_column=Column(ListOf(dict), nullable=False))
    """Experiments that were there already and count as its own: experiment, cell (a number in `cells`), seed."""
    webhook: str | None = Field(default=None, sa_column=Column(Text))
    notified_at: float | None = Field(default=None, sa_column=Column(Moment()))
    created_at: float = Field(sa_column=Column(Moment(), nullable=False))
    deleted_at: float | None = Field(default=None, sa_column=Column(Moment()))


class Delivery(SQLModel, table=True):
    """A message to a webhook, kept until it arrived or was given up."""

    __tablename__: ClassVar[str] = "delivery"
    __table_args__ = (Index("ix_delivery_next_try", "next_try"),)

    id: str = Field(sa_column=Column(String(26), primary_key=True))
    sweep: str | None = Field(default=None, sa_column=Column(String(26)))
    experiment: str | None = Field(default=None, sa_column=Column(String(26)))
    event: str = Field(sa_column=Column(String(32), nullable=False))
    url: str = Field(sa_column=Column(Text, nullable=False))
    body: dict[str, Any] = Field(sa_column=Column(Object(), nullable=False))
    attempts: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    next_try: float | None = Field(default=None, sa_column=Column(Moment()))
    """Null: it arrived, or was given up."""
    delivered_at: float | None = Field(default=None, sa_column=Column(Moment()))
    error: str | None = Field(default=None, sa_column=Column(Text))
    created_at: float = Field(sa_column=Column(Moment(), nullable=False))


class Artifact(SQLModel, table=True):
    """A file made from an experiment: enhanced images, features, trained networks."""

    __tablename__: ClassVar[str] = "artifact"
    __table_args__ = (UniqueConstraint("experiment", "kind", "key", name="uq_artifact_key"),)

    id: str = Field(sa_column=Column(String(26), primary_key=True))
    experiment: str = Field(sa_column=Column(String(26), ForeignKey("experiment.id"), nullable=False))
    kind: str = Field(sa_column=Column(String(32), nullable=False))
    key: str = Field(default="", sa_column=Column(String(64), nullable=False))
    """Tells artifacts of one kind apart: a hash of the parameters, or empty where there are none."""
    parameters: dict[str, Any] = Field(default_factory=dict, sa_column=Column(Object(), nullable=False))
    state: str = Field(sa_column=Column(String(16), nullable=False))
    """wanted, running, ready or failed."""
    error: str | None = Field(default=None, sa_column=Column(Text))
    media_type: str | None = Field(default=None, sa_column=Column(String(100)))
    file: str | None = Field(default=None, sa_column=Column(String(200)))
    """Its name in the storage."""
    sha256: str | None = Field(default=None, sa_column=Column(String(64)))
    bytes: int | None = Field(default=None, sa_column=Column(BigWhole(None)))
    fence: int = Field(default=0, sa_column=Column(BigWhole(), nullable=False))
    owner: str | None = Field(default=None, sa_column=Column(String(200)))
    lease: float | None = Field(default=None, sa_column=Column(Moment()))
    attempts: int = Field(default=0, sa_column=Column(Whole(), nullable=False))
    requested_at: float = Field(sa_column=Column(Moment(), nullable=False))
    ready_at: float | None = Field(default=None, sa_column=Column(Moment()))


class LogLine(SQLModel, table=True):
    """What a worker said while it ran an experiment; the newest lines are kept."""

    __tablename__: ClassVar[str] = "log_line"
    __table_args__ = ({"sqlite_with_rowid": False},)

    experiment: str = Field(sa_column=Column(String(26), ForeignKey("experiment.id"), primary_key=True))
    number: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    at: float = Field(sa_column=Column(Double, nullable=False))
    level: str = Field(sa_column=Column(String(16), nullable=False))
    text: str = Field(sa_column=Column(Text, nullable=False))


class Worker(SQLModel, table=True):
    """A process that runs experiments, as long as it is seen."""

    __tablename__: ClassVar[str] = "worker"

    name: str = Field(sa_column=Column(String(200), primary_key=True))
    host: str = Field(sa_column=Column(String(200), nullable=False))
    pid: int = Field(sa_column=Column(Whole(), nullable=False))
    machine: str | None = Field(default=None, sa_column=Column(String(200)))
    """Where the pid means something: start of the machine and process namespace."""
    device: str = Field(sa_column=Column(String(32), nullable=False))
    slots: int = Field(sa_column=Column(Whole(), nullable=False))
    started_at: float = Field(sa_column=Column(Moment(), nullable=False))
    last_seen: float = Field(sa_column=Column(Real(), nullable=False))
    report: dict[str, Any] | None = Field(default=None, sa_column=Column(Object(nullable=True)))
    """What it said of itself when it was last seen: memory, rounds a minute, versions."""


class Counter(SQLModel, table=True):
    """One row, `seq`: every committed change takes the next number from it, in its own transaction."""

    __tablename__: ClassVar[str] = "counter"

    name: str = Field(sa_column=Column(String(32), primary_key=True))
    value: int = Field(sa_column=Column(BigInteger, nullable=False))


class Lease(SQLModel, table=True):
    """Who may do a job that only one process at a time should do."""

    __tablename__: ClassVar[str] = "lease"

    name: str = Field(sa_column=Column(String(32), primary_key=True))
    owner: str = Field(sa_column=Column(String(200), nullable=False))
    until: float = Field(sa_column=Column(Double, nullable=False))


class IdempotencyKey(SQLModel, table=True):
    """The answer to a request that may be sent again."""

    __tablename__: ClassVar[str] = "idempotency_key"
    __table_args__ = (Index("ix_idempotency_key_created_at", "created_at"),)

    key: str = Field(sa_column=Column(String(200), primary_key=True))
    request: str = Field(sa_column=Column(String(64), nullable=False))
    """sha256 of method, path and body."""
    experiment: str = Field(sa_column=Column(String(26), ForeignKey("experiment.id"), nullable=False))
    answer: dict[str, Any] = Field(sa_column=Column(Object(), nullable=False))
    created_at: float = Field(sa_column=Column(Double, nullable=False))
