"""Ask for what an experiment can leave behind beside its rounds, look how far it is, and download it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from app.api.experiments import NOT_FOUND, Id
from app.api.services import ONE_ID, Services, Using, json_body, posted
from app.errors import Errors, Refusal, not_found
from app.storage import Storage
from app.store import artifacts, experiments
from app.store.artifacts import ArtifactState
from app.store.experiments import NotUnderstood
from app.store.states import State
from app.store.tables import Artifact
from app.views.experiments import iso
from engine import catalogue

router = APIRouter(tags=["artifacts"])

ArtifactId = Annotated[str, Path(description="The artifact's ULID", json_schema_extra=ONE_ID)]
NO_ARTIFACT: dict[int | str, dict[str, Any]] = {404: {"model": Errors, "description": "There is no such artifact"}}


class ArtifactWish(BaseModel):
    """What is wanted."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["features", "pictures", "weights"] = Field(description="What to make")
    parameters: dict[str, Any] = Field(default_factory=dict, description="See the README; what is left out is chosen")


PostedWish = Annotated[ArtifactWish, Depends(posted(ArtifactWish))]


class ArtifactView(BaseModel):
    """One artifact as the API shows it."""

    id: str = Field(description="ULID")
    experiment: str
    kind: str
    parameters: dict[str, Any]
    state: ArtifactState
    error: str | None
    name: str | None = Field(description="Name of the file, once it is ready")
    media_type: str | None
    sha256: str | None
    bytes: int | None
    requested_at: str = Field(description="ISO 8601, UTC")
    ready_at: str | None


class ArtifactList(BaseModel):
    """The artifacts of one experiment, in the order in which they were wanted."""

    experiment: str
    artifacts: list[ArtifactView]


def artifact_view(row: Artifact) -> ArtifactView:
    suffix = (row.file or "").rpartition(".")[2]
    return ArtifactView(
        id=row.id,
        experiment=row.experiment,
        kind=row.kind,
        parameters=row.parameters,
        state=ArtifactState(row.state),
        error=row.error,
        name=f"{row.kind}-{row.id}.{suffix}" if row.file else None,
        media_type=row.media_type,
        sha256=row.sha256,
        bytes=row.bytes,
        requested_at=iso(row.requested_at),
        ready_at=None if row.ready_at is None else iso(row.ready_at),
    )


@router.post(
    "/experiments/{id}/artifacts",
    status_code=202,
    responses={
        **NOT_FOUND,
        200: {"model": ArtifactView, "description": "It was asked for before"},
        409: {"model": Errors, "description": "The experiment has not finished, or its spec is not understood"},
    },
    openapi_extra=json_body("ArtifactWish", "What is wanted"),
)
def want_artifact(use: Using, id: Id, wish: PostedWish, response: Response) -> ArtifactView:
    """A worker makes it. The same wish again gives the same artifact; one that failed is tried again."""
    with use.database.read() as session:
        experiment = experiments.get(session, id)
    if experiment is None:
        raise not_found("experiment", id)
    if experiment.state is not State.FINISHED:
        raise Refusal(
            409,
            f"artifacts are made from a finished experiment, but {id} is {experiment.state.value}",
            field="state",
            value=experiment.state.value,
        )
    try:
        spec = experiments.stored_spec(experiment)
    except NotUnderstood as error:
        raise Refusal(409, str(error), field=error.field) from None
    parameters = catalogue.artifact_parameters(spec, wish.kind, wish.parameters)
    with use.database.write() as session:
        row, new = artifacts.want(session, id, wish.kind, parameters)
        answer = artifact_view(row)
    if new:
        use.queue.hint()
    else:
        response.status_code = 200
    return answer


@router.get("/experiments/{id}/artifacts", responses=NOT_FOUND)
def list_artifacts(use: Using, id: Id) -> ArtifactList:
    """What there is and what is being made."""
    with use.database.read() as session:
        experiment = experiments.get(session, id)
        if experiment is None:
            raise not_found("experiment", id)
        # what an experiment would have got at its end is of no interest after another end
        ended = experiment.state.is_finished() and experiment.state is not State.FINISHED
        rows = [row for row in artifacts.of_experiment(session, id) if not (ended and row.state == "wanted")]
        return ArtifactList(experiment=id, artifacts=[artifact_view(row) for row in rows])


@router.get("/artifacts/{id}", responses=NO_ARTIFACT)
def get_artifact(use: Using, id: ArtifactId) -> ArtifactView:
    """One artifact as it stands now."""
    return artifact_view(_row(use, id))


@router.get(
    "/artifacts/{id}/file",
    response_class=StreamingResponse,
    responses={
        **NO_ARTIFACT,
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        409: {"model": Errors, "description": "It is not ready"},
    },
)
def get_artifact_file(use: Using, id: ArtifactId) -> Response:
    """The file itself, always as a download, and in pieces: networks may be large."""
    row = _row(use, id)
    if row.file is None:
        raise Refusal(409, f"artifact {id} is {row.state}, so there is no file yet", field="state", value=row.state)
    try:
        blocks = Storage(use.settings.storage).blocks(row.file)
    except FileNotFoundError:
        raise Refusal(404, f"the file of artifact {id} is no longer in the storage", field="id", value=id) from None
    headers = {
        "Content-Disposition": f'attachment; filename="{artifact_view(row).name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, max-age=31536000, immutable",
        # known beforehand: a file that breaks off is not taken for whole
        "Content-Length": str(row.bytes),
    }
    return StreamingResponse(blocks, media_type=row.media_type, headers=headers)


def _row(use: Services, id: str) -> Artifact:
    with use.database.read() as session:
        row = artifacts.get(session, id)
        if row is None or experiments.get(session, row.experiment) is None:
            raise not_found("artifact", id)
        return row
