"""Commitments, boxes and confirmations: what makes a secret binding, readable for one only, or certain to be of one."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedpub.federation.secure.keys import derived
from fedpub.federation.secure.shamir import PRIME

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

# Constant, since no key seals two texts: it is derived from the attempt, the direction and a commitment to the text.
NONCE = bytes(12)

SELF, BOX, SEED = b"self-mask", b"box key", b"seed"
"""What is committed to."""


def _sealing(key: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # an extra: simulations need none of it

    return ChaCha20Poly1305(key)


def _opened(key: bytes, box: bytes, bound: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        return _sealing(key).decrypt(NONCE, box, bound)
    except InvalidTag:
        return None


def committed(context: bytes, dealer: int, holder: int, kind: bytes, value: bytes) -> bytes:
    """A hash that binds the dealer to a secret, a share or a seed. All of them are random: the hash hides them."""
    told = b"".join([context, dealer.to_bytes(4, "little"), holder.to_bytes(4, "little"), kind, b"\0", value])
    return hashlib.sha256(b"fedpub commitment\0" + told).digest()


def fits(context: bytes, dealer: int, holder: int, kind: bytes, share: bytes, said: bytes) -> bool:
    """Whether a share is a number that can be used, and the one that its dealer has committed to."""
    return int.from_bytes(share, "little") < PRIME and committed(context, dealer, holder, kind, share) == said


class Channel:
    """What two members of an attempt derive from the secret that they share, seen from the end of one of them."""

    def __init__(self, shared: bytes, context: bytes, own: int, other: int) -> None:
        self._shared, self._context, self._own, self._other = shared, context, own, other

    def seed(self) -> bytes:
        """Of the pairwise mask: the same at both ends."""
        low, high = sorted((self._own, self._other))
        return derived(self._shared, "pairwise mask", self._context, low, high)

    def sealed(self, shares: bytes, self_mask: bytes) -> bytes:
        """Shares for the other. After a restart with another vector the self-mask is another, and so is the key."""
        key = derived(self._shared, "share box i to j", self._context, self._own, self._other, also=self_mask)
        return _sealing(key).encrypt(NONCE, shares, self._context + self_mask)

    def opened(self, box: bytes, self_mask: bytes) -> bytes | None:
        """Shares from the other; None if they were not sealed for this, by the other, in this attempt."""
        key = derived(self._shared, "share box i to j", self._context, self._other, self._own, also=self_mask)
        return _opened(key, box, self._context + self_mask)

    def confirmation(self, story: bytes) -> bytes:
        key = derived(self._shared, "confirmation", self._context, self._own, self._other)
        return hmac.digest(key, story, "sha256")

    def confirms(self, story: bytes, tag: bytes) -> bool:
        """Whether the other has confirmed the same story."""
        key = derived(self._shared, "confirmation", self._context, self._other, self._own)
        return hmac.compare_digest(hmac.digest(key, story, "sha256"), tag)


def story(alive: Sequence[int], survivors: Sequence[int]) -> bytes:
    """Who is said to have deposited, and who to have survived."""
    numbers = (len(alive), *alive, *survivors)
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def boxed(context: bytes, number: int, secret: bytes, seeds: bytes) -> bytes:
    """A member's seeds under its box key."""
    return _sealing(derived(secret, "seed box", context, number)).encrypt(NONCE, seeds, context)


def unboxed(context: bytes, number: int, secret: bytes, box: bytes) -> bytes | None:
    return _opened(derived(secret, "seed box", context, number), box, context)


def self_mask_key(context: bytes, number: int, secret: bytes) -> bytes:
    """The key of a self-mask's keystream."""
    return derived(secret, "self-mask", context, number)
