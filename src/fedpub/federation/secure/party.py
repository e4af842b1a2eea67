"""A member's side of one attempt: what a site answers to each of the coordinator's four questions.

Each answer is given once: the same question gets the same answer, another of its kind none. That is for as long as the
object lives; who asks again after a restart is a matter of the site's ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from fedpub.errors import FedpubError
from fedpub.federation.secure.attempt import Attempt, Vector, check_vector, packed
from fedpub.federation.secure.dealing import Secret, dealt_secret
from fedpub.federation.secure.keys import Exchange
from fedpub.federation.secure.masks import add_mask
from fedpub.federation.secure.neighbours import lacking, neighbours
from fedpub.federation.secure.records import Dealt, Deposit, Revealed
from fedpub.federation.secure.refusals import CulpritError, NotEnoughError
from fedpub.federation.secure.sealing import BOX, SEED, SELF, Channel, boxed, committed, fits, self_mask_key, story
from fedpub.federation.secure.shamir import SIZE


class Party:
    """`least`: how many members a sum needs; `exchange`: saves the key exchanges of a run's later attempts."""

    def __init__(
        self,
        number: int,
        private: bytes,
        attempt: Attempt,
        least: int,
        vector: Vector,
        exchange: Exchange | None = None,
    ) -> None:
        self._exchange = exchange or Exchange(private)
        if least < 2 or len(attempt.members) < least:
            raise FedpubError(
                f"a group of {len(attempt.members)} is too small: its sum needs at least {max(least, 2)} members"
            )
        if number not in attempt.members:
            raise FedpubError(f"site number {number} is asked to add, but it is not a member of the group")
        if self._exchange.private != private or attempt.key_of(number) != self._exchange.public:
            raise FedpubError(f"the group has another public key for site number {number} than it has itself")
        check_vector(attempt.layout, vector)
        self._number, self._attempt, self._least = number, attempt, least
        self._vector = vector
        self._around = neighbours(attempt)[number]
        digest = hashlib.sha256(packed(attempt.layout, vector)).digest()
        self.vector_digest = digest.hex()
        self._self_mask = self._secret(SELF, digest)
        self._box_key = self._secret(BOX, b"")
        self._alive: tuple[int, ...] | None = None
        self._held: dict[int, tuple[bytes, bytes]] = {}  # a neighbour's shares: of its self-mask, of its box key
        self._survivors: tuple[int, ...] | None = None

    @property
    def context(self) -> bytes:
        return self._attempt.context

    def deposit(self) -> Deposit:
        """Step 1: shares of both secrets for the neighbours, commitments, and the box of the pairwise seeds."""
        context, number = self._attempt.context, self._number
        own, key = self._self_mask, self._box_key
        self_mask = self._committed(number, SELF, own.value)
        dealt, seeds = {}, []
        for other in self._around:
            channel = self._channel(other)
            seeds.append(channel.seed())
            dealt[other] = Dealt(
                channel.sealed(own.shares[other] + key.shares[other], self_mask),
                self_mask,
                self._committed(other, SELF, own.shares[other]),
                self._committed(other, BOX, key.shares[other]),
                self._committed(other, SEED, seeds[-1]),
            )
        box = boxed(context, number, key.value, b"".join(seeds))
        return Deposit(self_mask, self._committed(number, BOX, key.value), dealt, box)

    def masked(self, alive: Sequence[int], received: Mapping[int, Dealt]) -> bytes:
        """Step 2: the vector under its self-mask and the masks with those neighbours that have deposited."""
        present = self._checked(alive, self._attempt.members, "a deposit")
        if self._alive not in (None, present):
            raise FedpubError("this attempt has been masked for other members: it is answered once")
        dealers = set(self._around) & set(present)
        if set(received) != dealers:
            raise FedpubError(f"shares of {_list(dealers)} are needed, and those of {_list(received)} came")
        held = {dealer: self._opened(dealer, received[dealer]) for dealer in sorted(dealers)}
        self._alive, self._held = present, held
        total = [block.copy() for block in self._vector]
        add_mask(total, self_mask_key(self._attempt.context, self._number, self._self_mask.value), 1)
        for other in sorted(dealers):
            add_mask(total, self._channel(other).seed(), 1 if other > self._number else -1)
        return packed(self._attempt.layout, total)

    def confirmed(self, survivors: Sequence[int]) -> dict[int, bytes]:
        """Step 3: for every other survivor, a proof that this member was told of the same deposits and survivors."""
        if self._alive is None:
            raise FedpubError("survivors are confirmed after the vector is masked")
        kept = self._checked(survivors, self._alive, "a masked vector")
        if self._survivors not in (None, kept):
            raise FedpubError("other survivors of this attempt have been confirmed: it is answered once")
        self._survivors = kept
        told = story(self._alive, kept)
        return {other: self._channel(other).confirmation(told) for other in kept if other != self._number}

    def revealed(self, survivors: Sequence[int], confirmations: Mapping[int, bytes]) -> Revealed:
        """Step 4: what takes off the self-masks of survivors and the pairwise masks of the others."""
        if self._alive is None or self._survivors != tuple(survivors):
            raise FedpubError("nothing is revealed for survivors that were not confirmed: it is answered once")
        told = story(self._alive, self._survivors)
        others = set(self._survivors) - {self._number}
        same = 1 + sum(
            one in others and self._channel(one).confirms(told, confirmations[one]) for one in sorted(confirmations)
        )
        needed = len(self._attempt.members) // 2 + 1  # two lists of survivors cannot both have more than half
        if same < needed:
            raise NotEnoughError(
                f"{same} of {len(self._attempt.members)} members have confirmed the same survivors, and {needed} are "
                "needed: nothing is revealed"
            )
        shares = {one: own if one in self._survivors else key for one, (own, key) in self._held.items()}
        return Revealed(self._self_mask.value, shares)

    def _secret(self, kind: bytes, also: bytes) -> Secret:
        private, context = self._exchange.private, self._attempt.context
        return dealt_secret(private, kind, context, self._number, self._around, also)

    def _committed(self, holder: int, kind: bytes, value: bytes) -> bytes:
        return committed(self._attempt.context, self._number, holder, kind, value)

    def _channel(self, other: int) -> Channel:
        shared = self._exchange.with_key(self._attempt.key_of(other))
        return Channel(shared, self._attempt.context, self._number, other)

    def _checked(self, numbers: Sequence[int], among: Sequence[int], what: str) -> tuple[int, ...]:
        """A list of members that the coordinator says have sent something; this one has."""
        found = tuple(numbers)
        if list(found) != sorted(set(found)) or not set(found) <= set(among):
            raise FedpubError(f"members {_list(found)} are said to have sent {what}, and only {_list(among)} can have")
        if self._number not in found:
            raise FedpubError(f"site number {self._number} has sent {what}, and it is said that it has not")
        if why := lacking(self._attempt, self._least, found, self._around):
            raise NotEnoughError(f"{why} after each has sent {what}")
        return found

    def _opened(self, dealer: int, dealt: Dealt) -> tuple[bytes, bytes]:
        """A neighbour's shares, as it has committed to them."""
        context, channel = self._attempt.context, self._channel(dealer)
        shares = channel.opened(dealt.sealed, dealt.self_mask)
        if shares is None:
            raise CulpritError(
                dealer,
                f"what site number {dealer} has sealed for site number {self._number} does not open: one of them has "
                "another key, or was sent something else",
            )
        own, key = shares[:SIZE], shares[SIZE:]
        for kind, value, said in ((SELF, own, dealt.self_share), (BOX, key, dealt.box_share)):
            if not fits(context, dealer, self._number, kind, value, said):
                raise CulpritError(
                    dealer,
                    f"site number {dealer} has dealt a share of its {kind.decode()} to site number {self._number} that "
                    "does not fit its commitment",
                )
        if committed(context, dealer, self._number, SEED, channel.seed()) != dealt.seed:
            raise CulpritError(dealer, f"site number {dealer} has committed to another seed than it has")
        return own, key


def _list(numbers: Sequence[int] | set[int] | Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
