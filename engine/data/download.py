"""Fetch one file: from the first address that answers, going on where the last attempt stopped, checked at the end."""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

Report = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in all if known)."""

_BLOCK = 1 << 18
_ATTEMPTS = 3
_TIMEOUT = 30


class FetchError(Exception):
    """A file could not be fetched; the message says from where, why, and what to do."""


class Unreachable(FetchError):
    """No address brought it."""


@dataclass(frozen=True)
class Remote:
    """A file and where its publisher keeps it."""

    file: str
    urls: tuple[str, ...]
    checksum: str | None = None  # "md5:…" or "sha256:…"; None where none is published and the archive has its own
    packed: bool = False


def fetch(remote: Remote, folder: Path, report: Report) -> Path:
    """The checked file in `folder`; a part that is already there is continued."""
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / remote.file, folder / f"{remote.file}.part"
    if not path.is_file():
        reasons = []
        for url in remote.urls:
            try:
                _fetch_from(url, part, report)
                break
            except (OSError, http.client.HTTPException, _Unfinished) as error:
                reasons.append(f"{url}: {_plain(error)}")
        else:
            kept = part.stat().st_size if part.exists() else 0
            again = f" The first {kept:,} bytes are kept; the next attempt continues from there." if kept else ""
            raise Unreachable(
                f"{remote.file} could not be fetched ({'; '.join(reasons)}).{again} Without a network, copy the files "
                "by hand and import them"
            )
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    if remote.checksum is not None and (found := checksum(path, remote.checksum.partition(":")[0])) != remote.checksum:
        path.unlink()
        raise FetchError(
            f"{remote.file} must have the checksum {remote.checksum}, but has {found}; it was removed, fetch it again"
        )
    return path


def checksum(path: Path, kind: str) -> str:
    """For example md5:0123…"""
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"{kind}:{digest.hexdigest()}"


class _Unfinished(Exception):
    pass


def _fetch_from(url: str, part: Path, report: Report) -> None:
    """A connection that breaks after it brought something is tried again."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise FetchError(f"an address must begin with http:// or https://, but got {url}")
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, before, report)
            return
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException, _Unfinished):
            grown = part.exists() and part.stat().st_size > before
            if not grown or attempt == _ATTEMPTS - 1:
                raise


def _continue(url: str, part: Path, start: int, report: Report) -> None:
    headers = {"User-Agent": "fedarena", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 the scheme was checked
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing is left, or the part is longer than the file
            if _total(error.headers.get("Content-Range")) == start:
                return
            part.unlink()
            raise _Unfinished("the part on disk was longer than the file and was removed") from error
        raise
    with answer:
        if answer.status != 206:  # the server sends everything from the beginning
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        done = start
        with part.open("ab" if start else "wb") as file:
            report(done, total)
            while block := answer.read(_BLOCK):
                file.write(block)
                done += len(block)
                report(done, total)
    if total is not None and done < total:
        raise _Unfinished(f"the connection ended after {done:,} of {total:,} bytes")


def _total(content_range: str | None) -> int | None:
    found = re.fullmatch(r"bytes \*/(\d+)", content_range or "")
    return int(found[1]) if found else None


def _plain(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__
