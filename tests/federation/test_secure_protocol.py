"""The sum is that of the survivors' vectors, bit for bit, whoever drops out when; or there is none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from secure_groups import Group, attempt_of, same, vector_of

from fedpub.errors import FedpubError
from fedpub.federation.secure import masks, neighbours, party, shamir
from fedpub.federation.secure.aggregator import Aggregator
from fedpub.federation.secure.neighbours import threshold
from fedpub.federation.secure.party import Party
from fedpub.federation.secure.refusals import CulpritError, NotEnoughError
from fedpub.federation.secure.sealing import self_mask_key

LAYOUT = ((8, 3), (16, 2), (24, 3), (32, 1), (64, 2))
LAST = ("nothing", "deposit", "late", "masked", "confirmed", "revealed")  # the last that a member does


def run(group: Group, last: dict[int, str]) -> str:
    """An attempt in which each member does its last; how it ended, after it was compared with what had to be."""

    def those(*what: str) -> list[int]:
        return [one for one, done in last.items() if done in what]

    half, needed = len(last) // 2 + 1, threshold(len(last) - 1)
    group.deposit(those(*LAST[1:]))
    if len(those(*LAST[1:])) < max(3, half):
        with pytest.raises(NotEnoughError):
            group.aggregator.alive()
        return "too few deposits"
    late = {one: group.masked(one) for one in those("late")}
    group.mask(those(*LAST[3:]))
    survivors = those(*LAST[3:])
    if len(survivors) < max(3, half):
        with pytest.raises(NotEnoughError):
            group.aggregator.survivors()
        return "too few vectors"
    assert group.aggregator.survivors() == tuple(survivors)
    for one, data in late.items():
        with pytest.raises(FedpubError, match="too late"):
            group.aggregator.masked(one, data)
    group.confirm(those("confirmed", "revealed"))
    if len(those("confirmed", "revealed")) < half:
        for one in those("revealed"):
            with pytest.raises(NotEnoughError, match="nothing is revealed"):
                group.revealed(one)
        return "too few confirmations"
    group.reveal(those("revealed"))
    open_ = [one for one in group.aggregator.alive() if last[one] != "revealed"]
    if open_ and len(those("revealed")) < needed:
        assert not group.aggregator.ready()
        with pytest.raises(NotEnoughError, match=f"needs {needed} shares, and {len(those('revealed'))} are there"):
            group.aggregator.result()
        return "too few shares"
    assert group.aggregator.ready()
    assert same(group.aggregator.result(), group.sum_of(survivors))
    return "dropouts" if open_ or len(survivors) < len(last) else "all"


def test_in_200_random_federations_the_sum_is_exact():
    ends: Counter[str] = Counter()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(3, 41))
        groups = np.array_split(rng.permutation(count), rng.integers(1, min(4, count // 3) + 1))
        share = rng.choice([0, 0.1, 0.3, 0.7])
        for number, members in enumerate(groups):
            attempt = attempt_of(sorted(map(int, members)), LAYOUT, round=seed, group=number)
            group = Group(attempt, {one: vector_of(LAYOUT, rng) for one in attempt.members})
            dropped = rng.random(len(members)) < share
            done = {
                one: str(rng.choice(LAST[:5])) if out else LAST[5]
                for one, out in zip(attempt.members, dropped, strict=True)
            }
            ends[run(group, done)] += 1
    wanted = {"all", "dropouts", "too few deposits", "too few vectors", "too few confirmations", "too few shares"}
    assert set(ends) == wanted, ends
    assert ends["all"] > 50 < ends["dropouts"], ends


@pytest.mark.parametrize("last", LAST[:5])
def test_in_a_large_group_the_sum_is_exact(last, monkeypatch):
    """With six neighbours for each of fourteen, so that it takes no seconds."""
    monkeypatch.setattr(neighbours, "degree", lambda count: 6)
    group = Group.random(14, layout=LAYOUT)
    group.deposit([one for one in range(14) if last != "nothing" or one != 5])
    assert max(len(group.aggregator.for_member(one)) for one in group.aggregator.alive()) == 6
    group.mask([one for one in group.aggregator.alive() if last not in ("deposit", "late") or one != 5])
    group.confirm([one for one in group.aggregator.survivors() if last != "masked" or one != 5])
    group.reveal([one for one in group.aggregator.survivors() if last not in ("masked", "confirmed") or one != 5])
    kept = [one for one in range(14) if last not in LAST[:3] or one != 5]
    assert same(group.aggregator.result(), group.sum_of(kept))


# Three sites, two words of 8 bits, worked out by hand

VECTORS = {0: [10, 200], 1: [20, 100], 2: [250, 7]}
SELVES = {0: [1, 2], 1: [3, 4], 2: [5, 6]}
PAIRS = {(0, 1): [100, 50], (0, 2): [7, 250], (1, 2): [30, 40]}
MASKED = {
    0: [118, 246],  # 10 + 1 + 100 + 7, and 200 + 2 + 50 + 250 − 256
    1: [209, 94],  # 20 + 3 + 30 − 100 + 256, and 100 + 4 + 40 − 50
    2: [218, 235],  # 250 + 5 − 7 − 30, and 7 + 6 − 250 − 40 + 2 · 256
}


def group_by_hand(monkeypatch: pytest.MonkeyPatch) -> Group:
    """With the masks above in place of keystreams."""
    vectors = {one: [np.array(words, np.uint8)] for one, words in VECTORS.items()}
    group = Group(attempt_of(range(3), ((8, 2),)), vectors, least=2)
    context = group.attempt.context
    given = {self_mask_key(context, one, group.parties[one]._self_mask.value): mask for one, mask in SELVES.items()}
    given |= {group.parties[low]._channel(high).seed(): mask for (low, high), mask in PAIRS.items()}

    class Given:
        def __init__(self, key: bytes) -> None:
            self._mask = given[key]

        def words(self, count: int, dtype: np.dtype) -> np.ndarray:
            assert count == len(self._mask)
            return np.array(self._mask, dtype)

    monkeypatch.setattr(masks, "Keystream", Given)
    return group


def test_three_sites_by_hand(monkeypatch):
    group = group_by_hand(monkeypatch)
    group.deposit()
    assert {one: list(group.masked(one)) for one in range(3)} == MASKED
    group.mask()
    assert group.aggregator._sum[0].tolist() == [33, 63]  # 118 + 209 + 218 − 512, and 246 + 94 + 235 − 512
    group.confirm()
    group.reveal()
    # Without the self-masks, 1 + 3 + 5 and 2 + 4 + 6: 10 + 20 + 250 − 256, and 200 + 100 + 7 − 256.
    assert group.aggregator.result()[0].tolist() == [24, 51]


def test_three_sites_of_which_one_drops_out_by_hand(monkeypatch):
    group = group_by_hand(monkeypatch)
    group.deposit()
    group.mask([0, 2])
    assert group.aggregator._sum[0].tolist() == [80, 225]  # 118 + 218 − 256, and 246 + 235 − 256
    group.confirm()
    group.reveal()
    # Without the self-masks of 0 and 2: 74 and 217. Site 0 added its mask with 1: 74 − 100 + 256 = 230, 217 − 50 = 167.
    # Site 2 subtracted its own: 230 + 30 − 256 = 4 = 10 + 250 − 256, and 167 + 40 = 207 = 200 + 7.
    assert group.aggregator.result()[0].tolist() == [4, 207]


# Restarts


def test_a_restarted_site_gives_the_same_answers():
    group = Group.random(5)
    group.deposit()
    first = [group.parties[2].deposit().to_bytes(), group.masked(2)]
    group.mask()
    group.confirm()
    first += [group.aggregator._tags[2], group.revealed(2)]
    group.parties[2] = group.party(2)
    second = [group.parties[2].deposit().to_bytes(), group.masked(2)]
    second += [group.parties[2].confirmed(group.aggregator.survivors()), group.revealed(2)]
    assert first == second


def test_a_restarted_site_with_another_vector_reuses_no_key():
    """Neither its self-mask, nor its shares, nor the keys of their boxes; its seeds are those of the attempt."""
    group = Group.random(4)
    first = group.parties[0].deposit()
    group.vectors[0] = [np.array([9, 9, 9, 9], np.uint8)]
    second = group.party(0).deposit()
    assert first.self_mask != second.self_mask
    assert (first.box_key, first.box) == (second.box_key, second.box)
    for one in (1, 2, 3):
        before, after = first.dealt[one], second.dealt[one]
        assert (before.seed, before.box_share) == (after.seed, after.box_share)
        assert before.self_share != after.self_share
        # The share of the box key is the same: with the same key of the box, so would be these bytes.
        assert before.sealed[32:64] != after.sealed[32:64]


def test_no_two_secrets_or_coefficients_are_the_same(monkeypatch):
    """Of two attempts, with two vectors each."""
    drawn: list[int] = []
    made = shamir.shared
    monkeypatch.setattr(
        shamir, "shared", lambda secret, more, to: drawn.extend([secret, *more]) or made(secret, more, to)
    )
    for attempt in range(2):
        for word in range(2):
            vectors = {one: [np.full(4, word, np.uint8)] for one in range(5)}
            Group(attempt_of(range(5), attempt=attempt), vectors)
    # Three coefficients each of two secrets of five members; those of the box key do not depend on the vector.
    assert len(drawn) == 2 * 2 * 5 * 2 * 3
    assert len(set(drawn)) == 2 * 5 * 3 * (2 + 1)


@pytest.mark.parametrize("answered", [0, 1, 5])
def test_a_killed_coordinator_resumes(answered):
    """When the survivors are known, after the confirmations with some of the answers, or with all."""
    group = Group.random(6, layout=LAYOUT)
    group.deposit()
    group.mask(range(1, 6))
    survivors = group.aggregator.survivors()
    if answered:
        group.confirm()
        group.reveal(survivors[:answered])
    saved = group.aggregator.saved()
    group.aggregator = Aggregator.restored(group.attempt, 3, {name: bytes(data) for name, data in saved.items()})
    assert group.aggregator.saved() == saved
    assert group.aggregator.survivors() == survivors
    if not answered:
        group.confirm()
    group.reveal(survivors[answered:])
    assert same(group.aggregator.result(), group.sum_of(survivors))


def test_what_was_saved_of_another_attempt_is_refused():
    group = Group.random(4)
    group.deposit()
    with pytest.raises(FedpubError, match="when its survivors are known"):
        group.aggregator.saved()
    group.mask()
    group.aggregator.survivors()
    saved = group.aggregator.saved()
    with pytest.raises(FedpubError, match="of another attempt"):
        Aggregator.restored(attempt_of(range(4), attempt=1), 3, saved)
    for name in ("lists", "sum", "deposit-2"):
        with pytest.raises(FedpubError, match="is incomplete"):
            Aggregator.restored(group.attempt, 3, {other: data for other, data in saved.items() if other != name})


# Liars


@pytest.mark.parametrize("what", ["its self-mask", "the share that site number 6 dealt to it"])
def test_who_reveals_wrong_shares_is_named_and_the_sum_is_right(what):
    group = Group.random(7)
    group.deposit()
    group.mask(range(6))  # number 6 drops out, and the shares of its box key are needed
    group.confirm()
    lie = bytearray(group.revealed(0))
    lie[0 if what == "its self-mask" else -32] ^= 1
    assert group.aggregator.revealed(0, bytes(lie)) == [0]
    said = f"site number 0 has revealed something else than was committed to: {what}"
    assert group.aggregator.culprits == {0: said}
    group.reveal(range(1, 6))
    assert same(group.aggregator.result(), group.sum_of(range(6)))


@pytest.mark.parametrize("which", ["_self_mask", "_box_key"])
def test_who_deals_shares_of_nothing_is_named(which):
    """Each share fits its commitment, but together they are not those of the secret."""
    group = Group.random(5)
    shares = getattr(group.parties[4], which).shares
    shares |= {one: bytes(31) + bytes([one]) for one in shares}
    group.deposit()
    group.mask(range(5 if which == "_self_mask" else 4))
    group.confirm()
    group.reveal(range(4))
    with pytest.raises(CulpritError, match="shares of site number 4 do not give the secret") as error:
        group.aggregator.result()
    assert error.value.culprit == 4
    assert list(group.aggregator.culprits) == [4]


@pytest.mark.parametrize("lie", ["another key", "other seeds"])
def test_who_fills_its_box_with_something_else_is_named(lie, monkeypatch):
    group = Group.random(5)
    with monkeypatch.context() as patch:
        made = party.boxed
        key = (lambda secret: bytes(32)) if lie == "another key" else (lambda secret: secret)
        content = (lambda seeds: bytes(len(seeds))) if lie == "other seeds" else (lambda seeds: seeds)
        patch.setattr(party, "boxed", lambda c, n, secret, seeds: made(c, n, key(secret), content(seeds)))
        group.deposit([4])
    group.deposit(range(4))
    group.mask(range(4))
    group.confirm()
    group.reveal()
    said = "does not open with its own key" if lie == "another key" else "holds other seeds"
    with pytest.raises(CulpritError, match=f"the box of site number 4 {said}"):
        group.aggregator.result()


def test_an_exchange_is_used_again_in_the_next_attempt():
    group = Group.random(3)
    exchange = group.parties[0]._exchange
    assert Party(0, exchange.private, group.attempt, 3, group.vectors[0], exchange)._exchange is exchange
    with pytest.raises(FedpubError, match="another public key for site number 0"):
        Party(0, exchange.private, group.attempt, 3, group.vectors[0], group.parties[1]._exchange)
