"""A model with a fallback that a client may use instead.

The names of the fallback's weights have the prefix `alone.`, including its own parameters of the task, such as a
decoder. A client that may choose also has a number `alone`, [K, 1]: if it is not zero, the client uses the fallback.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpub.core.tree import Tree, for_each
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Around, Dropout, Model

SECOND, CHOSEN = "alone.", "alone"


@dataclass(frozen=True)
class WithFallback(Around):
    second: Model

    @property
    def steps(self) -> int:
        return max(self.model.steps, self.second.steps)

    @property
    def propagates(self) -> bool:
        return self.model.propagates or self.second.propagates

    def related(self, relations: int) -> Model:
        """A second model that treats all edges alike is replaced by the first: both see the same data."""
        first = self.model.related(relations)
        second = self.second.related(relations) if self.second.relational or relations == 1 else plain(first)
        return WithFallback(first, second)

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        """Both start as if the other did not exist."""
        same = torch.Generator().set_state(stream.get_state())
        second = self.second.init(num_features, num_classes, stream)
        return super().init(num_features, num_classes, same) | {SECOND + name: leaf for name, leaf in second.items()}

    def with_task(self, w: Tree, own: Tree) -> Tree:
        return w | {SECOND + name: leaf for name, leaf in own.items()} | own

    def federated(self, w: Tree) -> Tree:
        return {name: leaf for name, leaf in w.items() if not name.startswith(SECOND)}

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        first_NC = self.model.apply(w, data, dropout)
        if CHOSEN not in w:
            return first_NC
        second_NC = self.second.apply(apart(w)[1], data, dropout)
        return torch.where(w[CHOSEN][data.segments.owner_N] != 0, second_NC, first_NC)


def plain(model: Model) -> Model:
    """A model without what is around it."""
    return plain(model.model) if isinstance(model, Around) else model


def chosen(w: Tree) -> Tensor | None:
    """Which clients use the fallback, [K, 1], not zero; None if these weights are of one model."""
    return w.get(CHOSEN)


def apart(w: Tree) -> tuple[Tree, Tree]:
    """The weights of the first model and those of the second."""
    first = {name: leaf for name, leaf in w.items() if not name.startswith(SECOND) and name != CHOSEN}
    return first, {name.removeprefix(SECOND): leaf for name, leaf in w.items() if name.startswith(SECOND)}


def together(first: Tree, second: Tree, chosen_K: Tensor) -> Tree:
    """The weights of both models, and which one each client uses.

    A parameter requested by its own name, as a decoder is by its task, is that of the chosen model.
    """

    def used(name: str, leaf: Tensor) -> Tensor:
        if name not in second or second[name].shape != leaf.shape:
            return leaf
        return torch.where(for_each(chosen_K, leaf), second[name], leaf)

    found = {name: used(name, leaf) for name, leaf in first.items()}
    found |= {SECOND + name: leaf for name, leaf in second.items()}
    return found | {CHOSEN: chosen_K.unsqueeze(1).to(next(iter(first.values())).dtype)}
