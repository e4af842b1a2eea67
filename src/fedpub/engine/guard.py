"""A client's check of the weights it has received, before it trains on them.

θ̄ is used unless the client's model is worse with it by more than a margin than with its own last weights θ, on its own
validation examples:

    θ ← θ̄  if  val(θ̄) ≥ val(θ) − margin,  else training continues from θ

Both are the client's personal models, with its own masks and personal parts. A client without validation examples uses
the received weights.

By default only methods that send every client a personal average have the guard (`Starts`). One model for all is
expected to be worse than a client's own before local training: with the guard, FedAvg would be another method.
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
    """The message [K, ...] with harmful weights replaced by the client's own last weights."""
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
    """The validation metric of the model from which a client would start training, [K]."""
    begun = algorithm.starts(own | {"weights": weights}) if isinstance(algorithm, Starts) else weights
    return ctx.task.validate(ctx.model, begun, data)["val"]
