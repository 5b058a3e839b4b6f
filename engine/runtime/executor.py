"""Runs the clients of a round: one after the other, or in threads with one torch thread each.

Every thread owns one set of networks per architecture; a client's tensors are copied in before it works and copied out
afterwards. Results come back in the order of the jobs, so that the number of threads never changes a bit of the result.
"""

import copy
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Generic, TypeVar

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


class Desk:
    """The networks of one architecture in one thread, with the names of all their tensors."""

    def __init__(self, model: SplitModel, parts: nn.ModuleDict) -> None:
        self.model = model
        self.parts = parts
        self.tensors: Tensors = live_tensors(nn.ModuleDict({"model": model, "parts": parts}))

    def copy(self) -> "Desk":
        return Desk(*copy.deepcopy((self.model, self.parts)))


class Bench:
    """One thread's desks, made when an architecture first comes up."""

    def __init__(self, originals: dict[str, Desk]) -> None:
        self._originals = originals
        self._desks: dict[str, Desk] = {}

    def desk(self, architecture: str) -> Desk:
        if architecture not in self._desks:
            self._desks[architecture] = self._originals[architecture].copy()
        return self._desks[architecture]


Job = TypeVar("Job")
Result = TypeVar("Result")


class Crew(Generic[Job]):
    """A fixed number of threads, each with its bench."""

    def __init__(
        self,
        originals: dict[str, Desk],
        threads: int,
        lane: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Every piece of a thread's work happens inside a `lane`."""
        self._originals = originals
        self._lane = lane
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="client") if threads > 1 else None

    def _bench(self) -> Bench:
        if not hasattr(self._local, "bench"):
            torch.set_num_threads(1)
            self._local.bench = Bench(self._originals)
        bench: Bench = self._local.bench
        return bench

    def map(
        self, work: Callable[[Bench, Job], Result], jobs: Sequence[Job], cost: Callable[[Job], float]
    ) -> list[Result]:
        """The results in the order of the jobs; the longest job starts first."""
        if self._pool is None or len(jobs) < 2:
            return [work(self._bench(), job) for job in jobs]

        def at_own_bench(job: Job) -> Result:
            with self._lane():
                return work(self._bench(), job)

        longest_first = sorted(range(len(jobs)), key=lambda position: -cost(jobs[position]))
        futures = {position: self._pool.submit(at_own_bench, jobs[position]) for position in longest_first}
        try:
            return [futures[position].result() for position in range(len(jobs))]
        finally:
            for future in futures.values():
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
