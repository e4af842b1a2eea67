"""FED-PUB with three additions, none of which sends anything more.

1. The model `twin` (`models/twin.py`), half as wide: weights of their own for a node and its neighbours, normalised.
2. A client keeps and is judged by the mean of its personal weights over the last rounds,

       m ← β m + (1 − β) θ ⊙ μ,   personal weights m / (1 − βʳ) after r rounds,

   which training never sees.
3. Beside it, a client trains a model alone. Both are judged on its validation nodes, by a mean over rounds with the
   same β, and the client uses its own where that is better by more than `margin`: who does not gain does not lose.

What is sent, received and averaged is FED-PUB's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpub.algorithms.base import Context, train
from fedpub.algorithms.fedpub import FedPub
from fedpub.data.clients import Clients
from fedpub.optim import adam_init
from fedpub.tree import Message, State, Tree, stacked, tensor, tree, tree_map

ALONE = "alone_"  # before the names of a client's state that belong to the model it trains alone


@dataclass(frozen=True)
class FedPubPlus(FedPub):
    average: float = 0.8
    """β, of the means over rounds; 0: the last round alone."""
    choose: bool = True
    """Train a model alone, too, and use the better one."""
    margin: float = 0.01
    """By how much the model trained alone must be better on the validation nodes."""

    usual: ClassVar[Mapping[str, Any]] = {"model": "twin", "hidden": 64, "dropout": 0.6}

    def init_client(self, w0: Tree, num_clients: int) -> State:
        own = super().init_client(w0, num_clients)
        weights = tree(own["weights"])
        some = next(iter(weights.values()))
        own |= {"mean": tree_map(torch.zeros_like, weights), "rounds": some.new_zeros(num_clients)}
        if self.choose:
            alone = stacked(w0, num_clients)
            own |= {ALONE + name: part for name, part in {"weights": alone, **adam_init(alone)}.items()}
            own |= {ALONE + "mean": tree_map(torch.zeros_like, alone)}
            own |= {name: some.new_zeros(num_clients) for name in ("val", ALONE + "val")}
        return own

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        done, up, loss_K = super().client(ctx, own, msg, data)
        done["mean"] = self._averaged(own["mean"], self.masked(done))
        done["rounds"] = tensor(own["rounds"]) + 1
        if self.choose:
            done |= self._train_alone(ctx, own, data)
            for name, weights in (("val", self._federated(done)), (ALONE + "val", self._alone(done))):
                val_K = ctx.task.evaluate(ctx.model, weights, data)["val"].nan_to_num(0).to(loss_K.dtype)
                done[name] = self.average * tensor(own[name]) + (1 - self.average) * val_K
        return done, up, loss_K

    def _train_alone(self, ctx: Context, own: State, data: Clients) -> State:
        weights = tree(own[ALONE + "weights"])
        optimiser, _ = train(ctx, data, weights, {name: own[ALONE + name] for name in ("first", "second", "step")})
        done: State = {"weights": weights, "mean": self._averaged(own[ALONE + "mean"], weights), **optimiser}
        return {ALONE + name: part for name, part in done.items()}

    def _averaged(self, mean: Tree | Tensor, weights: Tree) -> Tree:
        return tree_map(lambda old, new: old.mul_(self.average).add_(new, alpha=1 - self.average), tree(mean), weights)

    def _share(self, own: State) -> Tensor:
        """1 − βʳ: what the rounds so far have of a mean that began at zero, [K]."""
        rounds_K = tensor(own["rounds"])
        return 1 - torch.full_like(rounds_K, self.average) ** rounds_K

    def _federated(self, own: State) -> Tree:
        now = self.masked(own)
        # An entry that is pruned is zero, whatever it was in earlier rounds.
        mean = tree_map(lambda past, entry: past * (entry != 0), tree(own["mean"]), now)
        return self._unbiased(own, mean, now)

    def _alone(self, own: State) -> Tree:
        return self._unbiased(own, tree(own[ALONE + "mean"]), tree(own[ALONE + "weights"]))

    def _unbiased(self, own: State, mean: Tree, now: Tree) -> Tree:
        """A mean over rounds; before the first round the weights themselves."""
        share_K = self._share(own)

        def scaled(past: Tensor, entry: Tensor) -> Tensor:
            share = _each(share_K, past)
            return torch.where(share > 0, past / share.clamp(min=1e-30), entry)

        return tree_map(scaled, mean, now)

    def personal(self, own: State) -> Tree:
        together = self._federated(own)
        if not self.choose:
            return together
        alone_K = tensor(own[ALONE + "val"]) > tensor(own["val"]) + self.margin * self._share(own)
        return tree_map(lambda one, other: torch.where(_each(alone_K, one), other, one), together, self._alone(own))


def _each(value_K: Tensor, leaf: Tensor) -> Tensor:
    """A value for every client in the shape of a leaf [K, ...]."""
    return value_K.view(-1, *[1] * (leaf.dim() - 1))
