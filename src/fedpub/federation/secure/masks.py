"""Masks: the keystream of ChaCha20 (RFC 8439), added to a vector word by word or taken off again.

Words of 24 bits take four bytes of keystream. What these add above the lowest 24 bits is dropped when the vector is
packed, so that the mask is uniform modulo 2^24.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpub.federation.secure.attempt import Vector

PIECE = 2**16  # bytes: zeros, keystream and words of one piece stay in the processor's cache
ZEROS = bytes(PIECE)
NONCE = bytes(16)  # constant: a key makes one keystream, from its beginning


class Keystream:
    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # an extra: simulations need none of it

        self._cipher = Cipher(algorithms.ChaCha20(key, NONCE), mode=None).encryptor()
        self._piece = bytearray(PIECE)

    def words(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The next words, of at most a piece; they are gone when the next are taken."""
        self._cipher.update_into(memoryview(ZEROS)[: count * dtype.itemsize], self._piece)
        return np.frombuffer(self._piece, dtype.newbyteorder("<"), count)


def add_mask(total: Vector, key: bytes, sign: int) -> None:
    """Add the key's mask to a vector in place, or take it off where the sign is -1."""
    change = np.add if sign > 0 else np.subtract
    stream = Keystream(key)
    for block in total:
        step = PIECE // block.itemsize
        for start in range(0, len(block), step):
            piece = block[start : start + step]
            change(piece, stream.words(len(piece), block.dtype), out=piece)
