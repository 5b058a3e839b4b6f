"""Artifacts: what is wanted of an experiment, who makes it, and where its files lie."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, String, and_, cast, or_, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col

from app.store import changes, claims, experiments, lifecycle
from app.store.claims import USUAL_LEASE_SECONDS, Locked
from app.store.clock import read_clock
from app.store.ids import new_id
from app.store.states import State
from app.store.tables import Artifact, Experiment

WEIGHTS = "weights"
"""The folder of the storage where trained networks lie under their own checksum, whoever made them."""
MAX_ATTEMPTS = 5
"""Worker deaths after which an artifact fails."""


class ArtifactState(StrEnum):
    """Where an artifact stands."""

    WANTED = "wanted"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class ArtifactClaim:
    """The right to make an artifact, as long as no other claim has a greater fence."""

    artifact: str
    kind: str
    parameters: dict[str, Any]
    fence: int
    owner: str
    experiment: str
    spec: dict[str, Any]
    last_round: int
    checkpoint: tuple[str, str] | None  # manifest and sha256


@dataclass(frozen=True)
class StoredFile:
    """A file of an artifact, already in the storage."""

    kind: str
    media_type: str
    file: str
    sha256: str
    bytes: int


def want(
    session: Session, experiment: str, kind: str, parameters: Mapping[str, Any], *, again: bool = True
) -> tuple[Artifact, bool]:
    """The artifact with these parameters, and whether it was not there; one that failed is wanted again."""
    text = json.dumps(dict(parameters), sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(text.encode()).hexdigest()
    wish = (col(Artifact.experiment) == experiment, col(Artifact.kind) == kind, col(Artifact.key) == key)
    row = claims.lock_artifact(session, *wish)
    if row is None:
        new = Artifact(
            id=new_id(),
            experiment=experiment,
            kind=kind,
            key=key,
            parameters=dict(parameters),
            state=ArtifactState.WANTED,
            requested_at=read_clock(session),
        )
        try:
            with session.begin_nested():
                session.add(new)
        except IntegrityError:
            # on PostgreSQL two equal wishes can meet: the other one was first
            row = claims.lock_artifact(session, *wish)
            if row is None:
                raise
        else:
            return new, True
    if row.state != ArtifactState.FAILED or not again:
        return row, False
    row.state, row.error, row.attempts = ArtifactState.WANTED, None, 0
    session.flush()
    return row, True


def get(session: Session, artifact: str) -> Artifact | None:
    """None: there is no such artifact, or its experiment was deleted."""
    row = session.get(Artifact, artifact)
    return None if row is None or experiments.get(session, row.experiment) is None else row


def of_experiment(session: Session, experiment: str) -> list[Artifact]:
    """In the order in which they were wanted."""
    query = select(Artifact).where(col(Artifact.experiment) == experiment).order_by(col(Artifact.id))
    return list(session.scalars(query))


def last_weights(session: Session, experiment: str) -> list[str]:
    """Weights files that this experiment made or started from, and that no other artifact and no other spec names."""
    own, mine = col(Artifact.file), col(Artifact.experiment) == experiment
    made = session.scalars(select(own).where(mine, own.startswith(f"{WEIGHTS}/")))
    row = experiments.get_with_deleted(session, experiment)
    pretrained = {} if row is None else row.spec.get("models", {}).get("pretrained") or {}
    started = {f"{WEIGHTS}/{sha256}.safetensors" for sha256 in pretrained.get("weights", ())}
    named = sorted(started.union(file for file in made if file is not None))
    return [file for file in named if not _is_named_elsewhere(session, experiment, file)]


def _is_named_elsewhere(session: Session, experiment: str, file: str) -> bool:
    by_artifact = select(col(Artifact.id)).where(col(Artifact.file) == file, col(Artifact.experiment) != experiment)
    sha256 = file.rpartition("/")[2].partition(".")[0]
    spec = cast(col(Experiment.spec), String)
    by_spec = experiments.with_deleted(col(Experiment.id)).where(
        spec.contains(sha256), col(Experiment.id) != experiment
    )
    return any(session.scalars(query.limit(1)).first() is not None for query in (by_artifact, by_spec))


def _due(lease_seconds: float) -> ColumnElement[bool]:
    """Wanted of an experiment that has finished, or left behind by a worker that stopped renewing its lease."""
    finished = experiments.visible(col(Experiment.id)).where(col(Experiment.state) == State.FINISHED)
    orphaned = and_(_left_behind(lease_seconds), col(Artifact.attempts) < MAX_ATTEMPTS)
    return and_(col(Artifact.experiment).in_(finished), or_(col(Artifact.state) == ArtifactState.WANTED, orphaned))


def _left_behind(lease_seconds: float) -> ColumnElement[bool]:
    return and_(col(Artifact.state) == ArtifactState.RUNNING, claims.lease_is_over(Artifact, lease_seconds))


def due(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> int:
    """How many artifacts a worker could claim now."""
    return claims.count(session, Artifact, _due(lease_seconds))


def claim(session: Session, owner: str, lease_seconds: float) -> ArtifactClaim | None:
    """Take the artifact that waits longest; None when none is due."""
    order = (col(Artifact.requested_at), col(Artifact.id))
    taken = claims.take(
        session, Artifact, _due(lease_seconds), order, owner, lease_seconds, state=ArtifactState.RUNNING
    )
    row = None if taken is None else claims.lock_artifact(session, col(Artifact.id) == taken)
    if row is None:
        return None
    source = _touch(session, row)
    return ArtifactClaim(
        artifact=row.id,
        kind=row.kind,
        parameters=row.parameters,
        fence=row.fence,
        owner=owner,
        experiment=source.id,
        spec=source.spec,
        last_round=source.next_round - 1,
        checkpoint=experiments.checkpoint_of(source),
    )


def _held(claim: ArtifactClaim) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Artifact.id) == claim.artifact,
        col(Artifact.fence) == claim.fence,
        col(Artifact.state) == ArtifactState.RUNNING,
    )


def renew(session: Session, claim: ArtifactClaim, lease_seconds: float) -> bool:
    """Prolong the lease; False: the claim is lost."""
    return claims.renew(session, Artifact, _held(claim), lease_seconds, col(Artifact.id)) is not None


def finish(session: Session, claim: ArtifactClaim, files: Sequence[StoredFile]) -> bool:
    """Ready: the first file is the artifact's own, further ones get rows beside it. False: the claim is lost."""
    row = _locked(session, claim)
    if row is None:
        return False
    own, *beside = files
    _fill(session, row, own)
    for file in beside:
        other, _ = want(session, row.experiment, file.kind, row.parameters)
        _fill(session, other, file)
    _end(session, row)
    return True


def fail(session: Session, claim: ArtifactClaim, reason: str) -> bool:
    row = _locked(session, claim)
    if row is None:
        return False
    row.state, row.error = ArtifactState.FAILED, reason
    _end(session, row)
    return True


def release(session: Session, claim: ArtifactClaim) -> bool:
    """Give it back; False: the claim is lost."""
    row = _locked(session, claim)
    if row is None:
        return False
    row.state = ArtifactState.WANTED
    row.attempts -= 1
    _end(session, row)
    return True


def fail_hopeless(session: Session, lease_seconds: float = USUAL_LEASE_SECONDS) -> list[str]:
    """Fail what has killed its workers too often."""
    hopeless = (_left_behind(lease_seconds), col(Artifact.attempts) >= MAX_ATTEMPTS)
    # an experiment's row that somebody has is left for the next look: every row comes before the first number
    wanted = select(col(Artifact.experiment)).where(*hopeless)
    sources = claims.lock(session, experiments.with_deleted().where(col(Experiment.id).in_(wanted)), skip=True)
    query = select(Artifact).where(*hopeless, col(Artifact.experiment).in_([source.id for source in sources]))
    rows = list(session.scalars(query.with_for_update(skip_locked=True)))
    for row in rows:
        row.fence += 1
        row.state = ArtifactState.FAILED
        row.error = f"{row.attempts} workers died on it, likely out of memory; ask for fewer clients or samples"
        _end(session, row)
    return [row.id for row in rows]


def _locked(session: Session, claim: ArtifactClaim) -> Artifact | None:
    return claims.lock_artifact(session, *_held(claim))


def _fill(session: Session, row: Artifact, file: StoredFile) -> None:
    row.state, row.error = ArtifactState.READY, None
    row.media_type, row.file, row.sha256, row.bytes = file.media_type, file.file, file.sha256, file.bytes
    row.ready_at = read_clock(session)


def _end(session: Session, row: Artifact) -> None:
    """Number the change as one of the experiment, so that open pages look again."""
    row.owner = row.lease = None
    _touch(session, row)


def _touch(session: Session, row: Artifact) -> Locked:
    """Number a change of the artifact: the experiment's row is locked first, the counter comes last."""
    source = lifecycle.locked_with_deleted(session, row.experiment)
    assert source is not None, "a foreign key holds it"
    changes.touch(session, source)
    return source
