"""Messages: what they disclose, what of them is selected or joined, and in what one is unlike another."""

from __future__ import annotations

import pytest
import torch

from fedpub.core.message import SENT, Message
from fedpub.core.recording import any_of, recording


def message(clients: int = 2, *, sent: bool = True) -> Message:
    weights = {"w": torch.arange(clients * 6.0).view(clients, 2, 3), "b": torch.zeros(clients, 3)}
    which = {"w": torch.arange(clients * 6).view(clients, 2, 3) % 2 == 0}
    return Message({"weights": weights, "size": torch.arange(clients)}, which if sent else {})


def test_which_entries_are_sent_is_something_that_is_disclosed():
    assert message().names == {"weights", "size", SENT}
    assert message(sent=False).names == {"weights", "size"}
    assert set(message()) == {"weights", "size"}


def test_a_message_is_the_same_after_a_state():
    again = Message.of(message().flat())
    assert again.unlike(message()) is None
    assert torch.equal(again.sent["w"], message().sent["w"])
    assert Message.of(message(sent=False).flat()).sent == {}


def test_what_is_replaced_does_not_change_what_is_sent():
    changed = message() | {"size": torch.tensor([7, 8])}
    assert changed.tensor("size").tolist() == [7, 8]
    assert torch.equal(changed.sent["w"], message().sent["w"])
    assert message().tensor("size").tolist() == [0, 1], "the message itself stays"


def test_selected_clients_keep_their_own_entries():
    one = message(3).select(torch.tensor([2, 0]))
    assert one.tensor("size").tolist() == [2, 0]
    assert torch.equal(one.tree("weights")["w"][0], message(3).tree("weights")["w"][2])
    assert torch.equal(one.sent["w"], message(3).sent["w"][[2, 0]])


def test_messages_of_single_clients_make_the_whole():
    apart = [message(3).select(torch.tensor([client])) for client in range(3)]
    whole = Message.together(apart)
    assert torch.equal(whole.tree("weights")["w"], message(3).tree("weights")["w"])
    assert torch.equal(whole.sent["w"], message(3).sent["w"])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (message(sent=False), "it has ['active', 'size', 'weights'], not ['size', 'weights']"),
        (message() | {"more": torch.zeros(2)}, "not ['active', 'more', 'size', 'weights']"),
        (message() | {"size": {"w": torch.zeros(2)}}, "size is a tree on one side"),
        (message() | {"weights": {"w": torch.zeros(2, 2, 3)}}, "weights has ['b', 'w'], not ['w']"),
        (message() | {"size": torch.zeros(2)}, "size is [2] torch.int64, not [2] torch.float32"),
        (message(3), "w is [2, 2, 3] torch.float32, not [3, 2, 3]"),
        (Message(message().parts, {"w": torch.zeros(2, 2, 3)}), "w is [2, 2, 3] torch.bool, not"),
    ],
)
def test_what_is_unlike_is_named(other, said):
    assert said in str(message().unlike(other))


def test_a_tree_is_not_taken_for_a_tensor():
    with pytest.raises(TypeError, match="expected a tensor, found a tree"):
        message().tensor("weights")
    with pytest.raises(TypeError, match="expected a tree"):
        message().tree("size")


def test_without_a_gpu_nothing_is_recorded():
    assert not recording(torch.zeros(1))
    assert not any_of(torch.tensor([False]))
    assert any_of(torch.tensor([False, True]))


def test_while_recording_the_general_case_is_taken(monkeypatch):
    monkeypatch.setattr("fedpub.core.recording.recording", lambda _: True)
    assert any_of(torch.tensor([False]))
