"""Estimates are rehearsed in a process beside the web server, which stays small, quick and free of children."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.config import Settings
from app.errors import Refusal
from app.rehearsals import MOST_WAITING, REMEMBERED_SECONDS, Answer, Memory, Rehearsals
from engine.catalogue import Estimate, RoundCost
from engine.spec.experiment import ExperimentSpec
from tests.app.test_serve import any_alive, family
from tests.services import http, served, serving, spec_with, wait_until

LARGE: dict[str, Any] = {
    "dataset": {"name": "digits"},
    "models": {"family": "htfe-img-8"},
    "clients": 20,
    "training": {"epochs": 1, "batch_size": 64},
}
"""A rehearsal of it takes seconds and gigabytes."""


def child_of(server: int) -> int | None:
    """The process that rehearses; None: there is none."""
    for pid in family(server):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"app.rehearsal_child" in Path(f"/proc/{pid}/cmdline").read_bytes() and forked_by(server, pid):
                return pid
    return None


def forked_by(parent: int, pid: int) -> bool:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == parent


def is_rehearsing(server: int) -> bool:
    """The child forks for each rehearsal."""
    child = child_of(server)
    return child is not None and len(family(child)) > 1


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1000


@pytest.fixture
def address(settings: Settings) -> Iterator[str]:
    """A server in this process that may rehearse for as long as it likes."""
    with serving(settings.model_copy(update={"estimate_seconds": 600.0, "estimate_memory_mb": 3000})) as address:
        yield address
    assert child_of(os.getpid()) is None


@pytest.fixture
def frozen(address: str) -> Iterator[int]:
    """The process that rehearses, which answers nothing until it is sent SIGCONT."""
    with http(address) as client:
        assert client.post("/api/estimate", json=spec_with()).json()["reason"] is None
    child = child_of(os.getpid())
    assert child is not None
    os.kill(child, signal.SIGSTOP)
    yield child
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGCONT)


def ask(address: str, client: str, **changes: Any) -> httpx.Response:
    with http(address) as connection:
        return connection.post(
            "/api/estimate", json=spec_with(**changes), headers={"User-Agent": client}, timeout=httpx.Timeout(120)
        )


def test_45_estimates_that_wait_leave_the_other_routes_answering(address: str, frozen: int) -> None:
    with ThreadPoolExecutor(45) as pool, http(address) as client:
        asked = [pool.submit(ask, address, f"client {number}", seed=100 + number) for number in range(45)]
        wait_until(lambda: sum(one.done() for one in asked) == 45 - 1 - MOST_WAITING, what="refusals")
        assert client.get("/api/experiments").status_code == 200
        assert client.post("/api/check", json=spec_with()).status_code == 200
        refused = [one.result() for one in asked if one.done()]
        os.kill(frozen, signal.SIGCONT)
        answers = [one.result() for one in asked]
    for answer in refused:
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
        assert "8 estimates wait already" in answer.json()["errors"][0]["message"]
    assert sorted(answer.status_code for answer in answers) == [200] * (1 + MOST_WAITING) + [429] * len(refused)


def test_a_newer_estimate_of_a_client_takes_the_place_of_the_one_that_waits(address: str, frozen: int) -> None:
    with ThreadPoolExecutor(3) as pool, http(address) as client:
        asked = [pool.submit(ask, address, "one", seed=100 + number) for number in range(3)]
        wait_until(lambda: any(one.done() for one in asked), what="a refusal")
        [older] = [one.result() for one in asked if one.done()]
        assert client.get("/healthz").status_code == 200
        os.kill(frozen, signal.SIGCONT)
        codes = sorted(one.result().status_code for one in asked)
    assert "a newer estimate of the same client" in older.json()["errors"][0]["message"]
    assert codes == [200, 200, 429]


def test_a_rehearsal_ends_when_its_client_hangs_up_and_the_next_one_is_made(address: str) -> None:
    connection = HTTPConnection(urlsplit(address).netloc)
    connection.request("POST", "/api/estimate", json.dumps(spec_with(**LARGE)), {"Content-Type": "application/json"})
    wait_until(lambda: is_rehearsing(os.getpid()), what="the rehearsal")
    child = child_of(os.getpid())
    connection.close()
    wait_until(lambda: not is_rehearsing(os.getpid()), what="its end")
    assert ask(address, "another").json()["reason"] is None
    assert child_of(os.getpid()) == child, "importing torch again would take seconds"


def test_the_web_server_does_not_grow_and_says_why_there_is_no_estimate(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "estimate_memory_mb": 400})
    with served(settings, "--no-worker") as (process, address), http(address) as client:
        assert client.post("/api/estimate", json=spec_with()).json()["reason"] is None
        before = megabytes(process.pid)
        for seed in range(2):
            answer = client.post("/api/estimate", json=spec_with(**LARGE, seed=seed), timeout=httpx.Timeout(120))
            assert answer.json()["estimate"] is None
            assert "more than 400 MB of memory (FEDARENA_ESTIMATE_MEMORY_MB)" in answer.json()["reason"]
        assert megabytes(process.pid) < before + 150
        child = child_of(process.pid)
        assert child is not None
        assert megabytes(child) < 500


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_rehearsal_outlives_the_server(settings: Settings, number: signal.Signals) -> None:
    settings = settings.model_copy(update={"port": 0, "estimate_seconds": 600.0, "estimate_memory_mb": 3000})
    with served(settings, "--no-worker") as (process, address):

        def estimate() -> None:
            with suppress(httpx.TransportError):
                ask(address, "somebody", **LARGE)

        asking = threading.Thread(target=estimate)
        asking.start()
        wait_until(lambda: is_rehearsing(process.pid), what="the rehearsal")
        pids = family(process.pid)
        process.send_signal(number)
        assert process.wait(timeout=60) == (-number if number is signal.SIGKILL else 0)
        wait_until(lambda: not any_alive(pids), what="the end of all children")
        asking.join()


def test_a_killed_process_that_rehearses_is_replaced(address: str) -> None:
    assert ask(address, "one").json()["reason"] is None
    child = child_of(os.getpid())
    assert child is not None
    os.kill(child, signal.SIGKILL)
    assert ask(address, "one", seed=8).json()["reason"] is None
    assert child_of(os.getpid()) not in (child, None)


def test_a_rehearsal_that_takes_too_long_says_so(settings: Settings) -> None:
    async def estimate() -> Answer:
        rehearsals = Rehearsals(settings.model_copy(update={"estimate_seconds": 0.01}))
        try:
            return await rehearsals.estimate(ExperimentSpec.parse(spec_with(**LARGE)), "one")
        finally:
            await rehearsals.close()

    reason = "a rehearsal of two rounds takes longer than 0.01 s (FEDARENA_ESTIMATE_SECONDS)"
    assert asyncio.run(estimate()) == Answer(None, reason, lasting=False)


def test_who_leaves_the_line_gives_the_place_free(settings: Settings) -> None:
    async def leave() -> list[Any]:
        rehearsals = Rehearsals(settings)
        try:
            specs = [ExperimentSpec.parse(spec_with(seed=seed)) for seed in range(4)]
            tasks = [asyncio.create_task(rehearsals.estimate(spec, f"client {spec.seed}")) for spec in specs]
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[2].cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await rehearsals.close()

    one, two, three, four = asyncio.run(leave())
    assert isinstance(one, asyncio.CancelledError)
    assert isinstance(three, asyncio.CancelledError)
    assert two.estimate == four.estimate
    assert two.estimate is not None


def test_a_server_that_stops_refuses_who_waits(settings: Settings) -> None:
    async def stop() -> list[Any]:
        rehearsals = Rehearsals(settings)
        specs = [ExperimentSpec.parse(spec_with(seed=seed)) for seed in range(3)]
        tasks = [asyncio.create_task(rehearsals.estimate(spec, f"client {spec.seed}")) for spec in specs]
        await asyncio.sleep(0)
        await rehearsals.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(stop())
    assert [(type(one), one.status) for one in found] == [(Refusal, 503)] * 3


def test_an_estimate_is_kept_and_a_lack_of_time_or_memory_only_for_a_while() -> None:
    clock = [0.0]
    memory = Memory(lambda: clock[0])
    cost = RoundCost(1, 2, 3)
    found, failed = Answer(Estimate(cost, cost), lasting=True), Answer(None, "too slow")
    memory.put("found", found)
    memory.put("failed", failed)
    clock[0] = REMEMBERED_SECONDS - 1
    assert (memory.get("found"), memory.get("failed")) == (found, failed)
    clock[0] = REMEMBERED_SECONDS
    assert (memory.get("found"), memory.get("failed")) == (found, None)
