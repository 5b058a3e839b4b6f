"""`fedarena serve`, whole: web, worker and broker as a user starts and stops them."""

import asyncio
import os
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.client import FedArena
from app.config import Settings
from app.main import listen
from app.starter import SPECS
from app.store.database import Database
from app.store.states import State
from engine import catalogue
from engine.spec.experiment import ExperimentSpec
from tests.chaos.storm import Plan, spec_of, undisturbed_sweep
from tests.services import ROOT, environment, fedarena, http, look, served, serving, spec_with, wait_until
from tests.workers.processes import stored
from workers.embedded import AlreadyServing, Supervisor

pytestmark = pytest.mark.chaos


def family(pid: int) -> set[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, new = {pid} & set(parents), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def any_alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if family(pid)}


def all_dead(pids: set[int]) -> bool:
    return not any_alive(pids)


def test_serve_starts_the_comparison_stops_without_a_trace_and_finds_its_data_again(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = settings.model_copy(update={"port": port, "starter": True})
        with served(settings, "--workers", "1") as (process, address), FedArena(address) as arena:
            assert int(address.rpartition(":")[2]) > port, "the next free port"
            with pytest.raises(AlreadyServing, match=f"already runs on {settings.home}: {address}"):
                Supervisor(settings, slots=1)
            submitted = arena.experiments()["items"]
            key = submitted[-1]["id"]
            wait_until(lambda: arena.experiment(key)["next_round"] > 2, what="the first rounds")
            with arena._http.stream("GET", "/api/events") as stream:
                next(stream.iter_lines())  # an open dashboard must not hold up the end
                pids = family(process.pid)
                assert len(pids) >= 4, "web, broker, worker and its child"
                process.send_signal(signal.SIGINT)
                assert process.wait(timeout=60) == 0
    assert {item["name"] for item in submitted} == {spec["name"] for spec in SPECS}
    assert any_alive(pids) == set()
    left = {path.name for path in settings.home.iterdir()}
    assert left & {"broker.sock", "broker.pid", "broker.url", "address"} == set()
    with served(settings, "--no-worker") as (process, address):
        with FedArena(address) as arena:
            again = arena.experiments()["items"]
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert {item["id"] for item in again} == {item["id"] for item in submitted}, "submitted once"
    assert {(item["state"], item["owner"]) for item in again} == {("queued", None)}, "given back"
    assert again[-1]["next_round"] > 2


def test_nothing_survives_a_killed_serve_and_a_killed_worker_is_replaced(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0.0})
    with served(settings, "--workers", "1") as (process, _):
        first = wait_until(lambda: worker_pid(process.pid), what="the worker")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: worker_pid(process.pid) not in (first, None), what="another worker")
        pids = family(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda: not any_alive(pids), what="the end of all children")


@pytest.mark.slow
def test_a_sweep_ends_although_everything_is_stopped_and_started_twenty_times(settings: Settings) -> None:
    """In turn politely, by SIGTERM, and by pulling the plug."""
    settings = settings.model_copy(update={"port": 0})
    plan = Plan(experiments=6, rounds=200, epochs=20, kills=0)
    keys: list[str] = []
    for number in range(21):
        with served(settings, "--workers", "2") as (process, address), FedArena(address) as arena:
            if not keys:
                keys = [arena.submit(spec_with(**spec_of(number, plan)))["id"] for number in range(plan.experiments)]
            enough = stored_rounds(arena) + 30 if number < 20 else plan.experiments * (plan.rounds + 1)
            wait_until(partial(has_stored, arena, enough), seconds=300, what="more rounds")
            pids = family(process.pid)
            process.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[number % 3])
            process.wait(timeout=120)
            wait_until(partial(all_dead, pids), what="the end of all children")
    database = Database(settings.database)
    assert {look(database, key).state for key in keys} == {State.FINISHED}
    for key, expected in zip(keys, undisturbed_sweep(len(keys), plan), strict=True):
        assert stored(database, key) == expected
    database.close()


def has_stored(arena: FedArena, rounds: int) -> bool:
    return stored_rounds(arena) >= rounds


def stored_rounds(arena: FedArena) -> int:
    return sum(item["next_round"] for item in arena.experiments()["items"])


DEADLY = """
import os, signal
from sqlalchemy import event
from app.store import idempotency
keep = idempotency.keep
def die(session):
    if os.path.exists(os.environ["DEADLY"]):
        os.kill(os.getpid(), signal.SIGKILL)
def deadly(session, *arguments):
    keep(session, *arguments)
    event.listen(session, "after_commit", die)
idempotency.keep = deadly
"""
"""Ends the server between the commit of a submission and its answer, as long as the file is there."""


def test_a_submission_whose_answer_was_lost_is_there_once(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"port": 0})
    (tmp_path / "sitecustomize.py").write_text(DEADLY)
    deadly = tmp_path / "deadly"
    deadly.touch()
    variables = {"DEADLY": str(deadly), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    request: dict[str, Any] = {"json": spec_with(), "headers": {"Idempotency-Key": "lost"}}
    with served(settings, "--no-worker", **variables) as (process, address), http(address) as client:
        with pytest.raises(httpx.TransportError):
            client.post("/api/experiments", **request)
        assert process.wait(timeout=60) == -signal.SIGKILL
    with serving(settings) as address, http(address) as client:
        answer = client.post("/api/experiments", **request)
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
        assert [item["id"] for item in client.get("/api/experiments").json()["items"]] == [answer.json()["id"]]


def worker_pid(supervisor: int) -> int | None:
    for pid in family(supervisor) - {supervisor}:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"workers.launch" in command:
            return pid
    return None


def test_serve_refuses_an_address_that_others_could_reach(settings: Settings) -> None:
    command = fedarena("serve", "--host", "0.0.0.0")
    found = subprocess.run(command, env=environment(settings), cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "refusing to listen on 0.0.0.0" in found.stderr
    assert not settings.address_file.exists()


def test_an_answer_is_sent_at_once_and_does_not_wait_for_the_one_before_to_arrive() -> None:
    async def without_delay() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            told.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(answer, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await told
            writer.close()
        return found

    assert asyncio.run(without_delay())


def test_the_starter_specs_can_run_without_any_data_folder() -> None:
    for spec in SPECS:
        catalogue.check(ExperimentSpec.parse(spec), None)
