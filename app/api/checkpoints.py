"""Download the newest checkpoint of an experiment, ready to be continued elsewhere."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from app.api.experiments import NOT_FOUND, Id
from app.api.services import Using
from app.errors import Errors, Refusal, not_found
from app.storage import CHECKPOINTS, Storage, files_of_checkpoint
from app.store import experiments, rounds

router = APIRouter(tags=["checkpoints"])

BLOCK = tarfile.BLOCKSIZE


class Member(NamedTuple):
    """A file of the archive: what it holds, or where that lies in the storage."""

    name: str
    size: int
    content: bytes = b""
    stored: str = ""
    sha256: str = ""


@router.get(
    "/experiments/{id}/checkpoint",
    response_class=StreamingResponse,
    responses={
        **NOT_FOUND,
        200: {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}},
        409: {"model": Errors, "description": "It has no checkpoint"},
    },
)
def get_checkpoint(use: Using, id: Id) -> Response:
    """A tar with the spec, the rounds and the networks after the newest checkpoint.

    `tar xf ID.tar` and `fedarena run ID/spec.json --out ID` continue it where no service runs, with the same bits.
    """
    with use.database.read() as session:
        row = experiments.get(session, id)
        if row is None:
            raise not_found("experiment", id)
        found = experiments.checkpoint_of(row)
        records = rounds.after(session, id)
    if found is None:
        raise Refusal(409, f"{id} has no checkpoint yet", field="id", value=id)
    storage = Storage(use.settings.storage)
    try:
        stored = _stored(storage, id, *found)
    except (OSError, ValueError) as error:
        raise Refusal(409, f"the checkpoint of {id} cannot be read: {error}", field="id", value=id) from None
    journal = [json.dumps(line) for line in ({"fingerprint": row.fingerprint}, *records)]
    texts = {"spec.json": json.dumps(experiments.full_spec(row), indent=2), "rounds.jsonl": "\n".join(journal)}
    contents = {f"{id}/{name}": f"{text}\n".encode() for name, text in texts.items()}
    members = [*(Member(name, len(content), content) for name, content in contents.items()), *stored]
    headers = {
        "Content-Disposition": f'attachment; filename="{id}.tar"',
        # known beforehand: the browser shows how far it is, and an archive that breaks off is not taken for whole
        "Content-Length": str(_archive_size(members)),
    }
    return StreamingResponse(_archive(storage, members), media_type="application/x-tar", headers=headers)


def _stored(storage: Storage, experiment: str, manifest: str, sha256: str) -> list[Member]:
    """The manifest and the files that it names."""
    folder = f"{CHECKPOINTS}/{experiment}"
    content = storage.read(f"{folder}/{manifest}")
    entries = [{"file": manifest, "sha256": sha256, "bytes": len(content)}, *files_of_checkpoint(content)]
    return [
        Member(
            f"{experiment}/checkpoints/{entry['file']}",
            entry["bytes"],
            stored=f"{folder}/{entry['file']}",
            sha256=entry["sha256"],
        )
        for entry in entries
    ]


def _archive(storage: Storage, members: Sequence[Member]) -> Iterator[bytes]:
    """One file after the other, so that large networks never lie in memory together."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        for member in members:
            content = member.content or storage.read(member.stored)
            if member.sha256 and hashlib.sha256(content).hexdigest() != member.sha256:
                raise ValueError(f"{member.stored} does not have the checksum its manifest gives")
            info = tarfile.TarInfo(member.name)
            info.size = member.size
            archive.addfile(info, io.BytesIO(content))
            yield _drained(buffer)
    yield _drained(buffer)


def _drained(buffer: io.BytesIO) -> bytes:
    content = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return content


def _archive_size(members: Sequence[Member]) -> int:
    """A head and whole blocks for each member, two empty blocks, all in whole records."""
    blocks = sum(1 + -(-member.size // BLOCK) for member in members) + 2
    return -(-blocks * BLOCK // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
