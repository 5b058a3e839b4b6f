"""The live stream: nothing is lost and nothing comes twice."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app import events as events_module
from app.client import FedArena, LiveEvent, _parse
from app.config import Settings
from app.events import Event, Events
from app.store import changes, rounds
from app.store.claims import Claim
from app.store.database import Database
from tests.services import claim, record, serving, submit, wait_until


@pytest.fixture
def running(store: Database) -> Claim:
    """A claimed experiment that waits for its rounds."""
    while claim(store):  # whatever earlier tests left
        pass
    submit(store, rounds=100_000)
    held = claim(store)
    assert held is not None
    return held


def write(store: Database, held: Claim, *numbers: int) -> None:
    for number in numbers:
        with store.write() as session:
            rounds.commit_round(session, held, record(number), 60)


def position(store: Database) -> int:
    with store.read() as session:
        return changes.current(session)


@contextmanager
def listening(client: httpx.Client, query: str = "", **headers: str) -> Iterator[Iterator[LiveEvent]]:
    with client.stream("GET", f"/api/events{query}", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parse(answer.iter_lines())


def take(events: Iterator[LiveEvent], count: int) -> list[LiveEvent]:
    return [next(events) for _ in range(count)]


def test_a_stream_starts_after_the_given_number(client: httpx.Client, store: Database, running: Claim) -> None:
    start = position(store)
    write(store, running, 0, 1, 2)
    with listening(client, f"?after={start + 1}") as events:
        seen = take(events, 2)
    assert [(event.seq, event.kind, event.data["round"]) for event in seen] == [
        (start + 2, "round", 1),
        (start + 3, "round", 2),
    ]
    assert seen[0].data == {"experiment": running.experiment, **record(1).model_dump()}


def test_the_header_of_a_browser_that_comes_back_wins(client: httpx.Client, store: Database, running: Claim) -> None:
    start = position(store)
    write(store, running, 0, 1)
    with listening(client, "?after=0", **{"Last-Event-ID": str(start + 1)}) as events:
        assert next(events).data["round"] == 1


def test_new_rounds_arrive_while_listening(client: httpx.Client, store: Database, running: Claim) -> None:
    with listening(client, f"?after={position(store)}") as events:
        write(store, running, 0)
        assert next(events).data["round"] == 0
        write(store, running, 1)
        assert next(events).data["round"] == 1


def test_other_experiments_are_left_out_when_one_is_asked_for(
    client: httpx.Client, store: Database, running: Claim
) -> None:
    start = position(store)
    submit(store)
    write(store, running, 0)
    with listening(client, f"?experiments={running.experiment}&after={start}") as events:
        assert next(events).data["experiment"] == running.experiment


def test_a_submission_is_announced_as_a_state(client: httpx.Client, store: Database) -> None:
    with listening(client, f"?after={position(store)}") as events:
        key = submit(store, name="announced")
        event = next(events)
    assert (event.kind, event.data["id"], event.data["state"]) == ("state", key, "queued")


def test_readers_that_come_and_go_see_every_round_exactly_once(
    client: httpx.Client, store: Database, running: Claim
) -> None:
    start = last = position(store)
    writer = threading.Thread(target=write, args=(store, running, *range(60)))
    writer.start()
    seen: list[int] = []
    while len(seen) < 60:
        with listening(client, f"?experiments={running.experiment}", **{"Last-Event-ID": str(last)}) as events:
            for event in take(events, min(7, 60 - len(seen))):
                seen.append(event.data["round"])
                last = event.seq
    writer.join()
    assert seen == list(range(60))
    assert last == start + 60


def test_a_long_history_comes_in_pages(
    client: httpx.Client, store: Database, running: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PAGE", 4)
    start = position(store)
    write(store, running, *range(11))
    with listening(client, f"?after={start}") as events:
        assert [event.data["round"] for event in take(events, 11)] == list(range(11))


def test_a_number_from_another_database_means_everything(client: httpx.Client, store: Database, running: Claim) -> None:
    with listening(client, "?after=999999999") as events:
        assert next(events).seq < 999_999_999


def test_a_silent_stream_says_how_far_it_is(
    client: httpx.Client, store: Database, running: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PING_SECONDS", 0.05)
    with listening(client, f"?experiments=none&after={position(store)}") as events:
        write(store, running, 0, 1, 2)
        reached = next(event for event in events if event.seq == position(store))
    assert (reached.kind, reached.data) == ("ping", {})


def test_who_comes_back_at_the_number_of_a_ping_has_missed_nothing(
    client: httpx.Client, store: Database, running: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PING_SECONDS", 0.001)
    last = position(store)
    writer = threading.Thread(target=write, args=(store, running, *range(40)))
    writer.start()
    seen: list[int] = []
    while len(seen) < 40:
        with listening(client, f"?experiments={running.experiment}&after={last}") as events:
            for event in take(events, 5):
                last = event.seq
                seen += [event.data["round"]] if event.kind == "round" else []
    writer.join()
    assert seen == list(range(40))


def test_too_many_streams_are_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "SUBSCRIBER_LIMIT", 0)
    answer = client.get("/api/events")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "10"


def test_a_reader_too_slow_is_cut_off_and_can_come_back() -> None:
    subscriber = events_module.Subscriber(None, 0)
    event = events_module.Event(1, "x", b"")
    accepted = sum(subscriber.offer(event) for _ in range(events_module.QUEUE_LIMIT + 5))
    assert accepted == events_module.QUEUE_LIMIT


def test_closing_the_stream_frees_its_place(settings: Settings, sqlite_database: Database) -> None:
    with serving(settings) as address, httpx.Client(base_url=address) as client:
        for _ in range(3):
            with listening(client, "?after=0"):
                pass
        key = submit(sqlite_database)
        with listening(client, "?after=0") as events:
            assert next(events).data["id"] == key


def test_the_python_client_follows_an_experiment_to_its_end(
    address: str, store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PING_SECONDS", 0.01)
    while claim(store):
        pass
    key = submit(store, rounds=3)
    held = claim(store)
    assert held is not None
    write(store, held, 0, 1)
    seen: list[LiveEvent] = []

    def follow() -> None:
        with FedArena(address) as arena:
            seen.extend(arena.watch(key))

    watcher = threading.Thread(target=follow)
    watcher.start()
    wait_until(lambda: len(seen) >= 3, what="the stored rounds")
    write(store, held, 2, 3)
    watcher.join(timeout=30)
    assert [event.data["round"] for event in seen if event.kind == "round"] == [0, 1, 2, 3]
    assert seen[-1].data["state"] == "finished"
    assert {event.kind for event in seen} == {"round", "state"}


def test_after_an_error_of_their_reader_old_streams_end_and_lose_nothing(store: Database, running: Claim) -> None:
    """Else they would stay open, silent, while the reader goes on for new ones behind what they missed."""
    broken = [True]

    class BreaksOnce(Events):
        def _read(self, *arguments: Any) -> list[Event]:
            if broken[0]:
                broken[0] = False
                raise ZeroDivisionError("a bug")
            return super()._read(*arguments)

    async def rounds_of(stream: AsyncIterator[bytes], count: int) -> list[int]:
        """Until it ends, or so many came."""
        seen: list[int] = []
        async for part in stream:
            if part.startswith(b"id:") and b"event: round" in part:
                seen.append(json.loads(part.partition(b"data: ")[2])["round"])
            if len(seen) == count:
                break
        return seen

    async def scenario() -> list[int]:
        hub, start = BreaksOnce(store), position(store)
        old = hub.subscribe([running.experiment], start)
        assert await anext(old) == events_module.RETRY
        write(store, running, 0)
        while broken[0]:
            await asyncio.sleep(0.01)
        young = hub.subscribe([running.experiment], None)
        assert await anext(young) == events_module.RETRY
        write(store, running, 1)
        seen = await asyncio.wait_for(rounds_of(old, 1), 60)
        again = await asyncio.wait_for(rounds_of(hub.subscribe([running.experiment], start), 2), 60)
        hub.close()
        return [*seen, *again]

    assert asyncio.run(scenario()) == [0, 1], "the old stream ends, and whoever comes back gets both rounds"
