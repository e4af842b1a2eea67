"""What a coordinator can say about each client's weights, in plain and in secure runs."""

from __future__ import annotations

import torch

from fedpub.attacks.notebook import Notebook
from fedpub.attacks.seen import Seen
from fedpub.core.message import Message
from fedpub.engine.observed import Observed, Sum

IDS = torch.tensor([1, 4, 7])
BEFORE = {"w": torch.tensor([[1.0, 1.0], [1.0, 1.0], [5.0, 5.0]])}
AFTER = torch.tensor([[2.0, 9.0], [4.0, 1.0], [6.0, 5.0]])


def plain(sent: dict[str, torch.Tensor] | None = None, number: int = 1) -> Observed:
    up = Message({"weights": {"w": AFTER}, "size": torch.tensor([1, 2, 3])}, sent or {})
    return Observed(number, IDS, Message({"weights": BEFORE}), up)


def test_in_a_plain_run_weights_are_a_client_s_own_and_those_not_sent_are_unchanged():
    active = torch.tensor([[True, False], [True, True], [False, True]])
    seen = Seen.of(plain({"w": active}))
    assert seen.known["w"].tolist() == [[2, 1], [4, 1], [5, 5]]
    assert seen.touched["w"].equal(active)
    assert seen.single
    assert set(seen.told) == {"size"}


def test_where_all_is_sent_what_has_changed_is_touched():
    assert Seen.of(plain()).touched["w"].tolist() == [[True, True], [True, False], [True, False]]


def secure(parts: dict, rest: dict) -> Observed:
    clear = Message({"embedding": torch.zeros(3, 2)})
    sums = (Sum(torch.tensor([1, 4]), parts), Sum(torch.tensor([7]), rest))
    return Observed(1, IDS, Message({"weights": BEFORE}), clear, sums)


def summed(steps: list[float], counts: dict | None = None, **numbers: float) -> dict:
    """A sum as a coordinator decodes it."""
    told = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    return {"steps": {"w": torch.tensor(steps)}, "counts": counts or {}, "numbers": told}


def test_in_a_secure_run_every_member_is_given_the_mean_of_its_group():
    """The steps of two clients with equal shares; those of one with the whole of them."""
    seen = Seen.of(secure(summed([4.0, 1.0]), summed([0.5, 1.0], share=0.5)))
    assert seen.known["w"].tolist() == [[3, 1.5], [3, 1.5], [6, 7]]
    assert not seen.single
    assert set(seen.told) == {"embedding"}


def test_in_a_secure_run_sums_are_divided_by_how_many_sent_an_entry():
    seen = Seen.of(secure(summed([3.0, 0.0], {"w": torch.tensor([1, 0])}), summed([0.0, 0.0])))
    assert seen.known["w"].tolist() == [[4, 1], [4, 1], [5, 5]]  # what none of a group sent is as it was
    assert seen.touched["w"].tolist() == [[True, False], [True, False], [False, False]]


def test_a_notebook_keeps_each_client_s_first_and_last_round_of_training():
    book = Notebook()
    nothing = torch.zeros(3, 2, dtype=torch.bool)
    book(plain({"w": nothing}))  # no weights were sent: no training was seen
    assert not book.first
    book(plain(number=2))
    book(plain(number=3))
    assert sorted(book.first) == IDS.tolist()
    assert {own.round for own in book.first.values()} == {2}
    assert {own.round for own in book.last.values()} == {3}
    assert book.first[4].change["w"].tolist() == [[3, 0]]


def test_a_notebook_copies_what_it_keeps():
    book, after = Notebook(), AFTER.clone()
    book(Observed(1, IDS, Message({"weights": BEFORE}), Message({"weights": {"w": after}})))
    after.zero_()
    assert book.first[1].known["w"].tolist() == [[2, 9]]
