"""A masked vector is uniform to all who do not hold the other end of one mask: a statistic, and protocols that fail it.

What the coordinator and its colluders know: private keys of the colluders, all deposits, masked vectors, confirmations
and answers. From an honest member's masked vector they take off every mask that they can compute; what is left is
counted, byte by byte, over many runs with other keys but the same vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from scipy.stats import chisquare
from secure_groups import private_of

from fedpub.federation.secure import masks, party, shamir
from fedpub.federation.secure.attempt import Attempt
from fedpub.federation.secure.keys import Exchange
from fedpub.federation.secure.masks import add_mask
from fedpub.federation.secure.neighbours import threshold
from fedpub.federation.secure.party import Party
from fedpub.federation.secure.records import Dealt, Revealed
from fedpub.federation.secure.sealing import BOX, Channel, committed, self_mask_key, unboxed

WORDS, RUNS = 64, 400
VECTORS = [np.full(WORDS, 7 * one, np.uint8) for one in range(7)]  # all words of one member are the same


def uniform(left: Iterable[np.ndarray]) -> bool:
    """Whether bytes are as if drawn uniformly: Pearson's chi-square test of 256 values, at one in a million."""
    counts = np.bincount(np.concatenate(list(left)), minlength=256)
    assert counts.sum() >= 256 * 20, "too few for the test"
    return bool(chisquare(counts).pvalue > 1e-6)


def test_the_statistic_itself():
    rng = np.random.default_rng(1)
    fair = rng.integers(0, 256, (100, 256), np.uint64).astype(np.uint8)
    assert uniform(fair)
    assert not uniform(fair // 2)
    assert not uniform([*fair, *[VECTORS[1]] * 20])


class Watched:
    """One attempt with keys of its own, and what the coordinator and its colluders get to see of it."""

    def __init__(
        self, run: int, honest: Sequence[int], colluding: Sequence[int], dropped: int | None = None, attempt: int = 0
    ):
        self.members = tuple(sorted([*honest, *colluding]))
        self.exchanges = {one: Exchange(private_of(one, run)) for one in self.members}
        keys = tuple(self.exchanges[one].public for one in self.members)
        self.attempt = Attempt("r", 1, attempt, 0, self.members, keys, "00", ((8, WORDS),))
        self.colluding = colluding
        parties = {one: self._party(one) for one in self.members}
        self.deposits = {one: member.deposit() for one, member in parties.items()}
        self.dealt: dict[int, dict[int, Dealt]] = {
            one: {dealer: deposit.dealt[one] for dealer, deposit in self.deposits.items() if dealer != one}
            for one in self.members
        }
        self.masked = {
            one: np.frombuffer(member.masked(self.members, self.dealt[one]), np.uint8)
            for one, member in parties.items()
        }  # of one who dropped out: it came too late
        self.survivors = tuple(one for one in self.members if one != dropped)
        tags = {one: parties[one].confirmed(self.survivors) for one in self.survivors}
        self.revealed: dict[int, Revealed] = {
            one: parties[one].revealed(
                self.survivors, {other: sent[one] for other, sent in tags.items() if other != one}
            )
            for one in self.survivors
        }

    def _party(self, number: int) -> Party:
        exchange = self.exchanges[number]
        return Party(number, exchange.private, self.attempt, 3, [VECTORS[number]], exchange)

    def self_key(self, survivor: int) -> bytes:
        return party.self_mask_key(self.attempt.context, survivor, self.revealed[survivor].own)

    def without_known_masks(self, honest: int) -> np.ndarray:
        """A survivor's masked vector without its self-mask, and without the masks that colluders have the key of."""
        left = [self.masked[honest].copy()]
        add_mask(left, self.self_key(honest), -1)
        for one in self.colluding:
            shared = self.exchanges[one].with_key(self.exchanges[honest].public)
            seed = Channel(shared, self.attempt.context, one, honest).seed()
            add_mask(left, seed, -1 if one > honest else 1)
        return left[0]

    def without_pairwise_masks(self, dropped: int) -> np.ndarray:
        """The vector that came too late, without the masks whose seeds are in the box that was opened."""
        shares = {one: shamir.element(answer.shares[dropped]) for one, answer in self.revealed.items()}
        secret = shamir.spelt(shamir.recovered(dict(list(shares.items())[: threshold(len(self.members) - 1)])))
        seeds = unboxed(self.attempt.context, dropped, secret, self.deposits[dropped].box)
        assert seeds is not None
        left = [self.masked[dropped].copy()]
        for place, other in enumerate(one for one in self.members if one != dropped):
            add_mask(left, seeds[32 * place : 32 * place + 32], -1 if other > dropped else 1)
        return left[0]

    def shares_of_colluders(self, honest: int) -> list[bytes]:
        """Shares of a member's box key: those that were sealed for the colluders."""
        found = []
        for one in self.colluding:
            dealt = self.dealt[one][honest]
            shared = self.exchanges[one].with_key(self.exchanges[honest].public)
            opened = Channel(shared, self.attempt.context, one, honest).opened(dealt.sealed, dealt.self_mask)
            assert opened is not None
            found.append(opened[32:])
        return found


Mutation = Callable[[pytest.MonkeyPatch], None]


def no_pairwise_masks(patch: pytest.MonkeyPatch) -> None:
    keys = set()

    def self_key(*values: object) -> bytes:
        keys.add(made := self_mask_key(*values))
        return made

    patch.setattr(party, "self_mask_key", self_key)
    patch.setattr(party, "add_mask", lambda total, key, sign: add_mask(total, key, sign) if key in keys else None)


def a_constant_keystream(patch: pytest.MonkeyPatch) -> None:
    made = masks.Keystream.__init__
    patch.setattr(masks.Keystream, "__init__", lambda self, key: made(self, bytes(32)))


def self_masks_of_no_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(party, "self_mask_key", lambda context, number, secret: hashlib.sha256(bytes([number])).digest())


def left_of_survivor(honest: Sequence[int], colluding: Sequence[int], runs: int = RUNS) -> list[np.ndarray]:
    return [Watched(run, honest, colluding).without_known_masks(honest[0]) for run in range(runs)]


@pytest.mark.parametrize(("honest", "colluding"), [((0, 2), (1,)), ((2, 1), (0,)), ((3, 1, 2, 5), (0, 4, 6))])
def test_of_an_honest_member_nothing_is_left_but_noise(honest, colluding):
    """All but two of three collude with the coordinator, or as many as may of seven."""
    runs = RUNS if len(honest) == 2 else RUNS // 4
    assert uniform(left_of_survivor(honest, colluding, runs))


def test_the_colluders_shares_do_not_give_the_box_key():
    """One share fewer than the threshold. With one honest member's share added, they do: the statistic can fail."""
    for run in range(20):
        seen = Watched(run, (3, 1, 2, 5), (0, 4, 6), dropped=None)
        shares = dict(zip(seen.colluding, map(shamir.element, seen.shares_of_colluders(3)), strict=True))
        assert len(shares) == threshold(6) - 1
        said = seen.deposits[3].box_key
        context = seen.attempt.context

        def fits(shares: dict[int, int], context: bytes = context, said: bytes = said) -> bool:
            return committed(context, 3, 3, BOX, shamir.spelt(shamir.recovered(shares))) == said

        assert not fits(shares)
        seen.colluding = (1,)
        assert fits(shares | {1: shamir.element(seen.shares_of_colluders(3)[0])})


def test_what_is_left_of_all_honest_members_is_their_sum():
    for run in range(20):
        seen = Watched(run, (0, 2), (1,))
        assert np.array_equal(seen.without_known_masks(0) + seen.without_known_masks(2), VECTORS[0] + VECTORS[2])


@pytest.mark.parametrize(
    ("mutation", "colluding"), [(no_pairwise_masks, ()), (a_constant_keystream, ()), (a_constant_keystream, (1,))]
)
def test_the_statistic_rejects_protocols_that_leak(mutation, colluding, monkeypatch):
    """When the self-masks are known, as they are of survivors."""
    honest = [one for one in range(3) if one not in colluding]
    assert uniform(left_of_survivor(honest, colluding))
    mutation(monkeypatch)
    assert not uniform(left_of_survivor(honest, colluding))


def left_of_late(runs: int = 120) -> list[np.ndarray]:
    """A vector that came too late in one attempt, without its pairwise masks, and without the self-mask of the next."""
    left = []
    for run in range(runs):
        first = Watched(run, (0, 1, 2), (3, 4), dropped=1)
        second = Watched(run, (0, 1, 2), (3, 4), attempt=1)
        vector = [first.without_pairwise_masks(1)]
        add_mask(vector, second.self_key(1), -1)
        left.append(vector[0])
    return left


def test_of_a_vector_that_came_too_late_nothing_is_left_but_noise():
    assert uniform(left_of_late())


def test_the_statistic_rejects_self_masks_that_are_used_twice(monkeypatch):
    self_masks_of_no_attempt(monkeypatch)
    left = left_of_late()
    assert not uniform(left)
    assert all(np.array_equal(one, VECTORS[1]) for one in left)


def test_a_masked_vector_alone_is_noise():
    seen = [Watched(run, (0, 1, 2), ()) for run in range(RUNS // 2)]
    for one in (0, 1, 2):
        assert uniform(each.masked[one] for each in seen)
