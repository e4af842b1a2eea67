"""What a curious coordinator writes down: of every client, the first round of training that it can see, and the last.

Axes: H hidden, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpub.attacks.seen import Seen
from fedpub.core.tree import State, Tree, state_map, tree_map
from fedpub.engine.observed import Observed
from fedpub.models.base import OUTPUT

EARLY = 5  # rounds of which messages beside the weights are kept: models resemble each other later
STEPS = 10  # rounds of which the output layer's steps are kept


@dataclass(frozen=True, eq=False)
class Own:
    """One client in one round, leaves [1, ...]."""

    round: int
    sent: Tree
    known: Tree
    touched: Tree

    @property
    def change(self) -> Tree:
        """In double precision: the smallest digits tell most."""
        return {name: self.known[name].double() - self.sent[name].double() for name in self.known}


@dataclass(eq=False)
class Notebook:
    """By client. A round counts as training if any weight of the client has changed."""

    first: dict[int, Own] = field(default_factory=dict)
    last: dict[int, Own] = field(default_factory=dict)
    steps: dict[int, list[Tensor]] = field(default_factory=dict)  # of the output layer's weights, [H, C]
    told: dict[int, list[tuple[int, State, Tree]]] = field(default_factory=dict)  # round, messages, weights sent
    single: bool = True  # whether uploads of single clients were seen

    def __call__(self, observed: Observed) -> None:
        seen = Seen.of(observed)
        self.single = seen.single
        for at, client in enumerate(seen.ids.tolist()):
            own = Own(seen.round, *(_row(part, at) for part in (seen.sent, seen.known, seen.touched)))
            early = self.told.setdefault(client, [])
            if seen.told and len(early) < EARLY:
                output = {name: leaf for name, leaf in own.sent.items() if name.startswith(OUTPUT)}
                told = state_map(lambda leaf, at=at: leaf[at : at + 1].clone(), seen.told)  # type: ignore[misc]
                early.append((seen.round, told, output))
            if not any(bool((own.known[name] != own.sent[name]).any()) for name in own.known):
                continue
            self.first.setdefault(client, own)
            self.last[client] = own
            steps = self.steps.setdefault(client, [])
            if f"{OUTPUT}.weight" in own.known and len(steps) < STEPS:
                steps.append(own.change[f"{OUTPUT}.weight"][0])


def _row(leaves: Tree, at: int) -> Tree:
    return tree_map(lambda leaf: leaf[at : at + 1].clone().cpu(), leaves)


def together(owns: list[Own]) -> tuple[Tree, Tree]:
    """What clients were sent and what is known of them, leaves [K, ...]."""
    return (
        {name: torch.cat([own.sent[name] for own in owns]) for name in owns[0].known},
        {name: torch.cat([own.known[name] for own in owns]) for name in owns[0].known},
    )
