"""Random streams named by what they are for.

A stream is derived from (seed, words): two purposes never share one, and adding a purpose moves no other.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose."""
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *purpose))


def torch_stream(seed: int, *purpose: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, *purpose))
