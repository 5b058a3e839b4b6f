"""Whether a worker's device can be used, and the note by which its processes tell each other that it cannot."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from app.config import Settings

ANSWER_SECONDS = 120.0
"""A device that has not computed one number by then hangs."""
AGAIN_SECONDS = 60.0
"""How often a broken device is tried again."""


class DeviceUnusable(Exception):
    """The device of this worker does not compute; the message says why."""


def why_unusable(device: str) -> str | None:
    """The reason in words; None: it computes. Asked in a process of its own: after an error of CUDA this one cannot.

    A device without free memory counts as usable: it is there, and others hold it.
    """
    if not device.startswith("cuda"):
        return None
    command = [sys.executable, "-c", f"import torch; torch.zeros(1, device={device!r})"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{device} cannot be used: it did not answer within {ANSWER_SECONDS:.0f} s"
    if answer.returncode == 0 or "out of memory" in answer.stderr:
        return None
    said = next((line for line in reversed(answer.stderr.splitlines()) if "Error" in line), f"code {answer.returncode}")
    return f"{device} cannot be used: {said.strip()[:300]}"


def require_device(device: str) -> None:
    """A worker that cannot compute must not begin: it would only take experiments from those that can."""
    if (reason := why_unusable(device)) is not None:
        raise DeviceUnusable(f"{reason}; choose another one with --device or FEDARENA_DEVICE (auto, cpu, cuda:N)")


class DeviceTrouble:
    """One worker's note that its device broke: a file, because one of its processes writes it and others read it."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._device = settings.device
        self._path: Path = settings.home / "trouble" / hashlib.sha256(worker.encode()).hexdigest()[:32]

    def note(self, reason: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.write_text(reason)

    def reason(self) -> str | None:
        """What was noted; None: nothing."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return None

    def persists(self) -> str | None:
        """The same, but after a while the device is tried again, and where it computes the note is gone."""
        reason = self.reason()
        if reason is None or self._is_young():
            return reason
        reason = why_unusable(self._device)
        if reason is None:
            self.clear()
        else:
            self.note(reason)
        return reason

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def _is_young(self) -> bool:
        try:
            return time.time() - self._path.stat().st_mtime < AGAIN_SECONDS
        except FileNotFoundError:  # another process tried just now, and it computes
            return False
