"""The coordinator's side of one attempt: relays what members send each other, adds, and takes the masks off the sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fedpub.errors import FedpubError
from fedpub.federation.secure import saving
from fedpub.federation.secure.attempt import Attempt, Vector, added, packed, reduced, unpacked, zeros
from fedpub.federation.secure.masks import add_mask
from fedpub.federation.secure.neighbours import lacking, neighbours
from fedpub.federation.secure.records import Dealt, Deposit, Revealed
from fedpub.federation.secure.refusals import CulpritError, NotEnoughError
from fedpub.federation.secure.sealing import self_mask_key
from fedpub.federation.secure.unmasking import Secrets


class Aggregator:
    """One attempt, step by step; whatever a member sends, it is taken as a whole or refused with a FedpubError."""

    culprits: dict[int, str]
    """Who has sent what cannot be right, and why."""

    def __init__(self, attempt: Attempt, least: int) -> None:
        if least < 2 or len(attempt.members) < least:
            raise FedpubError(
                f"a group of {len(attempt.members)} is too small: its sum needs at least {max(least, 2)} members"
            )
        self.culprits = {}
        self._attempt, self._least = attempt, least
        self._graph = neighbours(attempt)
        self._deposits: dict[int, Deposit] = {}
        self._alive: tuple[int, ...] | None = None
        self._sum = zeros(attempt.layout)
        self._masked: set[int] = set()
        self._survivors: tuple[int, ...] | None = None
        self._tags: dict[int, dict[int, bytes]] = {}
        self._answers: dict[int, bytes] = {}
        self._secrets: Secrets | None = None

    def deposited(self, number: int, data: bytes) -> None:
        """Step 1, once for each member; again only the same."""
        self._check_among(number, self._attempt.members, "deposits")
        deposit = Deposit.from_bytes(data, self._graph[number])
        if self._alive is not None and number not in self._alive:
            raise FedpubError(f"site number {number} deposits too late: others have been told who has")
        if self._deposits.setdefault(number, deposit) != deposit:
            raise FedpubError(f"site number {number} has deposited something else before")

    def alive(self) -> tuple[int, ...]:
        """Who has deposited; later deposits are refused."""
        if self._alive is None:
            self._alive = self._enough(self._deposits.keys(), "have deposited")
        return self._alive

    def for_member(self, number: int) -> dict[int, Dealt]:
        """What its neighbours have deposited for a member."""
        self._check_among(number, self.alive(), "asks for its shares")
        return {
            dealer: self._deposits[dealer].dealt[number] for dealer in self._graph[number] if dealer in self.alive()
        }

    def masked(self, number: int, data: bytes) -> None:
        """Step 2, once for each who has deposited: only the sum is kept."""
        self._check_among(number, self.alive(), "sends a masked vector")
        if self._survivors is not None or number in self._masked:
            raise FedpubError(f"a masked vector of site number {number} comes too late, or is its second")
        self._sum = added(self._attempt.layout, self._sum, unpacked(self._attempt.layout, data))
        self._masked.add(number)

    def survivors(self) -> tuple[int, ...]:
        """Whose masked vectors came; later ones are refused."""
        if self._survivors is None:
            self._close(self._enough(self._masked, "have sent a masked vector"))
        assert self._survivors is not None
        return self._survivors

    def present(self) -> tuple[int, ...]:
        """Who has taken the last step so far, whether they are enough or not."""
        return tuple(sorted(self._deposits if self._alive is None else self._masked))

    def depositors(self) -> tuple[int, ...]:
        return tuple(sorted(self._deposits))

    def confirmed(self, number: int, tags: Mapping[int, bytes]) -> None:
        """Step 3: what a survivor has for each of the others."""
        self._check_among(number, self.survivors(), "confirms")
        if set(tags) != set(self.survivors()) - {number}:
            raise FedpubError(f"the confirmations of site number {number} are not for every other survivor")
        self._tags[number] = dict(tags)

    def confirmations_for(self, number: int) -> dict[int, bytes]:
        self._check_among(number, self.survivors(), "asks for confirmations")
        return {sender: tags[number] for sender, tags in sorted(self._tags.items()) if sender != number}

    def revealed(self, number: int, data: bytes) -> list[int]:
        """Step 4: culprits found in this answer. What does not fit its commitment is left out."""
        self._check_among(number, self.survivors(), "reveals")
        assert self._secrets is not None
        dealers = [one for one in self._graph[number] if one in self.alive()]
        wrong = self._secrets.take(number, Revealed.from_bytes(data, dealers))
        self._answers[number] = data
        if wrong is None:
            return []
        self.culprits[number] = wrong
        return [number]

    def ready(self) -> bool:
        """Whether enough has been revealed for the sum."""
        return self._secrets is not None and self._secrets.lacking() is None

    def result(self) -> Vector:
        """The sum over the survivors."""
        survivors = self.survivors()
        assert self._secrets is not None
        if why := self._secrets.lacking():
            raise NotEnoughError(f"the sum cannot be unmasked: {why}")
        total = [block.copy() for block in self._sum]
        try:
            keys = {one: self._secrets.self_mask(one) for one in survivors}
            seeds = {one: self._secrets.seeds(one) for one in self.alive() if one not in survivors}
        except CulpritError as error:
            self.culprits[error.culprit] = str(error)
            raise
        for one, secret in keys.items():
            add_mask(total, self_mask_key(self._attempt.context, one, secret), -1)
        for dropped, with_survivors in seeds.items():
            for survivor, seed in with_survivors.items():
                add_mask(total, seed, -1 if dropped > survivor else 1)
        return reduced(self._attempt.layout, total)

    def saved(self) -> dict[str, bytes]:
        """All that is known once the survivors are, for `restored`."""
        if self._survivors is None:
            raise FedpubError("an attempt is saved when its survivors are known; before that it is asked again")
        return saving.saved(
            self._attempt,
            packed(self._attempt.layout, self._sum),
            (self.alive(), self._survivors),
            {number: one.to_bytes() for number, one in self._deposits.items()},
            self._tags,
            self._answers,
        )

    @staticmethod
    def restored(attempt: Attempt, least: int, saved: Mapping[str, bytes]) -> Aggregator:
        """The aggregator that was saved, as it was."""
        made = Aggregator(attempt, least)
        kept = saving.read(attempt, saved)
        for number, data in kept.deposits.items():
            made.deposited(number, data)
        made._alive = kept.alive
        made._sum = unpacked(attempt.layout, kept.total)
        made._close(kept.survivors)
        for number, tags in kept.tags.items():
            made.confirmed(number, tags)
        for number, data in kept.answers.items():
            made.revealed(number, data)
        return made

    def _close(self, survivors: tuple[int, ...]) -> None:
        self._survivors = survivors
        deposits = {one: self._deposits[one] for one in self.alive()}
        self._secrets = Secrets(self._attempt, self._graph, deposits, survivors)

    def _enough(self, present: Collection[int], what: str) -> tuple[int, ...]:
        for number in present:
            if why := lacking(self._attempt, self._least, present, self._graph[number]):
                raise NotEnoughError(f"{why} that {what}")
        if not present:
            raise NotEnoughError(f"of {len(self._attempt.members)} members none {what}")
        return tuple(sorted(present))

    def _check_among(self, number: int, known: tuple[int, ...], what: str) -> None:
        if number not in known:
            raise FedpubError(f"site number {number} {what}, and it is none of {', '.join(map(str, known))}")
