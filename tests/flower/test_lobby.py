"""Who may be connected, by a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpub.flower.lobby import REMEMBERED, Guest, Limits, Lobby, network_of


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Room:
    """A lobby, and what was closed in it."""

    limits: Limits
    clock: Clock = field(default_factory=Clock)
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lobby = Lobby(self.limits, self.clock)

    def guest(self, name: str, address: str = "x") -> Guest:
        return Guest(address, lambda: self.closed.append(name))

    def enter(self, name: str, address: str = "x") -> Guest:
        guest = self.guest(name, address)
        assert self.lobby.enter(guest)
        return guest


def test_the_oldest_of_an_address_goes_first():
    room = Room(Limits(per_address=2))
    for name in "abcd":
        room.enter(name)
    room.enter("other", "y")
    assert (room.closed, room.lobby.strangers) == (["a", "b"], 3)


def test_where_all_addresses_fill_the_room_the_one_with_most_gives_way():
    room = Room(Limits(strangers=4))
    for name, address in zip("abcd", "xyyx", strict=True):
        room.enter(name, address)
    room.enter("e", "y")
    assert room.closed == ["a"], "the first of the two with most"
    room.enter("f", "z")
    assert room.closed == ["a", "b"], "now y has three"
    assert room.lobby.strangers == 4


def test_a_site_is_not_counted_among_strangers():
    room = Room(Limits(per_address=2, per_site=2))
    known = room.enter("known")
    room.lobby.is_known(known, "a")
    for name in "bcd":
        room.enter(name)
    assert room.closed == ["b"]
    for name in ("second", "third"):
        room.lobby.is_known(room.enter(name), "a")
    assert room.closed[-1] == "known", "of a site, too, the oldest goes"


def test_who_has_left_takes_no_place():
    room = Room(Limits(per_address=1, per_site=1))
    for _ in range(3):
        room.lobby.leave(room.enter("a"))
        guest = room.enter("b")
        room.lobby.is_known(guest, "site")
        room.lobby.leave(guest)
    assert room.closed == []
    assert (room.lobby._strangers, room.lobby._sites) == ({}, {})


def test_an_address_connects_so_often_and_then_slowly():
    room = Room(Limits(burst=3, per_second=0.5))
    assert [room.lobby.enter(room.guest("a")) for _ in range(5)] == [True] * 3 + [False] * 2
    assert room.lobby.enter(room.guest("b", "y")), "another address"
    room.clock.now = 2.0
    assert [room.lobby.enter(room.guest("a")) for _ in range(2)] == [True, False]
    room.clock.now = 1000.0
    assert [room.lobby.enter(room.guest("a")) for _ in range(4)] == [True] * 3 + [False], "no more than at first"
    assert room.lobby.refused["too many connections"] == 4


def test_addresses_are_not_remembered_without_end():
    room = Room(Limits(strangers=10**6))
    for number in range(REMEMBERED + 50):
        room.lobby.leave(room.enter("a", str(number)))
    assert len(room.lobby._buckets) == REMEMBERED
    assert "0" not in room.lobby._buckets


@pytest.mark.parametrize("limits", [Limits(strangers=5, per_address=3, per_site=2, burst=1000)])
@given(steps=st.lists(st.tuples(st.sampled_from("elk"), st.integers(0, 30), st.sampled_from("xyz")), max_size=60))
def test_nothing_is_ever_above_its_limit(limits, steps):
    room, inside = Room(limits), dict[int, Guest]()
    for what, number, address in steps:
        if what == "e" and number not in inside:
            inside[number] = guest = room.guest(str(number), address)
            assert room.lobby.enter(guest)
        elif what == "l" and number in inside:
            room.lobby.leave(inside.pop(number))
        elif what == "k" and number in inside:
            room.lobby.is_known(inside[number], f"site {address}")
        assert room.lobby.strangers <= limits.strangers
        assert all(0 < len(mine) <= limits.per_address for mine in room.lobby._strangers.values())
        assert all(0 < len(mine) <= limits.per_site for mine in room.lobby._sites.values())


def test_a_site_asks_so_often_and_then_slowly():
    room = Room(Limits(requests=2.0))
    assert [room.lobby.takes_request("a") for _ in range(18)] == [True] * 16 + [False] * 2
    assert room.lobby.takes_request("b")
    room.clock.now = 1.0
    assert [room.lobby.takes_request("a") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9%eth0", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
        ("?", "?"),
    ],
)
def test_a_host_has_many_addresses_and_one_network(address, network):
    assert network_of(address) == network
