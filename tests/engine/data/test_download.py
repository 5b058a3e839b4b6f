import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.data.download import FetchError, Remote, fetch
from tests.engine.data.server import Site, serving

BODY = np.random.default_rng(0).bytes(400_000)
SUM = f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        site.files["data.bin"] = BODY
        yield site


def get(site: Site, folder: Path, checksum: str | None = SUM) -> Path:
    return fetch(Remote("data.bin", (site.url("data.bin"),), checksum), folder, lambda *_: None)


def test_a_file_is_fetched_checked_and_reported(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    remote = Remote("data.bin", (site.url("data.bin"),), SUM)
    path = fetch(remote, tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == BODY
    assert seen[0] == (0, 400_000)
    assert seen[-1] == (400_000, 400_000)


def test_a_part_on_disk_is_continued(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY[:150_000])
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.asked == [("data.bin", "bytes=150000-")]


def test_a_connection_that_breaks_is_continued_at_once(site: Site, tmp_path: Path) -> None:
    site.stop_after = [100_000, 50_000]
    assert get(site, tmp_path).read_bytes() == BODY
    assert [wanted for _, wanted in site.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_connection_that_keeps_breaking_leaves_the_part_for_the_next_command(site: Site, tmp_path: Path) -> None:
    site.stop_after = [1000, 1000, 1000]
    with pytest.raises(FetchError, match=r"ended after 3,000 of 400,000 bytes.*first 3,000 bytes are kept"):
        get(site, tmp_path)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_server_without_ranges_sends_everything_again(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    (tmp_path / "data.bin.part").write_bytes(b"x" * 10)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_part_that_is_already_whole_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_part_longer_than_the_file_is_removed_and_the_file_fetched_on_the_next_try(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY + b"more")
    with pytest.raises(FetchError, match="longer than the file"):
        get(site, tmp_path)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_the_file_removed(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"must have the checksum md5:0000, but has md5:"):
        get(site, tmp_path, "md5:0000")
    assert list(tmp_path.iterdir()) == []


def test_sha256_sums_are_understood(site: Site, tmp_path: Path) -> None:
    assert get(site, tmp_path, f"sha256:{hashlib.sha256(BODY).hexdigest()}").is_file()


def test_the_next_address_is_tried_when_the_first_has_nothing(site: Site, tmp_path: Path) -> None:
    remote = Remote("data.bin", (site.url("gone.bin"), site.url("data.bin")), SUM)
    assert fetch(remote, tmp_path, lambda *_: None).read_bytes() == BODY


def test_a_missing_file_is_said_with_the_servers_answer(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"the server answered 404 Not Found.*copy the files by hand and import them"):
        fetch(Remote("gone.bin", (site.url("gone.bin"),)), tmp_path, lambda *_: None)


def test_no_network_is_said_plainly(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data.bin"
        with pytest.raises(FetchError, match=r"no connection.*copy the files by hand and import them"):
            fetch(Remote("data.bin", (url,)), tmp_path, lambda *_: None)


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="http"):
        fetch(Remote("passwd", ("file:///etc/passwd",)), tmp_path, lambda *_: None)
