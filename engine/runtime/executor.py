"""Runs the clients of a round: one after the other, or in threads with one torch thread each.

Every thread owns one replica of the networks of each architecture; a client's tensors are copied in before it works and
copied out afterwards. Results come back in the order of the jobs, so that the number of threads never changes a bit of
the result.
"""

import copy
import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TypeVar

import torch
from torch import nn

from engine.kit.tensors import Tensors, live_tensors
from engine.models import SplitModel

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_KEEP_BYTES = 1 << 30


@cache
def prepare_process() -> None:
    """One torch thread, because another number gives other bits; freed blocks stay with the process.

    glibc gives large blocks back to the kernel after every step and faults them in again: 15-22 % of the time.
    """
    torch.set_num_threads(1)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # absent in musl
            libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)


class Replica:
    """The networks of one architecture, with the names of all their tensors; one client at a time works on them."""

    def __init__(self, model: SplitModel, parts: nn.ModuleDict) -> None:
        self.model = model
        self.parts = parts
        self.tensors: Tensors = live_tensors(nn.ModuleDict({"model": model, "parts": parts}))

    def copy(self) -> "Replica":
        return Replica(*copy.deepcopy((self.model, self.parts)))


class ReplicaCache:
    """One thread's replicas, made when an architecture first comes up."""

    def __init__(self, originals: Mapping[str, Replica]) -> None:
        torch.set_num_threads(1)
        self._originals = originals
        self._replicas: dict[str, Replica] = {}

    def replica(self, architecture: str) -> Replica:
        if architecture not in self._replicas:
            self._replicas[architecture] = self._originals[architecture].copy()
        return self._replicas[architecture]


Job = TypeVar("Job")
Result = TypeVar("Result")


class ClientPool:
    """A fixed number of threads for the clients of a round."""

    def __init__(self, threads: int = 1, stream: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Every piece of a thread's work happens inside a `stream`."""
        self._stream = stream
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="client") if threads > 1 else None

    def map(self, work: Callable[[Job], Result], jobs: Sequence[Job], cost: Callable[[Job], float]) -> list[Result]:
        """The results in the order of the jobs; the longest job starts first."""
        if self._threads is None or len(jobs) < 2:
            return [work(job) for job in jobs]

        def in_own_stream(job: Job) -> Result:
            with self._stream():
                return work(job)

        longest_first = sorted(range(len(jobs)), key=lambda position: -cost(jobs[position]))
        futures = {position: self._threads.submit(in_own_stream, jobs[position]) for position in longest_first}
        try:
            return [futures[position].result() for position in range(len(jobs))]
        finally:
            for future in futures.values():
                future.cancel()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
