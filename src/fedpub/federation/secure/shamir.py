"""Shamir's scheme: a secret in shares, of which as many as the threshold give it back and fewer say nothing.

Secrets and shares are integers modulo 2^255 - 19, the largest prime whose residues fit into 32 bytes with room for no
second spelling that matters: `element` refuses numbers that are not reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpub.errors import FedpubError

PRIME = 2**255 - 19
SIZE = 32


def shared(secret: int, coefficients: Sequence[int], holders: Sequence[int]) -> dict[int, int]:
    """A share for each holder: the polynomial secret + c1 x + c2 x² + … at one more than its number."""
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in (*reversed(coefficients), secret):
            value = (value * (holder + 1) + coefficient) % PRIME
        shares[holder] = value
    return shares


def recovered(shares: Mapping[int, int]) -> int:
    """The polynomial at zero, by Lagrange; right if there are as many shares as the threshold, and all are right."""
    secret = 0
    for holder, value in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        secret = (secret + value * above * pow(below, -1, PRIME)) % PRIME
    return secret


def uniform(data: bytes) -> int:
    """An element from 64 random bytes: the bias of the remainder is below 2^-256."""
    return int.from_bytes(data, "little") % PRIME


def element(data: bytes) -> int:
    value = int.from_bytes(data, "little")
    if len(data) != SIZE or value >= PRIME:
        raise FedpubError("a share or a secret is not a number below 2^255 - 19 in 32 bytes")
    return value


def spelt(value: int) -> bytes:
    return value.to_bytes(SIZE, "little")
