"""What a member refuses, whatever the coordinator and the other members tell it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from secure_groups import EXCHANGES, Group, attempt_of, private_of, refused, same

from fedpub.errors import FedpubError
from fedpub.federation.secure import neighbours
from fedpub.federation.secure.aggregator import Aggregator
from fedpub.federation.secure.attempt import Attempt
from fedpub.federation.secure.keys import public_of
from fedpub.federation.secure.masks import add_mask
from fedpub.federation.secure.neighbours import threshold
from fedpub.federation.secure.party import Party
from fedpub.federation.secure.refusals import CulpritError, NotEnoughError
from fedpub.federation.secure.sealing import BOX, SELF, Channel, committed, self_mask_key

# The group


def test_a_group_below_the_minimum_is_refused():
    for count, least in ((3, 4), (1, 1), (2, 1)):
        attempt = attempt_of(range(count))
        with pytest.raises(FedpubError, match=f"a group of {count} is too small: its sum needs at least"):
            Party(0, private_of(0), attempt, least, [np.zeros(4, np.uint8)])
        with pytest.raises(FedpubError, match=f"a group of {count} is too small: its sum needs at least"):
            Aggregator(attempt, least)
    assert Group.random(2, least=2).aggregator


def test_a_site_that_is_not_a_member_or_has_another_key_is_refused():
    attempt = attempt_of(range(3))
    vector = [np.zeros(4, np.uint8)]
    with pytest.raises(FedpubError, match="site number 3 is asked to add, but it is not a member"):
        Party(3, private_of(3), attempt, 3, vector)
    with pytest.raises(FedpubError, match="another public key for site number 1 than it has itself"):
        Party(1, private_of(2), attempt, 3, vector)
    with pytest.raises(FedpubError, match="does not have the layout"):
        Party(1, private_of(1), attempt, 3, [np.zeros(5, np.uint8)])


@pytest.mark.parametrize(
    ("alive", "said"),
    [
        ((0, 1, 2, 3, 4, 9), "only 0, 1, 2, 3, 4, 5 can have"),
        ((1, 0, 2, 3), "are said to have sent a deposit"),
        ((0, 0, 1, 2, 3), "are said to have sent a deposit"),
        ((1, 2, 3, 4), "it is said that it has not"),
        ((0, 1, 2), "3 of 6 members are left, and 4 are needed"),
    ],
)
def test_a_vector_is_not_masked_for_a_list_that_cannot_be_right(alive, said):
    group = Group.random(6)
    group.deposit()
    dealt = group.aggregator.for_member(0)
    with pytest.raises(FedpubError, match=said):
        group.parties[0].masked(alive, {one: dealt[one] for one in alive if one in dealt})


def test_the_owner_s_minimum_counts_at_every_step():
    group = Group.random(8, least=6)
    group.deposit(range(5))
    with pytest.raises(NotEnoughError, match="5 of 8 members are left, and 6 are needed that have deposited"):
        group.aggregator.alive()
    group.deposit(range(6))
    group.mask(range(5))
    with pytest.raises(
        NotEnoughError, match="5 of 8 members are left, and 6 are needed that have sent a masked vector"
    ):
        group.aggregator.survivors()
    with pytest.raises(NotEnoughError, match="5 of 8 members are left, and 6 are needed"):
        group.parties[0].confirmed(range(5))


@pytest.mark.parametrize("other", [(1, 2, 3), (1, 2, 3, 4, 5, 6), (2, 3, 4)])
def test_the_shares_of_exactly_those_who_deposited_are_needed(other):
    group = Group.random(7)
    group.deposit()
    dealt = group.aggregator.for_member(0)
    with pytest.raises(FedpubError, match="shares of 1, 2, 3, 4 are needed, and those of"):
        group.parties[0].masked((0, 1, 2, 3, 4), {one: dealt[one] for one in other})


# Answers are given once


def test_a_vector_is_masked_once():
    group = Group.random(5)
    group.deposit()
    first = group.masked(0)
    assert group.masked(0) == first
    dealt = group.aggregator.for_member(0)
    with pytest.raises(FedpubError, match="has been masked for other members"):
        group.parties[0].masked((0, 1, 2, 3), {one: dealt[one] for one in (1, 2, 3)})


def test_survivors_are_confirmed_once_and_after_the_vector():
    group = Group.random(5)
    with pytest.raises(FedpubError, match="after the vector is masked"):
        group.parties[0].confirmed((0, 1, 2))
    group.deposit()
    group.mask()
    first = group.parties[0].confirmed((0, 1, 2))
    assert group.parties[0].confirmed([0, 1, 2]) == first
    with pytest.raises(FedpubError, match="other survivors of this attempt have been confirmed"):
        group.parties[0].confirmed((0, 1, 2, 3))
    with pytest.raises(FedpubError, match="it is said that it has not"):
        group.parties[1].confirmed((0, 2, 3))


def test_a_second_reveal_with_other_survivors_is_refused():
    """It would be the other kind of share of one member, and both together are its vector."""
    group = Group.random(5)
    group.deposit()
    group.mask(range(4))
    group.confirm()
    first = group.revealed(0)
    assert group.revealed(0) == first
    for others in ((0, 1, 2), (0, 1, 2, 3, 4)):
        with pytest.raises(FedpubError, match="nothing is revealed for survivors that were not confirmed"):
            group.parties[0].revealed(others, {})


def test_one_share_of_each_is_revealed_a_survivor_s_of_its_self_mask_and_another_s_of_its_box_key():
    group = Group.random(5)
    group.deposit()
    group.mask(range(4))
    group.confirm()
    revealed = group.parties[0].revealed(range(4), group.aggregator.confirmations_for(0))
    assert sorted(revealed.shares) == [1, 2, 3, 4]
    for dealer, share in revealed.shares.items():
        dealt = group.parties[dealer].deposit().dealt[0]
        fits = {kind: committed(group.attempt.context, dealer, 0, kind, share) for kind in (SELF, BOX)}
        assert (fits[SELF] == dealt.self_share) == (dealer < 4)
        assert (fits[BOX] == dealt.box_share) == (dealer == 4)
    assert len(revealed.to_bytes()) == 32 * 5


# Confirmations


def confirmed_by(count: int, of: int = 6) -> tuple[Group, dict[int, bytes]]:
    """A group whose vectors are there, and the confirmations for number 0 if only so many have confirmed."""
    group = Group.random(of)
    group.deposit()
    group.mask()
    group.confirm(range(count))
    return group, group.aggregator.confirmations_for(0)


def test_nothing_is_revealed_without_the_confirmations_of_more_than_half():
    group, confirmations = confirmed_by(3)
    with pytest.raises(NotEnoughError, match="3 of 6 members have confirmed the same survivors, and 4 are needed"):
        group.parties[0].revealed(range(6), confirmations)
    group, confirmations = confirmed_by(4)
    assert group.parties[0].revealed(range(6), confirmations)


@pytest.mark.parametrize("how", ["cut", "another's", "sent back", "of itself", "of a stranger"])
def test_a_wrong_confirmation_does_not_count(how):
    group, tags = confirmed_by(4)
    if how == "cut":
        tags[3] = tags[3][:-1]
    elif how == "another's":
        tags[3] = tags[2]
    elif how == "sent back":  # what number 0 has for number 3, as if it came from there
        tags[3] = group.parties[0].confirmed(range(6))[3]
    else:
        tags[0 if how == "of itself" else 17] = tags.pop(3)
    with pytest.raises(NotEnoughError, match="3 of 6"):
        group.parties[0].revealed(range(6), tags)


def test_a_coordinator_that_tells_two_stories_gets_nothing_from_either():
    """Three of six members are told that number 5 dropped out, three that number 0 did."""
    group = Group.random(6)
    group.deposit()
    group.mask()
    stories = {one: (0, 1, 2, 3, 4) if one < 3 else (1, 2, 3, 4, 5) for one in range(6)}
    tags = {one: group.parties[one].confirmed(told) for one, told in stories.items()}
    for one, told in stories.items():
        confirmations = {sender: sent[one] for sender, sent in tags.items() if one in sent}
        with pytest.raises(NotEnoughError, match="3 of 6"):
            group.parties[one].revealed(told, confirmations)


def test_a_confirmation_is_of_the_deposits_too():
    group = Group.random(5)
    group.deposit()
    for one, alive in ((0, range(4)), (1, range(4)), (2, range(5)), (3, range(5))):
        dealt = group.aggregator.for_member(one)
        group.parties[one].masked(tuple(alive), {other: dealt[other] for other in alive if other != one})
    tags = {one: group.parties[one].confirmed(range(4)) for one in range(4)}
    with pytest.raises(NotEnoughError, match="2 of 5"):
        group.parties[0].revealed(range(4), {one: tags[one][0] for one in (1, 2, 3)})


@pytest.mark.parametrize(("count", "k"), [(7, 6), (10, 4)])
def test_whatever_a_coordinator_tells_whom_it_learns_no_sum_below_the_minimum(count, k, monkeypatch):
    """It tells most that neighbours of a target dropped out, and the target that those and others are all there is."""
    monkeypatch.setattr(neighbours, "degree", lambda count: k)
    group = Group.random(count)
    group.deposit()
    around = neighbours.neighbours(group.attempt)
    dealt = {one: group.aggregator.for_member(one) for one in range(count)}
    draw, both, everyone = random.Random(5), set(), set(range(count))
    for _ in range(400):
        targets = draw.sample(range(count), draw.choice([1, 1, 2, 3]))
        near = around[targets[0]]
        gone = draw.sample(near, draw.randint(0, min(len(near), count // 2 + 1)))
        left = sorted(everyone - set(gone) - set(draw.choice([targets, []])))
        others = draw.choice([gone, gone + [one for one in range(count) if one not in near], [*everyone]])
        there = sorted({*targets, *draw.sample(others, draw.randint(len(others) // 2, len(others)))})
        stories = {True: (there, draw.choice([there, sorted({*targets, *there[:2]})])), False: (sorted(everyone), left)}
        told = {one: stories[one in targets] for one in range(count)}
        answers = everything_revealed(group, dealt, told)
        both.add(len(answers) > 0)
        for together in sums_known(group, told, answers):
            assert len(together) >= 3, (together, told, answers)
    assert both == {True, False}


def everything_revealed(group: Group, dealt: Any, told: dict[int, tuple[list[int], list[int]]]) -> list[int]:
    """Which members reveal their secrets when they are told different things; the others refuse somewhere."""
    tags: dict[int, dict[int, bytes]] = {}
    for one, (alive, survivors) in told.items():
        made = group.parties[one] = group.fresh(one)
        received = {dealer: of for dealer, of in dealt[one].items() if dealer in alive}
        if not refused(made.masked, alive, received) and not refused(made.confirmed, survivors):
            tags[one] = made.confirmed(survivors)
    return [
        one
        for one in tags
        if not refused(
            group.parties[one].revealed, told[one][1], {other: sent[one] for other, sent in tags.items() if one in sent}
        )
    ]


def sums_known(group: Group, told: dict[int, tuple[list[int], list[int]]], answers: list[int]) -> Iterator[set[int]]:
    """The smallest sets of members whose masked vectors add up to the sum of their vectors, with what was revealed."""
    around = neighbours.neighbours(group.attempt)
    masked = {one: set(around[one]) & set(told[one][0]) for one, party in group.parties.items() if party._alive}
    selves, boxes = set(answers), set()
    for one, others in around.items():
        said = [one in told[holder][1] for holder in answers if holder in others and one in told[holder][0]]
        selves |= {one} if said.count(True) >= threshold(len(others)) else set()
        boxes |= {one} if said.count(False) >= threshold(len(others)) else set()
    assert not selves & boxes, "both secrets of one member are known"
    secret = nx.DiGraph((one, other) for one in masked for other in masked[one] - boxes)  # masks that are not known
    secret.add_nodes_from(masked)
    for one in masked:
        together = nx.descendants(secret, one) | {one}
        cancels = all(secret.has_edge(other, one) for one, other in secret.subgraph(together).edges)
        if cancels and together <= selves:
            yield together


# Shares that do not fit


@pytest.mark.parametrize("part", ["sealed", "self_mask", "self_share", "box_share", "seed"])
def test_a_dealer_whose_share_does_not_fit_is_named(part):
    group = Group.random(4)
    group.deposit()
    dealt = group.aggregator.for_member(0)
    dealt[2] = replace(dealt[2], **{part: bytes(80 if part == "sealed" else 32)})
    with pytest.raises(CulpritError, match="site number 2") as error:
        group.parties[0].masked(range(4), dealt)
    assert error.value.culprit == 2


@pytest.mark.parametrize("which", ["_self_mask", "_box_key"])
def test_a_dealer_that_seals_another_share_than_it_committed_to_is_named(which, monkeypatch):
    group = Group.random(4)
    shares = getattr(group.parties[2], which).shares
    with monkeypatch.context() as patch:
        made = Channel.sealed
        lie = bytes(32)
        patch.setattr(Channel, "sealed", lambda self, all_, mask: made(self, all_.replace(shares[0], lie), mask))
        group.deposit([2])
    group.deposit([0, 1, 3])
    with pytest.raises(CulpritError, match=r"dealt a share of its .* to site number 0 that does not fit") as error:
        group.masked(0)
    assert error.value.culprit == 2
    assert group.masked(1)


def test_a_dealer_of_shares_that_are_no_reduced_numbers_is_named():
    """Although they fit their commitments: they could not be used."""
    group = Group.random(4)
    group.parties[2]._box_key.shares[0] = b"\xff" * 32
    group.deposit()
    with pytest.raises(CulpritError, match="site number 2 has dealt a share of its box key"):
        group.masked(0)


# Another key, another message, another layout

OTHER: dict[str, Callable[[Attempt], dict[str, Any]]] = {
    "key": lambda attempt: {"keys": (public_of(private_of(0, "coordinator")), *attempt.keys[1:])},
    "message": lambda attempt: {"message": "01"},
    "layout": lambda attempt: {"layout": ((8, 2), (8, 2))},
}


def divided(how: str) -> tuple[Group, dict[int, Party]]:
    """All but number 0 have agreed on something else than it has; and the members as two groups."""
    group = Group.random(4)
    other = replace(group.attempt, **OTHER[how](group.attempt))
    vectors = {
        one: [*np.split(group.vectors[one][0], 2)] if how == "layout" else group.vectors[one] for one in range(4)
    }
    parties = {one: Party(one, private_of(one), other, 3, vectors[one]) for one in (1, 2, 3)}
    return group, {0: group.parties[0], **parties}


@pytest.mark.parametrize("how", OTHER)
def test_who_was_told_something_else_is_named_and_nothing_is_masked(how):
    _, parties = divided(how)
    deposits = {one: party.deposit() for one, party in parties.items()}
    for one in range(4):
        received = {other: deposits[other].dealt[one] for other in range(4) if other != one}
        with pytest.raises(CulpritError, match="does not open: one of them has another key, or was sent") as error:
            parties[one].masked(range(4), received)
        assert error.value.culprit == (0 if one else 1)


@pytest.mark.parametrize("how", ["none", *OTHER])
def test_without_that_check_the_sum_would_be_noise(how, monkeypatch):
    """Masks that were derived from other things do not cancel, even where the self-masks are known."""
    monkeypatch.setattr(Party, "_opened", lambda *_: (bytes(32), bytes(32)))
    group, parties = divided(how) if how != "none" else ((same_group := Group.random(4)), same_group.parties)
    total = np.zeros(4, np.uint8)
    for one, party in parties.items():
        received = dict.fromkeys(set(range(4)) - {one}, None)
        total += np.frombuffer(party.masked(range(4), received), np.uint8)
        add_mask([total], self_mask_key(party._attempt.context, one, party._self_mask.value), -1)
    assert same([total], group.sum_of(range(4))) == (how == "none")


def test_a_site_to_which_another_key_than_its_own_is_shown_refuses():
    other = attempt_of(
        range(4), keys=(public_of(private_of(0, "coordinator")), *(EXCHANGES[one].public for one in (1, 2, 3)))
    )
    with pytest.raises(FedpubError, match="another public key for site number 0"):
        Party(0, private_of(0), other, 3, [np.zeros(4, np.uint8)])
