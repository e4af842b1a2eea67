"""Local training common to all methods: E epochs of Adam on every client's own loss, and helpers for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.masks import MASK, chain_rule, masked
from fedpub.core.kernels import parts_in_cache
from fedpub.core.message import Message
from fedpub.core.optim import adam_init, adam_step, soft_threshold
from fedpub.core.tree import State, Tree, mix, stacked, tensor, tree, tree_map
from fedpub.data.clients.stack import Clients


def train(
    ctx: Context,
    data: Clients,
    weights: Tree,
    optimiser: State,
    masks: Tree | None = None,
    lr: Mapping[str, float | Tensor] = MappingProxyType({}),
    proximal: tuple[float, Tree] | None = None,
    shrink: float | Tensor | None = None,
) -> tuple[State, Tensor]:
    """E epochs of Adam on every client's own loss, in place: the optimiser's new state and the last task loss [K].

    The sum of K independent losses gives every client its exact own gradient in one backward pass.
    With `masks` μ the model's weights are θ ⊙ μ, and both are trained; `lr` holds learning rates that differ from the
    context's, one for all clients or one per client, [K]; `proximal` = (λ, θ̄) adds λ‖θ − θ̄‖² for the weights θ that
    are named in θ̄; `shrink` is the amount by which every entry of a mask moves towards zero after each step.
    """
    parameters = weights | {MASK + name: mask for name, mask in (masks or {}).items()}
    rates = {name: lr.get(name, ctx.lr) for name in parameters}
    first, second, step_K = tree(optimiser["first"]), tree(optimiser["second"]), tensor(optimiser["step"])
    for epoch in range(ctx.epochs):
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in masked(parameters).items()}
        loss_K = ctx.task.loss(ctx.model, leaves, data, ctx.step(epoch))
        gradients = dict(zip(leaves, torch.autograd.grad(loss_K.sum(), list(leaves.values())), strict=True))
        for part in parts_in_cache(weights) if masks else [slice(None)]:
            own = _cut(parameters, part)
            state: State = {"first": _cut(first, part), "second": _cut(second, part), "step": step_K[part]}
            by_name = chain_rule(own, _cut(gradients, part))
            if proximal and epoch:  # in the first epoch θ is θ̄
                strength, anchor = proximal
                pull = tree_map(torch.sub, {name: own[name] for name in anchor}, _cut(anchor, part))
                by_name |= {name: by_name[name].add(pull[name], alpha=2 * strength) for name in anchor}
            own_rates = {name: of_part(rate, part) for name, rate in rates.items()}
            adam_step(own, by_name, state, own_rates, ctx.weight_decay)
            if shrink is not None:
                for name in masks or {}:
                    soft_threshold(own[MASK + name], of_part(shrink, part))
        step_K = step_K + 1
    return {"first": first, "second": second, "step": step_K}, loss_K.detach()


def of_part(value_K: float | Tensor, part: slice) -> float | Tensor:
    """The values of some clients, given one for all clients or one per client, [K]."""
    return value_K[part] if isinstance(value_K, Tensor) else value_K


def _cut(leaves: Tree, part: slice) -> Tree:
    return {name: leaf[part] for name, leaf in leaves.items()}


def adopt(own: State, received: Tree) -> Tree:
    """A client's weights, overwritten by those that it received."""
    weights = tree(own["weights"])
    for name, leaf in received.items():
        weights[name].copy_(leaf)
    return weights


def start(w0: Tree, num_clients: int) -> State:
    """Every client's initial weights, with a new optimiser."""
    weights = stacked(w0, num_clients)
    return {"weights": weights, **adam_init(weights)}


def optimiser_of(own: State) -> State:
    return {name: own[name] for name in ("first", "second", "step")}


def weighted_mean(up: Message, name: str = "weights") -> Tree:
    """Σ_k n_k w_k / Σ_k n_k over the clients of a message, leaves [1, ...]; equal shares if no client has examples."""
    size_K = up.tensor("size").double()
    size_K = torch.where(size_K.sum() > 0, size_K, 1.0)
    return mix((size_K / size_K.sum()).unsqueeze(0), up.tree(name))
