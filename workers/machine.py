"""What a worker knows of its machine: which one it is, cores, memory, devices, versions."""

import math
import os
import platform
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

BYTES_AN_EXPERIMENT = 4 << 30
"""Device memory set aside for one experiment when slots are chosen by themselves. An estimate: what one needs depends
on its models and batches, and an experiment that does not fit fails alone, with advice."""
MOST_DEVICE_SLOTS = 8
RAM_AN_EXPERIMENT = 2 << 30
"""The same of the machine's memory, for experiments on the CPU. Cores without a slot of their own are not idle: the
slots there are have more threads."""


def identity() -> str:
    """Two processes with the same one see the same process numbers.

    The host's name is not enough: containers may share it, and a machine keeps it when it starts again.
    """
    parts = [socket.gethostname(), _read("/proc/sys/kernel/random/boot_id")]
    try:
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append("")
    return " ".join(parts)[:200]


def cores() -> int:
    """How many this process may use: under taskset, in a container or with a quota fewer than the machine has."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    group = next((line[3:] for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    return max(1, min(len(os.sched_getaffinity(0)), quota_of(Path("/sys/fs/cgroup") / group.lstrip("/"))))


def quota_of(group: Path) -> int:
    """Cores that Linux lets a control group use, by the strictest of those it lies in; begun ones count whole."""
    strictest = math.inf
    for folder in (group, *group.parents):
        quota, _, period = _read(str(folder / "cpu.max")).partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            strictest = min(strictest, int(quota) / int(period))
    return sys.maxsize if strictest == math.inf else math.ceil(strictest)


def memory() -> tuple[int, int] | None:
    """Bytes of RAM free for use, and in all; None where the system does not say."""
    lines = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    try:
        return tuple(int(lines[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))  # type: ignore[return-value]
    except (KeyError, ValueError, IndexError):
        return None


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("fedarena", "torch", "celery"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def devices(wanted: str) -> list[str]:
    """The devices that a setting names, each by its own name; auto: all GPUs, else the CPU."""
    if wanted != "auto":
        return list(dict.fromkeys(wanted.split(",")))
    count = _ask_torch("torch.cuda.device_count()") if Path("/dev/nvidia0").exists() else 0
    return [f"cuda:{number}" for number in range(count)] or ["cpu"]


def slots_for(device: str) -> int:
    """How many experiments a device takes at once: a core each, as far as they fit into the free memory."""
    if device == "cpu":
        here = memory()
        return cores() if here is None else max(1, min(cores(), here[0] // RAM_AN_EXPERIMENT))
    free = _ask_torch(f"torch.cuda.mem_get_info({device!r})[0]")
    return max(1, min(MOST_DEVICE_SLOTS, free // BYTES_AN_EXPERIMENT))


def _ask_torch(expression: str) -> int:
    """In a process of its own, so that this one stays small and holds no device; 0 where torch cannot tell."""
    command = [sys.executable, "-c", f"import torch; print({expression})"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(answer.stdout) if answer.returncode == 0 and answer.stdout.strip().isdecimal() else 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
