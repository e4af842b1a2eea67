"""The uploads of a round, as they come, and the server step over all of them.

A method whose server step is one mean takes them one by one: each is measured when it comes, waits on disk as it was
sent, and is added when all are there, in the order of the clients, so that a resumed run adds them in the same order.
All other methods compare uploads with each other and need them together.

Axes: K clients.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Averages, Context, Notes
from fedpub.algorithms.sums import Summed, Sums
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tree_map
from fedpub.engine.robust import capped, defended, lengths, shares, shortened
from fedpub.engine.sums import means_of
from fedpub.federation.secure.at_coordinator import Group
from fedpub.federation.secure.numbers import of_round, told_digest, unknown
from fedpub.federation.wire import decode

Sent = Callable[[int], Message]  # what a client was sent


class Gathering(Protocol):
    def add(self, client: int, up: Message, data: bytes) -> None:
        """The upload of a client, and the bytes in which it came."""

    def server(self, server: State, ids: Tensor) -> tuple[State, Notes]:
        """The server step over the uploads of these clients, in this order."""


def gathering(algorithm: Algorithm, ctx: Context, sent: Sent, folder: Path) -> Gathering:
    """What takes the uploads of a round; those that wait do so in `folder`."""
    if ctx.secure:
        return InSums(algorithm, ctx, sent)
    # Bounded entry by entry, each needs all others.
    if isinstance(algorithm, Averages) and ctx.defence != "median":
        return OneByOne(algorithm.averaged, ctx, sent, folder)
    return Together(algorithm, ctx, sent)


class Together:
    def __init__(self, algorithm: Algorithm, ctx: Context, sent: Sent) -> None:
        self._algorithm, self._ctx, self._sent = algorithm, ctx, sent
        self._uploads: dict[int, Message] = {}

    def add(self, client: int, up: Message, data: bytes) -> None:
        self._uploads[client] = up

    def server(self, server: State, ids: Tensor) -> tuple[State, Notes]:
        uploads = Message.together([self._uploads.pop(client) for client in ids.tolist()])
        uploads = defended(self._ctx, uploads, Message.together([self._sent(client) for client in ids.tolist()]))
        return self._algorithm.server(self._ctx, server, ids, uploads)


class OneByOne:
    """Holds one upload at a time, and of all others their sizes and the lengths of their steps."""

    def __init__(self, name: str, ctx: Context, sent: Sent, folder: Path) -> None:
        self._name, self._ctx, self._sent = name, ctx, sent
        self._clips = ctx.defence not in ("none", "guard")
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `server`
        self._places: dict[int, tuple[int, int]] = {}
        self._sizes: dict[int, Tensor] = {}
        self._lengths: dict[int, Mapping[str, Tensor]] = {}

    def add(self, client: int, up: Message, data: bytes) -> None:
        self._places[client] = (self._file.seek(0, 2), len(data))
        self._file.write(data)
        self._sizes[client] = up.tensor("size").clone()
        self._lengths[client] = lengths(up, self._sent(client)) if self._clips else {}

    def server(self, server: State, ids: Tensor) -> tuple[State, Notes]:
        clients = ids.tolist()
        size_K, share_K = self._bounds(clients)
        size_K = torch.where(size_K.sum() > 0, size_K.double(), 1.0)
        mean: Tree = {}
        with self._file:
            for at, client in enumerate(clients):
                own = {name: share_K[name][at : at + 1] for name in share_K}
                up = shortened(self._upload(client), self._sent(client), own).tree(self._name)
                part = tree_map(lambda leaf, at=at: (size_K[at] / size_K.sum()).to(leaf.dtype) * leaf, up)
                mean = {leaf: mean[leaf] + value for leaf, value in part.items()} if mean else part
        return {self._name: mean}, {}

    def _bounds(self, clients: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """How many examples of each client count, and which share of its steps, as with all uploads together."""
        size_K = torch.cat([self._sizes[client] for client in clients])
        if not self._clips:
            return size_K, {}
        names = self._lengths[clients[0]]
        length_K = {name: torch.cat([self._lengths[client][name] for client in clients]) for name in names}
        return capped(Message({"size": size_K})).tensor("size"), shares(length_K)

    def _upload(self, client: int) -> Message:
        start, length = self._places[client]
        self._file.seek(start)
        return decode(self._file.read(length)).message


class InSums:
    """Holds what is in the clear; weights and numbers come as sums over groups (`federation.secure`)."""

    def __init__(self, algorithm: Algorithm, ctx: Context, sent: Sent) -> None:
        assert isinstance(algorithm, Sums)
        self._algorithm, self._ctx, self._sent = algorithm, ctx, sent
        self._clear: dict[int, Message] = {}
        self.found: Sequence[Summed] = ()

    def add(self, client: int, up: Message, data: bytes) -> None:
        self._clear[client] = up

    def groups(self, server: State, ids: Tensor, like: Message, sites: int, examples: int) -> list[Group]:
        """Who is added up with whom; `like`: an example upload."""
        place_K, made = self._algorithm.groups(server, ids), []
        for number in sorted({*place_K.tolist()}):
            members = ids[place_K == number].tolist()
            sent = self._sent(members[0])  # the same for all
            names = (*self._ctx.task.metrics, "sparsity", "loss")
            numbers, _ = of_round(self._algorithm, self._ctx, sites, sent, like, examples, unknown(names))
            made.append(Group(number, tuple(members), told_digest(self._ctx.round, examples, sent), numbers))
        return made

    def server(self, server: State, ids: Tensor) -> tuple[State, Notes]:
        if not len(ids):  # no group had a sum
            return server, {}
        return self._algorithm.summed(self._ctx, server, ids, self.found, self.clear(ids))

    def clear(self, ids: Tensor) -> Message:
        """What these clients have sent in the clear."""
        return Message.together([self._clear[client] for client in ids.tolist()])

    def means(self) -> dict[str, float]:
        """The means of losses and metrics over all sites in a sum."""
        return means_of([one.sums.numbers for one in self.found])
