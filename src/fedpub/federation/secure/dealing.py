"""A member's two secrets of an attempt and their shares.

All is derived from its private key: after a restart the same question gets the same answer. What belongs to the
self-mask also depends on the vector, so that two vectors never get the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpub.federation.secure import shamir
from fedpub.federation.secure.keys import derived
from fedpub.federation.secure.neighbours import threshold

WIDE = 64  # random bytes for one element


@dataclass(frozen=True)
class Secret:
    value: bytes
    shares: dict[int, bytes]
    """For each holder."""


def dealt_secret(
    private: bytes, kind: bytes, context: bytes, number: int, holders: Sequence[int], also: bytes
) -> Secret:
    """A secret of one kind, shared among the holders; `also`: what it depends on beside the attempt."""
    name = kind.decode()
    drawn = [
        shamir.uniform(derived(private, f"{name} coefficient", context, number, power, also=also, length=WIDE))
        for power in range(threshold(len(holders)))
    ]
    shares = shamir.shared(drawn[0], drawn[1:], holders)
    return Secret(shamir.spelt(drawn[0]), {holder: shamir.spelt(share) for holder, share in shares.items()})
