"""The product as its user starts it: `fedarena serve` in a folder of its own, spoken to over HTTP."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

PATIENCE = 300.0
"""Seconds until a test gives up waiting; a limit for broken code, never a measure of speed."""

SMALL: dict[str, Any] = {
    "algorithm": {"name": "fedavg"},
    "dataset": {"name": "digits"},
    "partition": {"name": "pathological", "classes_per_client": 2},
    "models": {"family": "tiny-mlp"},
    "clients": 5,
    "participation": 1.0,
    "rounds": 8,
    "training": {"epochs": 1, "batch_size": 32, "lr": 0.05, "augment": False},
    "seed": 42,
}
"""A spec that takes a second or two."""


def small(name: str, **changes: Any) -> dict[str, Any]:
    return {**SMALL, "name": name, **changes}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """The first answer that is neither None nor False."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}")


class Product:
    """A running FedArena."""

    def __init__(self, url: str, pid: int = 0) -> None:
        self.url = url
        self.pid = pid
        """Of the web server; 0 where it is a thread of the test."""
        self.client = httpx.Client(base_url=url, timeout=30)

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def submit(self, spec: dict[str, Any]) -> str:
        answer = self.client.post("/api/experiments", json=spec)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    @contextmanager
    def running(self, spec: dict[str, Any]) -> Iterator[str]:
        """An experiment that is cancelled at the end, however the test goes: the others need the worker."""
        experiment = self.submit(spec)
        try:
            yield experiment
        finally:
            self.client.post(f"/api/experiments/{experiment}/cancel", json={})

    def rounds(self, experiment: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/api/experiments/{experiment}/rounds")["rounds"]
        return found

    def experiments(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/experiments?limit=50")["items"]
        return found

    def wait(self, experiment: str, state: str = "finished", patience: float = PATIENCE) -> dict[str, Any]:
        """The experiment once it is in that state."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.get(f"/api/experiments/{experiment}")
            ended = found["state"] in {"finished", "failed", "diverged", "cancelled"}
            assert found["state"] == state or not ended, f"ended {found['state']}: {found['error']}"
            return found if found["state"] == state else None

        return eventually(look, f"experiment {experiment} to be {state}", patience)


@contextmanager
def serve(home: Path, **settings: str) -> Iterator[Product]:
    """Start it, wait until it is ready, and stop it."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEDARENA_")}
    environment |= {"FEDARENA_HOME": str(home), "FEDARENA_PORT": str(port), **settings}
    command = [str(Path(sys.executable).with_name("fedarena")), "serve"]
    log = home.parent / f"{home.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    product = Product(f"http://127.0.0.1:{port}", process.pid)

    def ready() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"fedarena serve ended with {process.returncode}:\n{log.read_text()}")
        try:
            return product.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        eventually(ready, "fedarena serve to be ready")
        yield product
    finally:
        product.client.close()
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
