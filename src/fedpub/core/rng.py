"""Random streams named by what they are for.

A stream is derived from (seed, words): two purposes never share one, and adding a purpose changes no other.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose."""
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *purpose))


def torch_stream(seed: int, *purpose: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, *purpose))


def stream_keys(seed: int, client_K: Tensor, *purpose: str | int) -> Tensor:
    """A 64-bit key for every client by its number, whichever other clients are stacked with it."""
    return client_keys(client_K, derive(seed, *purpose))


def client_keys(client_K: Tensor, derived: int | Tensor) -> Tensor:
    """Keys as in `stream_keys`, from a seed that is already derived."""
    return _mix64(client_K * _GOLDEN + derived)


def counter_words(key: Tensor, counter: Tensor) -> Tensor:
    """A 63-bit word for every key and counter, the same on every device."""
    return _shift(_mix64(key ^ _mix64((counter + 1) * _GOLDEN)), 1, 64)


def dropout_mask(key_K: Tensor, owner_N: Tensor, row_N: Tensor, width: int, p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability p, else 1 / (1 − p), for every entry of an [N, width] tensor.

    Counter-based: an entry depends on its client's key, its row within the client and its column alone, the same on
    every device. Each 32-bit hash gives four entries, so that p is rounded to a multiple of 1/256.
    """
    columns = torch.arange(-(-width // 4), dtype=torch.int32, device=row_N.device)
    word = row_N.to(torch.int32).unsqueeze(1) * len(columns) + columns
    key_N = key_K[owner_N]
    word ^= key_N.to(torch.int32).unsqueeze(1)
    word = _mix32(word)
    word ^= (key_N >> 32).to(torch.int32).unsqueeze(1)
    word = _mix32(word)
    threshold = round(p * 256)
    kept = word.view(torch.uint8)[:, :width] >= threshold
    return kept.to(dtype).mul_(256 / (256 - threshold))


def _mix64(word: Tensor) -> Tensor:
    """The finaliser of splitmix64: a bijection of 64-bit words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ _shift(word, shift, 64)) * _signed(factor, 64)
    return word ^ _shift(word, 31, 64)


def _mix32(word: Tensor) -> Tensor:
    """A bijection of 32-bit words in which every input bit reaches every output bit; in place."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        word ^= _shift(word, shift, 32)
        word *= _signed(factor, 32)
    word ^= _shift(word, 15, 32)
    return word


def _shift(word: Tensor, by: int, bits: int) -> Tensor:
    """A logical shift to the right; torch's keeps the sign."""
    return (word >> by).bitwise_and_((1 << (bits - by)) - 1)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


_GOLDEN = _signed(0x9E3779B97F4A7C15, 64)
