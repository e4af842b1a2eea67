"""A message in one direction: trees and tensors by name, and which entries of the trees are sent.

Every tensor has the client axis K in front, as in a state. An entry that is not sent is unknown to the receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpub.core.tree import State, Tree, select, state_map, tensor, together, tree

SENT = "active"  # the name under which `sent` is declared as an upload and encoded


@dataclass(frozen=True, eq=False)
class Message(Mapping[str, Tree | Tensor]):
    """Trees and tensors by name; `sent` has an entry for every leaf that is sent in part."""

    parts: State = field(default_factory=dict)
    sent: Tree = field(default_factory=dict)  # bool, in the shape of the leaf

    def __getitem__(self, name: str) -> Tree | Tensor:
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __or__(self, parts: State) -> Message:
        """The same message with some parts replaced or added."""
        return Message(self.parts | parts, self.sent)

    def tree(self, name: str) -> Tree:
        return tree(self.parts[name])

    def tensor(self, name: str) -> Tensor:
        return tensor(self.parts[name])

    @property
    def trees(self) -> dict[str, Tree]:
        return {name: part for name, part in self.parts.items() if isinstance(part, dict)}

    @property
    def names(self) -> set[str]:
        """Names of everything that the message discloses, as declared by a method."""
        return {*self.parts, SENT} if self.sent else set(self.parts)

    def flat(self) -> State:
        """The message as a state, for code that treats all tensors alike."""
        return self.parts | ({SENT: self.sent} if self.sent else {})

    def to(self, device: torch.device) -> Message:
        """The message on a device; itself if it is there."""
        return Message.of(state_map(lambda leaf: leaf.to(device), self.flat()))

    @staticmethod
    def of(flat: State) -> Message:
        """The inverse of `flat`."""
        sent = flat.get(SENT)
        if not isinstance(sent, dict):
            return Message(flat)
        return Message({name: part for name, part in flat.items() if name != SENT}, sent)

    def select(self, index: Tensor) -> Message:
        """The message of the clients at the given positions."""
        return Message.of(select(self.flat(), index))

    @staticmethod
    def together(messages: Sequence[Message]) -> Message:
        """Messages of different clients as one."""
        return Message.of(together([one.flat() for one in messages]))

    def unlike(self, like: Message) -> str | None:
        """The first difference in names, shapes or types from another message, in a few words; None if they agree."""
        found, wanted = self.flat(), like.flat()
        if set(found) != set(wanted):
            return f"it has {sorted(found)}, not {sorted(wanted)}"
        for name, part in wanted.items():
            other = found[name]
            if isinstance(part, Tensor) != isinstance(other, Tensor):
                return f"{name} is a tree on one side and a tensor on the other"
            one, two = leaves(name, part), leaves(name, other)
            if set(one) != set(two):
                return f"{name} has {sorted(two)}, not {sorted(one)}"
            for leaf, expected in one.items():
                got = two[leaf]
                if got.shape != expected.shape or got.dtype != expected.dtype:
                    return f"{leaf} is {list(got.shape)} {got.dtype}, not {list(expected.shape)} {expected.dtype}"
        return None


def leaves(name: str, part: Tree | Tensor) -> Tree:
    """The tensors of a part of a message by name."""
    return {name: part} if isinstance(part, Tensor) else part
