"""Live events: one reader of the store for all open dashboards; the store is the truth, a bell only says "look now"."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from app.numbers import json_text
from app.store import changes
from app.store.changes import Change, changes_after
from app.store.database import Database
from app.store.rounds import record_of
from app.store.tables import Experiment, Round
from app.views.experiments import experiment_view

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
PING_SECONDS = 15.0
"""So often a silent stream says that it lives and how far it is; pages give up after two and a half times as long."""
QUEUE_LIMIT = 1000
"""A reader this far behind is cut off; it comes back with Last-Event-ID and loses nothing."""
SUBSCRIBER_LIMIT = 1000
"""Less than half of the connections, so that streams never take the place of requests."""
PAGE = 500
RETRY = b"retry: 1000\n\n"


class TooManySubscribers(Exception):
    """No place for another event stream."""


@dataclass(frozen=True)
class Event:
    """One change, encoded once for all subscribers."""

    seq: int
    experiment: str
    text: bytes


@dataclass(eq=False)
class Subscriber:
    """One open stream; None in its queue ends it."""

    experiments: frozenset[str] | None
    position: int
    queue: asyncio.Queue[Event | None] = field(default_factory=lambda: asyncio.Queue(QUEUE_LIMIT + 1))

    def wants(self, event: Event) -> bool:
        return self.experiments is None or event.experiment in self.experiments

    def offer(self, event: Event) -> bool:
        """False: the reader is too slow and was cut off."""
        if self.queue.qsize() >= QUEUE_LIMIT:
            self.end()
            return False
        self.queue.put_nowait(event)
        return True

    def end(self) -> None:
        while self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Events:
    """The hub. All its methods but `ring` belong to the event loop's thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: set[Subscriber] = set()
        self._position = 0
        self._reader: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    def ring(self) -> None:
        """Something was committed: look now. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._bell.set)

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self._closed = True
        self._cut_off()
        if self._reader is not None:
            self._reader.cancel()

    def close_soon(self) -> None:
        """Like close, from a signal handler or another thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def subscribe(self, experiments: Iterable[str] | None, after: int | None) -> AsyncIterator[bytes]:
        """The stream's bytes: everything after the number, then everything new; None: only what is new."""
        if len(self._subscribers) >= SUBSCRIBER_LIMIT:
            raise TooManySubscribers
        return self._stream(None if experiments is None else frozenset(experiments), after)

    async def _stream(self, experiments: frozenset[str] | None, after: int | None) -> AsyncIterator[bytes]:
        current = await self._current()
        if after is None:
            after = current
        elif after > current:
            after = 0  # a number from the future belongs to another database: send everything
        self._start(current)
        subscriber = Subscriber(experiments, self._position)
        self._subscribers.add(subscriber)
        try:
            yield RETRY
            # the reader sends what comes after the subscriber's position; what lies between is read here
            while after < subscriber.position and not self._closed:
                page = await run_in_threadpool(self._read, after, subscriber.position, experiments)
                for event in page:
                    yield event.text
                after = page[-1].seq if len(page) == PAGE else subscriber.position
            while not self._closed:
                try:
                    news = await asyncio.wait_for(subscriber.queue.get(), PING_SECONDS)
                except TimeoutError:
                    if subscriber.queue.empty():
                        # all up to the reader's position was handed over or not wanted: who comes back may go on there
                        yield ping(max(after, self._position))
                    continue
                if news is None:
                    return
                if news.seq > after:
                    yield news.text
        finally:
            self._subscribers.discard(subscriber)

    def _start(self, current: int) -> None:
        self._loop = asyncio.get_running_loop()
        if self._reader is None or self._reader.done():
            # the position is old: go on from now. Whoever listens all the same must come back for what was missed
            self._cut_off()
            self._position = current
            self._reader = self._loop.create_task(self._follow(), name="events")

    async def _follow(self) -> None:
        """Read on while somebody listens, or end all streams: they come back with the last number they saw."""
        while self._subscribers and not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), POLL_SECONDS)
            self._bell.clear()
            try:
                if await self._current() > self._position:
                    await self._distribute()
            except SQLAlchemyError as error:
                log.warning("cannot read changes, trying again: %s", str(error).splitlines()[0])
                await asyncio.sleep(1)
            except Exception:  # whatever it is: a stream that is silent from now on looks like one without news
                log.exception("live events end after an error; their readers come back")
                self._cut_off()

    def _cut_off(self) -> None:
        for subscriber in self._subscribers:
            subscriber.end()
        self._subscribers.clear()

    async def _distribute(self) -> None:
        while True:
            page = await run_in_threadpool(self._read, self._position, None, None)
            for event in page:
                self._position = event.seq
                slow = [s for s in self._subscribers if s.wants(event) and not s.offer(event)]
                self._subscribers.difference_update(slow)
            if len(page) < PAGE:
                return

    async def _current(self) -> int:
        def read() -> int:
            with self._database.read() as session:
                return changes.current(session)

        return await run_in_threadpool(read)

    def _read(self, after: int, upto: int | None, experiments: frozenset[str] | None) -> list[Event]:
        with self._database.read() as session:
            page = changes_after(session, after, limit=PAGE, upto=upto, experiments=experiments)
            return [encode(change) for change in page]


def ping(position: int) -> bytes:
    """An event and no comment, which scripts cannot hear; without data it would not be handed to them either."""
    return f"id: {position}\nevent: ping\ndata: {{}}\n\n".encode()


def encode(change: Change) -> Event:
    """As an event of the text/event-stream format; JSON has no line breaks, so one data line is enough."""
    if isinstance(change.row, Experiment):
        data = experiment_view(change.row).model_dump_json()
    else:
        assert isinstance(change.row, Round)
        record = {"experiment": change.experiment, **record_of(change.row)}
        data = json_text(record)
    text = f"id: {change.seq}\nevent: {change.kind}\ndata: {data}\n\n"
    return Event(change.seq, change.experiment, text.encode())
