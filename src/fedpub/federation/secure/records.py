"""What members and coordinator send each other, as bytes of a constant format.

All parts have fixed sizes, so that the length of what is right is known beforehand, and any other length is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpub.errors import FedpubError
from fedpub.federation.secure.shamir import SIZE as ELEMENT

NUMBER, HASH, KEY, TAG = 4, 32, 32, 16
SEALED = 2 * ELEMENT + TAG
DEALT = SEALED + 4 * HASH
FOR_ONE = SEALED + 3 * HASH + KEY  # of a deposit, for each neighbour: what is dealt, and a seed in the box


@dataclass(frozen=True)
class Dealt:
    """What a dealer has deposited for one neighbour, which holds its shares."""

    sealed: bytes
    """The shares of the dealer's self-mask and of its box key, which only the holder can open."""
    self_mask: bytes
    """The dealer's commitment to the secret of its self-mask; those below are to what the holder gets or derives."""
    self_share: bytes
    box_share: bytes
    seed: bytes

    def to_bytes(self) -> bytes:
        return self.sealed + self.self_mask + self.self_share + self.box_share + self.seed

    @staticmethod
    def from_bytes(data: bytes) -> Dealt:
        sealed, *hashes = parts(data, (SEALED, HASH, HASH, HASH, HASH), "what was dealt for a member")
        return Dealt(sealed, *hashes)


@dataclass(frozen=True)
class Deposit:
    """All that a member deposits before anything is masked."""

    self_mask: bytes
    box_key: bytes
    """Commitments to its two secrets."""
    dealt: dict[int, Dealt]
    """For every neighbour."""
    box: bytes
    """Its seeds of the pairwise masks, for those who find the box key from its shares."""

    def to_bytes(self) -> bytes:
        dealt = [one.sealed + one.self_share + one.box_share + one.seed for _, one in sorted(self.dealt.items())]
        return b"".join([self.self_mask, self.box_key, *dealt, self.box])

    @staticmethod
    def from_bytes(data: bytes, neighbours: Sequence[int]) -> Deposit:
        """For these neighbours, ascending."""
        each = (SEALED, HASH, HASH, HASH)
        sizes = (HASH, HASH, *each * len(neighbours), KEY * len(neighbours) + TAG)
        self_mask, box_key, *found, box = parts(data, sizes, "a deposit")
        dealt = {
            one: Dealt(found[at], self_mask, *found[at + 1 : at + 4])
            for one, at in zip(neighbours, range(0, len(found), len(each)), strict=True)
        }
        return Deposit(self_mask, box_key, dealt, box)


@dataclass(frozen=True)
class Revealed:
    """What a member reveals: its own self-mask secret, and of each neighbour one share, never both."""

    own: bytes
    shares: dict[int, bytes]
    """Of the self-mask of a neighbour that survived, of the box key of one that did not."""

    def to_bytes(self) -> bytes:
        return b"".join([self.own, *(share for _, share in sorted(self.shares.items()))])

    @staticmethod
    def from_bytes(data: bytes, dealers: Sequence[int]) -> Revealed:
        """Shares of these dealers, ascending."""
        own, *shares = parts(data, (ELEMENT,) * (1 + len(dealers)), "what a member reveals")
        return Revealed(own, dict(zip(dealers, shares, strict=True)))


def dealt_bytes(dealt: Mapping[int, Dealt]) -> bytes:
    return records_bytes({number: one.to_bytes() for number, one in dealt.items()})


def dealt_of(data: bytes) -> dict[int, Dealt]:
    return {number: Dealt.from_bytes(one) for number, one in records_of(data, DEALT).items()}


def tags_bytes(tags: Mapping[int, bytes]) -> bytes:
    return records_bytes(tags)


def tags_of(data: bytes) -> dict[int, bytes]:
    return records_of(data, HASH)


def records_bytes(records: Mapping[int, bytes]) -> bytes:
    """Something of the same length for each number: the number in four bytes, then it, ascending."""
    return b"".join(number.to_bytes(NUMBER, "little") + one for number, one in sorted(records.items()))


def records_of(data: bytes, size: int) -> dict[int, bytes]:
    each = NUMBER + size
    if len(data) % each:
        raise FedpubError(
            f"records of {each} bytes cannot fill {len(data)} bytes: the message is cut short or too long"
        )
    found = [data[at : at + each] for at in range(0, len(data), each)]
    numbers = [int.from_bytes(one[:NUMBER], "little") for one in found]
    if numbers != sorted(set(numbers)):
        raise FedpubError("the numbers in a message are not ascending")
    return {number: one[NUMBER:] for number, one in zip(numbers, found, strict=True)}


def parts(data: bytes, sizes: Sequence[int], what: str) -> list[bytes]:
    if len(data) != sum(sizes):
        raise FedpubError(f"{what} has {sum(sizes)} bytes in this attempt, and {len(data)} came")
    found, at = [], 0
    for size in sizes:
        found.append(data[at : at + size])
        at += size
    return found
