"""Every random draw: a generator seeded by (experiment seed, purpose, keys), never global state.

Nothing has to be saved to resume a run, and clients may work in any order or in parallel.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_global_generator = threading.Lock()


def derive(seed: int, purpose: str, *keys: int | str) -> int:
    """A 63-bit seed that belongs to this purpose and these keys alone."""
    text = "\x1f".join([str(seed), purpose, *(f"{type(key).__name__}:{key}" for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *keys: int | str) -> torch.Generator:
    """A torch generator on the CPU, so that the draws are the same on every device."""
    return torch.Generator().manual_seed(derive(seed, purpose, *keys))


def numpy_generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive(seed, purpose, *keys)))


@contextmanager
def seeded_init(seed: int, *keys: int | str) -> Iterator[None]:
    """Build modules inside: torch's initialisers know only the global generator, so it is lent and given back."""
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init", *keys))
        yield
