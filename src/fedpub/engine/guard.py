"""A client's look at what it has received, before it trains on.

θ̄ is used unless the client's model is worse with it by more than a margin than with its own last weights θ, on its own
validation examples:

    θ ← θ̄  where  val(θ̄) ≥ val(θ) − margin,  else the client goes on from θ

Neither is a model that is sent: masks and personal parts are the client's own in both. Whoever has no validation
examples uses what comes.

By default only methods that send every client an average of its own have the guard (`Starts`). One model for all is
meant to be worse than a client's own before local training: with the guard, FedAvg would be another method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Starts
from fedpub.core.message import Message
from fedpub.core.recording import any_of
from fedpub.core.tree import State, Tree, for_each
from fedpub.data.clients.stack import Clients

MARGIN = 0.2  # accuracy, or area under the curve


@torch.no_grad()
def guarded(algorithm: Algorithm, ctx: Context, own: State, message: Message, data: Clients) -> Message:
    """The message [K, ...] with a client's own last weights in the place of those that would harm it."""
    last = own.get("weights")
    received = {leaf: value for part in message.trees.values() for leaf, value in part.items()}
    on = ctx.defence == "guard" or (ctx.defence == "default" and isinstance(algorithm, Starts))
    if not on or not isinstance(last, dict) or not last.keys() & received.keys():
        return message
    new = {leaf: received.get(leaf, value) for leaf, value in last.items()}
    harmful_K = _val(algorithm, ctx, own, new, data) < _val(algorithm, ctx, own, last, data) - MARGIN  # never with NaN
    if not any_of(harmful_K):
        return message

    def chosen(leaf: str, value: Tensor) -> Tensor:
        return torch.where(for_each(harmful_K, value), last[leaf], value) if leaf in last else value

    return message | {
        name: {leaf: chosen(leaf, value) for leaf, value in part.items()} for name, part in message.trees.items()
    }


def _val(algorithm: Algorithm, ctx: Context, own: State, weights: Tree, data: Clients) -> Tensor:
    """The validation metric of the model that a client would train on, [K]."""
    begun = algorithm.starts(own | {"weights": weights}) if isinstance(algorithm, Starts) else weights
    return ctx.task.evaluate(ctx.model, begun, data)["val"]
