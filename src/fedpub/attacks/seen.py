"""What a coordinator can say about each client's weights after a round, in plain and in secure runs.

In a plain run these are the client's weights. In a secure run they are the mean of its group, the best guess that is
left: so an attack's score falls to what the mean tells.

Axes: K clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tree
from fedpub.engine.observed import Observed, Sum


@dataclass(frozen=True, eq=False)
class Seen:
    """Leaves are [K, ...]. An entry that a client did not send counts as it was sent to it: as unchanged."""

    round: int
    ids: Tensor
    sent: Tree
    known: Tree  # the weights after training, of the leaves that came back
    touched: Tree  # bool: entries that were said to be sent or, where all are, that have changed
    told: State  # all else that came in the clear
    single: bool  # whether weights are a client's own, not a group's mean

    @staticmethod
    def of(observed: Observed) -> Seen:
        names = [name for name in observed.sent.trees if name in _names(observed)]  # those that go both ways
        sent = {leaf: value for name in observed.sent.trees for leaf, value in observed.sent.tree(name).items()}
        clear = observed.clear or Message()
        told: State = {name: part for name, part in clear.parts.items() if name not in names}
        for name, part in told.items():
            if isinstance(part, dict):
                told[name] = {leaf: value * clear.sent.get(leaf, 1) for leaf, value in part.items()}
        single = not observed.sums
        if single:
            known, touched = _plain(clear, names, sent)
        else:
            known, touched = _of_groups(observed.sums, observed.ids, sent)
        return Seen(observed.round, observed.ids, sent, known, touched, told, single)


def _names(observed: Observed) -> set[str]:
    """Of all that came back in the clear."""
    return {*(observed.clear or Message()).parts}


def _plain(up: Message, names: list[str], sent: Tree) -> tuple[Tree, Tree]:
    known, touched = {}, {}
    for leaf, value in ((leaf, value) for name in names for leaf, value in up.tree(name).items()):
        active = up.sent.get(leaf)
        known[leaf] = value if active is None else torch.where(active, value, sent[leaf])
        touched[leaf] = known[leaf] != sent[leaf] if active is None else active
    return known, touched


def _of_groups(sums: tuple[Sum, ...], ids: Tensor, sent: Tree) -> tuple[Tree, Tree]:
    """The mean of a client's group; entries of a group that none of its members sent are unchanged."""
    place = {client: at for at, client in enumerate(ids.tolist())}
    known = {name: leaf.clone() for name, leaf in sent.items()}
    touched = {name: torch.zeros_like(leaf, dtype=torch.bool) for name, leaf in sent.items()}
    found: set[str] = set()
    for one in sums:
        rows = torch.tensor([place[client] for client in one.ids.tolist() if client in place], dtype=torch.int64)
        for name, total in tree(one.parts["steps"]).items():
            if name not in sent:
                continue
            count = _count(one, name)
            step = (total / count.clamp(min=1e-30)).to(total.dtype)
            known[name][rows] += step
            touched[name][rows] = (count > 0 if count.dim() else step != 0).expand_as(touched[name][rows])
            found.add(name)
    return {name: known[name] for name in found}, {name: touched[name] for name in found}


def _count(one: Sum, name: str) -> Tensor:
    """What the sum of steps is divided by: who sent an entry, else all shares, else all members."""
    counts, numbers = tree(one.parts["counts"]), tree(one.parts["numbers"])
    if name in counts:
        return counts[name].double()
    return numbers.get("share", torch.tensor(float(len(one.ids)), dtype=torch.float64))
