"""Settings: where and how the service runs, never what an experiment computes."""

import hashlib
import ipaddress
import os
import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SOCKET_PATH_LIMIT = 100
"""A Unix socket's path may hold 107 bytes on Linux; stay below on every system."""

LEASE_HEARTBEATS = 3
"""So many heartbeats a worker may miss before others count it as dead."""


class Settings(BaseSettings):
    """Read from the environment: FEDARENA_HOME, FEDARENA_PORT and so on."""

    model_config = SettingsConfigDict(env_prefix="FEDARENA_", extra="ignore", validate_default=True)

    home: Path = Field(Path(".fedarena"), description="Folder of the database, the broker's socket and all other state")
    database_url: str = Field("", description="SQLAlchemy URL of the database; empty: SQLite inside HOME")
    broker_url: str = Field("", description="Celery broker URL; empty: the embedded broker inside HOME")
    host: str = Field("127.0.0.1", description="Address the web server binds to; only loopback is accepted")
    port: int = Field(8765, ge=0, le=65_535, description="Port of the web server; the next free one when it is taken")
    storage_url: str = Field(
        "", description="Folder or fsspec URL of artifacts and checkpoints that hosts share; empty: HOME/storage"
    )
    data: Path | None = Field(None, description="Folder with the data sets; empty: HOME/data")
    methods: Path | None = Field(
        None, description="Folder with further methods, one Python file each, which is run; see docs/methods.md"
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|(cpu|cuda(:\d+)?)(,(cpu|cuda:\d+))*)$",
        description="Where to train: auto, cpu, cuda or cuda:N; several with commas: a worker for each",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Forward passes in float32, or mixed with bfloat16 (torch.autocast)"
    )
    compile: bool = Field(
        False, description="Compile training steps with torch.compile; off with a warning if it fails"
    )
    stacked: Literal["auto", "on", "off"] = Field(
        "auto", description="Train clients of one architecture as one stacked network; auto: on a GPU only"
    )
    threads: int = Field(0, ge=0, le=1024, description="Torch threads of one experiment; 0: the slots share the cores")
    lease_seconds: float = Field(
        60.0, gt=0, le=86_400, description="A worker silent for so long counts as dead; the same on all hosts"
    )
    heartbeat_seconds: float = Field(
        15.0, gt=0, le=3600, description="Time between two renewals of the lease; at most a third of it"
    )
    grace_seconds: float = Field(
        30.0, ge=0, le=86_400, description="Time in which a stopping worker may finish its round"
    )
    checkpoint_every: int = Field(
        0, ge=0, le=100_000, description="Rounds between two checkpoints; 0: as often as costs 5 % of the time"
    )
    checkpoint_keep: int = Field(2, ge=1, le=100, description="Checkpoints to keep of each experiment")
    watchdog_seconds: float = Field(
        40.0,
        gt=0,
        le=3600,
        description="A worker's process without a pulse for so long is killed and its work given on",
    )
    disk_low_mb: int = Field(
        1000, ge=0, le=10_000_000, description="With less free room than this no new work is taken, in megabytes"
    )
    disk_low_percent: float = Field(
        5.0, ge=0, le=100, description="The same as a share of the disk, up to ten times the megabytes"
    )
    estimate_memory_mb: int = Field(
        5000,
        ge=100,
        le=10_000_000,
        description="Memory that the rehearsal behind an estimate may take on Linux, in megabytes; else no estimate",
    )
    estimate_seconds: float = Field(
        20.0, gt=0, le=3600, description="Time that the rehearsal behind an estimate may take; else no estimate"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="How much is logged")
    starter: bool = Field(True, description="Submit the starter comparison into an empty store")

    webhooks: bool = Field(False, description="Let sweeps tell a web address when they have ended")
    webhook_secret: str = Field(
        "", repr=False, description="Key of the signature in each message; at least 16 characters"
    )
    webhook_private: bool = Field(
        False, description="Also allow http and addresses of this machine and of private networks"
    )

    @model_validator(mode="after")
    def _messages_are_signed(self) -> Self:
        if self.webhooks and len(self.webhook_secret) < 16:
            raise ValueError("FEDARENA_WEBHOOKS=true needs a FEDARENA_WEBHOOK_SECRET of at least 16 characters")
        return self

    @model_validator(mode="after")
    def _lease_outlives_heartbeats(self) -> Self:
        if self.lease_seconds < LEASE_HEARTBEATS * self.heartbeat_seconds:
            raise ValueError(
                f"FEDARENA_LEASE_SECONDS must be at least {LEASE_HEARTBEATS} times FEDARENA_HEARTBEAT_SECONDS, else a "
                f"worker that lives loses its experiment, but got {self.lease_seconds:g} and {self.heartbeat_seconds:g}"
            )
        return self

    @property
    def compute(self) -> dict[str, Any]:
        """How an experiment is computed here: the options of engine.runtime.run.Run."""
        return {key: getattr(self, key) for key in ("device", "precision", "compile", "stacked")}

    @field_validator("home", "data", "methods", mode="after")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator("data", "methods", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @property
    def silent_seconds(self) -> float:
        """A worker that was not seen for so long does not count: it missed three heartbeats."""
        return LEASE_HEARTBEATS * self.heartbeat_seconds

    @property
    def database(self) -> str:
        """The URL in use."""
        return self.database_url or f"sqlite:///{self.home / 'fedarena.db'}"

    @property
    def storage(self) -> str:
        """The folder or URL in use."""
        return self.storage_url or str(self.home / "storage")

    @property
    def data_root(self) -> Path:
        return self.data or self.home / "data"

    @property
    def broker(self) -> str:
        """The URL in use: the given one, the one a running `fedarena serve` wrote down, or the embedded socket."""
        if self.broker_url:
            return self.broker_url
        if self.broker_file.is_file() and (written := self.broker_file.read_text().strip()):
            return written
        return f"redis+socket://{self.broker_socket}"

    @property
    def broker_socket(self) -> Path:
        """Inside HOME, or, where that path is too long for a socket, in a private folder of this user."""
        inside = self.home / "broker.sock"
        if len(os.fsencode(inside)) < SOCKET_PATH_LIMIT:
            return inside
        key = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        return base / f"fedarena-{os.getuid()}-{key}" / "broker.sock"

    @property
    def broker_file(self) -> Path:
        return self.home / "broker.url"

    @property
    def address_file(self) -> Path:
        return self.home / "address"

    @property
    def hints_folder(self) -> Path:
        """Where the fallback broker keeps its messages."""
        return self.home / "hints"

    @property
    def drain_folder(self) -> Path:
        """One file for each worker that was asked to stop; its children look for it."""
        return self.home / "drain"

    def prepare_home(self) -> None:
        """Make the state folder; nobody else may look into it."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.home.chmod(0o700)
            reason = "" if os.access(self.home, os.W_OK | os.X_OK) else "it cannot be written"
        except FileExistsError:
            reason = "it is a file, not a folder"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise HomeUnusable(f"the folder {self.home} cannot be used: {reason}; set FEDARENA_HOME to another one")

    def environment(self) -> dict[str, str]:
        """These settings as variables, for a child process that must see the same."""
        values = self.model_dump(mode="json")
        return {f"FEDARENA_{key.upper()}": "" if value is None else str(value) for key, value in values.items()}


class HomeUnusable(Exception):
    """There is no place for the database and all else; the message says why and what to do."""


class BindRefused(Exception):
    """The address would let others in, and there is no login."""


def check_bind(host: str) -> None:
    """Only this machine may reach a server without a login."""
    if not is_loopback(host):
        raise BindRefused(
            f"refusing to listen on {host}: FedArena has no login yet, so everybody who reaches that address could "
            "use it; use 127.0.0.1 (an SSH tunnel brings it to another machine)"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
