"""What all members of a group agree on before they add their vectors, and the vectors themselves.

A vector is a list of arrays of unsigned integers, one per block of the layout. Sums are modulo 2^bits of their block.
Words of 24 bits lie in 32 and take three bytes on the way; their upper eight bits mean nothing until they are packed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpub.errors import FedpubError

PROTOCOL, VERSION = "fedpub secure aggregation", 1
PUBLIC = 32  # bytes of an X25519 key
MOST = 2**32  # numbers, of sites and of words, take four bytes
STORED = {8: np.uint8, 16: np.uint16, 24: np.uint32, 32: np.uint32, 64: np.uint64}

Layout = Sequence[tuple[int, int]]
"""Bits of a word and number of words, per block."""
Vector = list[NDArray[Any]]


@dataclass(frozen=True)
class Attempt:
    """One sum over one group. Members who do not agree on all of this derive different masks, which do not cancel."""

    run: str
    round: int
    attempt: int
    group: int
    members: tuple[int, ...]
    """Numbers of the sites, ascending."""
    keys: tuple[bytes, ...]
    """Their X25519 public keys of this run, in that order."""
    message: str
    """Digest (hex) of what every member was sent in this round."""
    layout: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if list(self.members) != sorted(set(self.members)) or not all(0 <= one < MOST for one in self.members):
            raise FedpubError("the members of a group must be different numbers below 2^32, in ascending order")
        if len(self.keys) != len(self.members) or any(len(key) != PUBLIC for key in self.keys):
            raise FedpubError(f"a group of {len(self.members)} needs as many public keys of {PUBLIC} bytes each")
        if len(set(self.keys)) != len(self.keys):
            raise FedpubError("two members of a group have the same public key: every site makes its own")
        for bits, count in self.layout:
            if bits not in STORED or not 0 <= count < MOST:
                raise FedpubError(
                    f"a block of {count} words of {bits} bits cannot be added: "
                    f"words have {', '.join(map(str, STORED))} bits, and there are fewer than 2^32"
                )

    @cached_property
    def context(self) -> bytes:
        """A hash of all this, which is part of every derivation."""
        told = asdict(self) | {"keys": [key.hex() for key in self.keys], "protocol": PROTOCOL, "version": VERSION}
        return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).digest()

    def key_of(self, number: int) -> bytes:
        return self.keys[self.members.index(number)]


def zeros(layout: Layout) -> Vector:
    return [np.zeros(count, STORED[bits]) for bits, count in layout]


def size_of(layout: Layout) -> int:
    """Bytes of a packed vector."""
    return sum(bits // 8 * count for bits, count in layout)


def packed(layout: Layout, vector: Vector) -> bytes:
    """Little endian, one block after the other; nothing but the layout determines the length."""
    check_vector(layout, vector)
    chunks = []
    for (bits, _), block in zip(layout, vector, strict=True):
        little = np.ascontiguousarray(block, block.dtype.newbyteorder("<"))
        chunks.append(little.view(np.uint8).reshape(-1, 4)[:, :3].tobytes() if bits == 24 else little.tobytes())
    return b"".join(chunks)


def unpacked(layout: Layout, data: bytes) -> Vector:
    """The vector that was packed; a FedpubError if the length is wrong."""
    if len(data) != size_of(layout):
        raise FedpubError(f"a vector of {len(data)} bytes came, and by its layout it has {size_of(layout)}")
    vector, at = [], 0
    for bits, count in layout:
        size = bits // 8 * count
        raw = np.frombuffer(data, np.uint8, size, at)
        at += size
        if bits == 24:
            wide = np.zeros((count, 4), np.uint8)
            wide[:, :3] = raw.reshape(count, 3)
            raw = wide.reshape(-1)
        stored = np.dtype(STORED[bits])
        vector.append(raw.view(stored.newbyteorder("<")).astype(stored))
    return vector


def reduced(layout: Layout, vector: Vector) -> Vector:
    """Words of 24 bits without what overflowed into their upper eight; other words wrap by themselves."""
    return [
        block & np.uint32(0xFFFFFF) if bits == 24 else block for (bits, _), block in zip(layout, vector, strict=True)
    ]


def added(layout: Layout, a: Vector, b: Vector) -> Vector:
    check_vector(layout, a)
    check_vector(layout, b)
    return reduced(layout, [one + other for one, other in zip(a, b, strict=True)])


def check_vector(layout: Layout, vector: Vector) -> None:
    wanted = [(np.dtype(STORED[bits]), (count,)) for bits, count in layout]
    found = [(block.dtype, block.shape) for block in vector]
    if wanted != found:
        raise FedpubError(f"a vector of blocks {_shown(found)} does not have the layout {_shown(wanted)}")


def _shown(blocks: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in blocks) or "of no words"
