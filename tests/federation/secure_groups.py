"""Groups for the tests of secure aggregation: keys that are the same in every run, and all steps in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpub.errors import FedpubError
from fedpub.federation.secure.aggregator import Aggregator
from fedpub.federation.secure.attempt import Attempt, Layout, Vector, added, zeros
from fedpub.federation.secure.keys import Exchange
from fedpub.federation.secure.party import Party
from fedpub.federation.secure.records import dealt_bytes, dealt_of, tags_bytes, tags_of

BYTES = ((8, 4),)


def private_of(number: int, run: object = "") -> bytes:
    return hashlib.sha256(f"{number} {run}".encode()).digest()


EXCHANGES = {number: Exchange(private_of(number)) for number in range(150)}


def attempt_of(members: Sequence[int], layout: Layout = BYTES, /, **change: Any) -> Attempt:
    told: dict[str, Any] = {"run": "r", "round": 1, "attempt": 0, "group": 0, "message": "00", "layout": tuple(layout)}
    if "keys" not in change:
        told["keys"] = tuple(EXCHANGES[one].public for one in members)
    return Attempt(**(told | {"members": tuple(members)} | change))


def vector_of(layout: Layout, rng: np.random.Generator) -> Vector:
    return [
        rng.integers(0, 2**bits, count, np.uint64).astype(one.dtype)
        for (bits, count), one in zip(layout, zeros(layout), strict=True)
    ]


def sum_of(layout: Layout, vectors: Sequence[Vector]) -> Vector:
    total = zeros(layout)
    for vector in vectors:
        total = added(layout, total, vector)
    return total


def same(a: Vector, b: Vector) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(a, b, strict=True))


@dataclass
class Group:
    """All members and the coordinator; what a step sends goes through bytes. Steps may leave members out."""

    attempt: Attempt
    vectors: dict[int, Vector]
    least: int = 3
    parties: dict[int, Party] = field(init=False)
    aggregator: Aggregator = field(init=False)
    _fresh: dict[int, Party] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.parties = {one: self.party(one) for one in self.attempt.members}
        self.aggregator = Aggregator(self.attempt, self.least)

    @staticmethod
    def random(count: int, seed: int = 0, layout: Layout = BYTES, least: int = 3) -> Group:
        rng, attempt = np.random.default_rng(seed), attempt_of(range(count), layout)
        return Group(attempt, {one: vector_of(layout, rng) for one in range(count)}, least)

    def party(self, number: int) -> Party:
        exchange = EXCHANGES[number]
        return Party(number, exchange.private, self.attempt, self.least, self.vectors[number], exchange)

    def fresh(self, number: int) -> Party:
        """The member as it was before it answered anything."""
        if number not in self._fresh:
            self._fresh[number] = self.party(number)
        return copy(self._fresh[number])

    def deposit(self, who: Collection[int] | None = None) -> None:
        for one in self.attempt.members if who is None else who:
            self.aggregator.deposited(one, self.parties[one].deposit().to_bytes())

    def mask(self, who: Collection[int] | None = None) -> None:
        alive = self.aggregator.alive()
        for one in alive if who is None else who:
            self.aggregator.masked(one, self.masked(one))

    def masked(self, number: int) -> bytes:
        dealt = dealt_of(dealt_bytes(self.aggregator.for_member(number)))
        return self.parties[number].masked(self.aggregator.alive(), dealt)

    def confirm(self, who: Collection[int] | None = None) -> None:
        survivors = self.aggregator.survivors()
        for one in survivors if who is None else who:
            self.aggregator.confirmed(one, tags_of(tags_bytes(self.parties[one].confirmed(survivors))))

    def reveal(self, who: Collection[int] | None = None) -> None:
        for one in self.aggregator.survivors() if who is None else who:
            assert self.aggregator.revealed(one, self.revealed(one)) == []

    def revealed(self, number: int) -> bytes:
        confirmations = tags_of(tags_bytes(self.aggregator.confirmations_for(number)))
        return self.parties[number].revealed(self.aggregator.survivors(), confirmations).to_bytes()

    def sum_of(self, who: Collection[int]) -> Vector:
        return sum_of(self.attempt.layout, [self.vectors[one] for one in who])


def refused(call: Callable[..., object], *values: object) -> bool:
    try:
        call(*values)
    except FedpubError:
        return True
    return False
