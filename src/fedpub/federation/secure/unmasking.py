"""What the coordinator learns in the last step: secrets as they were revealed, or from their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpub.federation.secure import shamir
from fedpub.federation.secure.attempt import Attempt
from fedpub.federation.secure.neighbours import Graph, threshold
from fedpub.federation.secure.records import KEY, Deposit, Revealed
from fedpub.federation.secure.refusals import CulpritError, NotEnoughError
from fedpub.federation.secure.sealing import BOX, SEED, SELF, committed, unboxed


class Secrets:
    """Of one attempt whose survivors are known: their self-masks and the boxes of the others, nothing else."""

    def __init__(
        self, attempt: Attempt, graph: Graph, deposits: Mapping[int, Deposit], survivors: Sequence[int]
    ) -> None:
        self._attempt, self._graph, self._deposits = attempt, graph, deposits
        self._survivors = frozenset(survivors)
        self._own: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, int]] = {dealer: {} for dealer in deposits}

    def take(self, holder: int, revealed: Revealed) -> str | None:
        """Keep what fits its commitments; what of it does not, in words."""
        wrong = []
        if self._fits(holder, holder, SELF, revealed.own, self._deposits[holder].self_mask):
            self._own[holder] = revealed.own
        else:
            wrong.append("its self-mask")
        for dealer, share in revealed.shares.items():
            dealt = self._deposits[dealer].dealt[holder]
            kind, said = (SELF, dealt.self_share) if dealer in self._survivors else (BOX, dealt.box_share)
            if self._fits(dealer, holder, kind, share, said):
                self._shares[dealer][holder] = shamir.element(share)
            else:
                wrong.append(f"the share that site number {dealer} dealt to it")
        if not wrong:
            return None
        return f"site number {holder} has revealed something else than was committed to: {', '.join(wrong)}"

    def lacking(self) -> str | None:
        """What cannot be recovered yet, for the first member of which that is so."""
        for dealer in self._deposits:
            needed, there = threshold(len(self._graph[dealer])), len(self._shares[dealer])
            if dealer not in self._own and self._is_needed(dealer) and there < needed:
                what = SELF if dealer in self._survivors else BOX
                return f"the {what.decode()} of site number {dealer} needs {needed} shares, and {there} are there"
        return None

    def self_mask(self, survivor: int) -> bytes:
        if survivor in self._own:
            return self._own[survivor]
        return self._recovered(survivor, SELF, self._deposits[survivor].self_mask)

    def seeds(self, dropped: int) -> dict[int, bytes]:
        """The seeds that one who dropped out has with survivors."""
        if not self._is_needed(dropped):
            return {}
        context, deposit = self._attempt.context, self._deposits[dropped]
        secret = self._recovered(dropped, BOX, deposit.box_key)
        opened = unboxed(context, dropped, secret, deposit.box)
        if opened is None:
            raise CulpritError(dropped, f"the box of site number {dropped} does not open with its own key")
        seeds = {}
        for place, other in enumerate(self._graph[dropped]):
            seed = opened[place * KEY : (place + 1) * KEY]
            if committed(context, dropped, other, SEED, seed) != deposit.dealt[other].seed:
                raise CulpritError(dropped, f"the box of site number {dropped} holds other seeds than it committed to")
            if other in self._survivors:
                seeds[other] = seed
        return seeds

    def _is_needed(self, dealer: int) -> bool:
        return dealer in self._survivors or not self._survivors.isdisjoint(self._graph[dealer])

    def _fits(self, dealer: int, holder: int, kind: bytes, value: bytes, said: bytes) -> bool:
        small = int.from_bytes(value, "little") < shamir.PRIME
        return small and committed(self._attempt.context, dealer, holder, kind, value) == said

    def _recovered(self, dealer: int, kind: bytes, said: bytes) -> bytes:
        needed = threshold(len(self._graph[dealer]))
        shares = list(self._shares[dealer].items())[:needed]
        if len(shares) < needed:
            raise NotEnoughError(self.lacking() or "")
        secret = shamir.spelt(shamir.recovered(dict(shares)))
        if committed(self._attempt.context, dealer, dealer, kind, secret) != said:
            raise CulpritError(dealer, f"the shares of site number {dealer} do not give the secret it committed to")
        return secret
