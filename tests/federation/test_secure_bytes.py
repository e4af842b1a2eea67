"""What the coordinator refuses, and that no bytes from anywhere raise another error than the one for it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_groups import BYTES, Group, refused

from fedpub.errors import FedpubError
from fedpub.federation.secure.attempt import size_of
from fedpub.federation.secure.records import DEALT, Dealt, dealt_bytes, dealt_of, tags_bytes, tags_of


def test_the_coordinator_takes_each_step_once_and_from_members_only():
    group = Group.random(4)
    data = group.parties[0].deposit().to_bytes()
    with pytest.raises(FedpubError, match="site number 9 deposits, and it is none of 0, 1, 2, 3"):
        group.aggregator.deposited(9, data)
    group.deposit([0, 1, 2])
    group.aggregator.deposited(0, data)
    with pytest.raises(FedpubError, match="has deposited something else before"):
        group.aggregator.deposited(0, data[::-1])
    assert group.aggregator.alive() == (0, 1, 2)
    with pytest.raises(FedpubError, match="deposits too late"):
        group.deposit([3])
    with pytest.raises(FedpubError, match="site number 3 sends a masked vector, and it is none of 0, 1, 2"):
        group.aggregator.masked(3, bytes(4))
    group.mask()
    with pytest.raises(FedpubError, match="too late, or is its second"):
        group.mask([0])
    tags = group.parties[0].confirmed(group.aggregator.survivors())
    with pytest.raises(FedpubError, match="not for every other survivor"):
        group.aggregator.confirmed(0, {1: tags[1]})
    for call in (group.aggregator.for_member, group.aggregator.confirmations_for):
        with pytest.raises(FedpubError, match="site number 3 asks for"):
            call(3)
    assert not group.aggregator.ready()


def full(steps: int) -> Group:
    group = Group.random(4)
    for step in (group.deposit, group.mask, group.confirm)[:steps]:
        step()
    return group


ANY = st.binary(max_size=40)


def near(size: int) -> st.SearchStrategy[bytes]:
    """Random bytes, of the right length, or nearly."""
    return ANY | st.integers(0, 2**32).flatmap(
        lambda seed: st.sampled_from([size - 1, size, size + 1, 2 * size]).map(random.Random(seed).randbytes)
    )


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_random_bytes_raise_nothing_but_the_one_error(data):
    group = Group.random(4)
    deposit = group.parties[0].deposit().to_bytes()
    attempts = [
        (group.aggregator.deposited, (0, data.draw(near(len(deposit))))),
        (dealt_of, (data.draw(near(DEALT + 4)),)),
        (tags_of, (data.draw(near(36)),)),
    ]
    for call, values in attempts:
        refused(call, *values)
    group = full(3)
    raw = data.draw(near(DEALT))
    dealt = group.aggregator.for_member(1)
    if len(raw) == DEALT:
        dealt[0] = Dealt.from_bytes(raw)
        assert refused(group.party(1).masked, range(4), dealt)
    tags = {one: data.draw(ANY) for one in data.draw(st.sets(st.integers(0, 5)))}
    assert refused(group.parties[1].revealed, range(4), tags)
    answer = data.draw(near(len(group.revealed(1))))
    if not refused(group.aggregator.revealed, 1, answer):
        assert list(group.aggregator.culprits) == [1]


@given(near(size_of(BYTES)))
@settings(deadline=None, max_examples=30)
def test_a_masked_vector_has_the_length_of_its_layout(data):
    group = full(1)
    assert refused(group.aggregator.masked, 0, data) == (len(data) != 4)


@pytest.mark.parametrize("change", [1, -1])
def test_bytes_too_many_or_too_few_are_refused_everywhere(change):
    group = full(3)
    dealt, tags = group.aggregator.for_member(0), group.aggregator.confirmations_for(0)

    def other(data: bytes) -> bytes:
        return data + b"x" if change > 0 else data[:-1]

    fresh = Group.random(4)
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (dealt_of, (other(dealt_bytes(dealt)),)),
        (tags_of, (other(tags_bytes(tags)),)),
        (Dealt.from_bytes, (other(dealt[1].to_bytes()),)),
        (fresh.aggregator.deposited, (0, other(fresh.parties[0].deposit().to_bytes()))),
        (group.aggregator.revealed, (0, other(group.revealed(0)))),
    ]
    for call, values in calls:
        with pytest.raises(FedpubError, match="bytes"):
            call(*values)
    assert not fresh.aggregator._deposits
    assert not group.aggregator.culprits


def test_numbers_in_records_ascend():
    one, other = (number.to_bytes(4, "little") + bytes(32) for number in (1, 2))
    assert list(tags_of(one + other)) == [1, 2]
    for data in (other + one, one + one):
        with pytest.raises(FedpubError, match="not ascending"):
            tags_of(data)


def test_a_huge_share_is_left_out_although_it_fits_its_commitment():
    """Dealer and holder lie together: it is no number that could be used."""
    group = Group.random(4)
    group.parties[2]._self_mask.shares[0] = b"\xff" * 32
    group.deposit()
    group.parties[0]._opened = lambda *_: (b"\xff" * 32, b"\xff" * 32)
    group.mask()
    group.confirm()
    assert group.aggregator.revealed(0, group.revealed(0)) == [0]
    assert "the share that site number 2 dealt to it" in group.aggregator.culprits[0]
