"""Methods whose server needs only sums over groups of clients, as secure aggregation provides them.

Every client of a group receives the same message. What it adds to the sum is its `Hidden` part: the change of its
weights, which entries it has changed, and numbers such as its validation values. What grouping needs, the functional
embedding, remains in the clear.

Axes: K clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.protocol import Algorithm, Notes
from fedpub.core.message import Message
from fedpub.core.optim import BETA1, BETA2
from fedpub.core.tree import State, Tree, for_each, tree, tree_map

FARTHEST = (1 - BETA1) / (1 - BETA2) ** 0.5  # one step of Adam, in learning rates
LARGEST = 1e6  # that a loss or an error of a client counts
BATCHES = 32  # steps of an epoch that count, if training is in batches


@dataclass(frozen=True, eq=False)
class Hidden:
    """What clients add up, leaves [K, ...]; of a sum, leaves [...] without clients."""

    steps: Tree = field(default_factory=dict)  # entries within ± `reach`
    counts: Tree = field(default_factory=dict)  # entries 0 or 1
    numbers: Tree = field(default_factory=dict)  # entries within ±1, double

    def total(self) -> Hidden:
        """The sums over all clients."""
        return Hidden(**{name: tree_map(lambda leaf: leaf.sum(0), part) for name, part in self.parts().items()})

    def parts(self) -> dict[str, Tree]:
        return {"steps": self.steps, "counts": self.counts, "numbers": self.numbers}


@dataclass(frozen=True, eq=False)
class Summed:
    """The sum over those clients of a group that took part."""

    group: int
    ids: Tensor
    sums: Hidden


@runtime_checkable
class Sums(Protocol):
    """What a method says in addition; `min_group` is in the experiment."""

    def send(self, server: State, ids: Tensor) -> Message: ...

    @property
    def shared_out(self) -> bool:
        """Whether clients multiply their steps by shares that add up to one, by training examples."""

    def groups(self, server: State, ids: Tensor) -> Tensor:
        """The group of every client that takes part, [K], from 0 on. Its members receive the same message."""

    def hidden(self, ctx: Context, sent: Message, up: Message, examples: int) -> Hidden:
        """What the clients of one group add up, [K, ...]; `examples`: training examples of all clients."""

    def clear(self, up: Message) -> Message:
        """The part of an upload that the server sees of every client."""

    def summed(
        self, ctx: Context, server: State, ids: Tensor, found: Sequence[Summed], clear: Message
    ) -> tuple[State, Notes]:
        """The server step, from the sums of the groups that have one and the clear parts of the clients `ids`."""


def reach(ctx: Context) -> float:
    """The farthest that an entry of a client's weights can move in a round; longer steps are cut."""
    return float(FARTHEST * ctx.lr * ctx.epochs * (BATCHES if ctx.batch_size else 1))


def within(step: Tensor, ctx: Context) -> Tensor:
    """A mean of steps. No honest one is beyond `reach`; one client that adds anything it likes could be behind one."""
    return step.clamp(-reach(ctx), reach(ctx))


def steps_of(weights: Tree, received: Tree) -> Tree:
    return tree_map(torch.sub, weights, received)


def sums_of(
    method: Sums,
    ctx: Context,
    server: State,
    ids: Tensor,
    up: Message,
    least: int,
    examples: int = 0,
    total: Callable[[Hidden], Hidden] = Hidden.total,
) -> list[Summed]:
    """The sums over all groups of at least `least` clients, from the uploads of the clients `ids`."""
    found, group_K = [], method.groups(server, ids).cpu()
    for group in sorted({*group_K.tolist()}):
        at = torch.nonzero(group_K == group).flatten()
        if len(at) >= least:
            hidden = method.hidden(ctx, method.send(server, ids[at]), up.select(at), examples)
            found.append(Summed(group, ids[at], total(hidden)))
    return found


class OneMean(Algorithm):
    """A method whose server step is one mean, weighted by training examples: θ̄ ← θ̄ + Σ_k n_k Δ_k / Σ_k n_k.

    Clients add n_k Δ_k / N and n_k / N, with N the number of examples of all clients.
    """

    averaged: ClassVar[str]
    """The name of the tree, in the upload and in the server's state."""
    shared_out: ClassVar[bool] = True

    def secured(self) -> Algorithm:
        return self

    def groups(self, server: State, ids: Tensor) -> Tensor:
        return torch.zeros_like(ids)

    def hidden(self, ctx: Context, sent: Message, up: Message, examples: int) -> Hidden:
        share_K = (up.tensor("size").double() / max(1, examples)).clamp(0, 1)
        steps = steps_of(up.tree(self.averaged), sent.tree(self.averaged))
        steps = tree_map(lambda step: for_each(share_K, step).to(step.dtype) * step, steps)
        return Hidden(steps, numbers={"share": share_K})

    def clear(self, up: Message) -> Message:
        return Message()

    def summed(
        self, ctx: Context, server: State, ids: Tensor, found: Sequence[Summed], clear: Message
    ) -> tuple[State, Notes]:
        mean = tree(server[self.averaged])
        for one in found:
            share = one.sums.numbers["share"]
            if bool(share > 0):  # else no client with examples took part
                steps = {name: one.sums.steps[name] / share.to(leaf.dtype) for name, leaf in mean.items()}
                mean = {name: leaf + within(steps[name], ctx) for name, leaf in mean.items()}
        return {self.averaged: mean}, {}
