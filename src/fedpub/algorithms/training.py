"""Local training common to all methods: E epochs of Adam on every client's own loss, and helpers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.masks import MASK, chain_rule, masked
from fedpub.core.kernels import parts_in_cache
from fedpub.core.message import Message
from fedpub.core.optim import adam_init, adam_step, soft_threshold
from fedpub.core.rng import numpy_stream
from fedpub.core.tree import State, Tree, mix, stacked, tensor, tree, tree_map
from fedpub.data.clients.stack import Clients
from fedpub.tasks.base import Step


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

    An epoch is one step on all training nodes, or one on each batch of them if the context has a batch size.

    The sum of K independent losses gives every client its exact own gradient in one backward pass.
    With `masks` μ the model's weights are θ ⊙ μ, and both are trained; `lr` holds learning rates that differ from the
    context's, one for all clients or one per client, [K]; `proximal` = (λ, θ̄) adds λ‖θ − θ̄‖² for the weights θ that
    are named in θ̄; `shrink` is the amount by which every entry of a mask moves towards zero after each step.
    """
    parameters = weights | {MASK + name: mask for name, mask in (masks or {}).items()}
    rates = {name: lr.get(name, ctx.lr) for name in parameters}
    trees = (parameters, tree(optimiser["first"]), tree(optimiser["second"]), proximal[1] if proximal else {})
    step_K = tensor(optimiser["step"]).clone()

    def step(task_step: Step, data: Clients, trees: Sequence[Tree], step_K: Tensor, of: Of) -> Tensor:
        """One step of all clients in the data, in place; their losses, [K]."""
        parameters, first, second, anchor = trees
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in masked(parameters).items()}
        loss_K = ctx.task.loss(ctx.model, leaves, data, task_step)
        gradients = dict(zip(leaves, torch.autograd.grad(loss_K.sum(), list(leaves.values())), strict=True))
        for part in parts_in_cache(leaves) if masks else [slice(None)]:
            own = _cut(parameters, part)
            state: State = {"first": _cut(first, part), "second": _cut(second, part), "step": step_K[part]}
            by_name = chain_rule(own, _cut(gradients, part))
            if proximal and (task_step.epoch or task_step.batch):  # in the first step θ is θ̄
                pull = tree_map(torch.sub, {name: own[name] for name in anchor}, _cut(anchor, part))
                by_name |= {name: by_name[name].add(pull[name], alpha=2 * proximal[0]) for name in anchor}
            adam_step(own, by_name, state, {name: of(rate, part) for name, rate in rates.items()}, ctx.weight_decay)
            if shrink is not None:
                for name in masks or {}:
                    soft_threshold(own[MASK + name], of(shrink, part))
        step_K += 1
        return loss_K.detach()

    for epoch in range(ctx.epochs):
        if not ctx.batch_size or not ctx.model.independent:
            loss_K = step(ctx.step(epoch), data, trees, step_K, of_part)
            continue
        loss_K = step_K.new_zeros(len(step_K), dtype=data.dtype)
        for number, (some, clients) in enumerate(batches(data, ctx.seed, ctx.round, epoch, ctx.batch_size)):
            # Clients without a batch of this number are left out: a step with a gradient of zero would move them, too.
            taken = [{name: leaf[clients] for name, leaf in one.items()} for one in trees]
            lost = step(ctx.step(epoch, number), some, taken, steps := step_K[clients], partial(of_some, clients))
            for one, new in zip(trees[:3], taken[:3], strict=True):
                for name, leaf in new.items():
                    one[name][clients] = leaf
            step_K[clients] = steps
            loss_K[clients] += lost * some.num_train_K / data.num_train_K[clients].clamp(min=1)
    return {"first": trees[1], "second": trees[2], "step": step_K}, loss_K


Of = Callable[[float | Tensor, slice], float | Tensor]


def batches(data: Clients, seed: int, number: int, epoch: int, size: int) -> Iterator[tuple[Clients, Tensor]]:
    """The training nodes of every client in batches of a random order of its own, and the clients that have one.

    The first batch is everybody's: without training nodes it is a step as it is in full batch.
    """
    rows = data.train_rows.cpu()
    owner_M = data.segments.owner_N.cpu()[rows]
    orders = []
    for position, client in enumerate(data.ids_K.tolist()):
        own = rows[owner_M == position]
        order = numpy_stream(seed, "batches", client, number, epoch).permutation(len(own))
        orders.append(own[torch.from_numpy(order)])
    for start in range(0, max(1, *map(len, orders)), size):
        having = [at for at, order in enumerate(orders) if len(order) > start or not start]
        clients = torch.tensor(having, device=data.device)
        chosen = torch.cat([order[start : start + size].sort().values for order in orders])
        yield data.rows(chosen.to(data.device), clients), clients


def of_part(value_K: float | Tensor, part: slice) -> float | Tensor:
    """The values of some clients, given one for all clients or one per client, [K]."""
    return value_K[part] if isinstance(value_K, Tensor) else value_K


def of_some(clients: Tensor, value_K: float | Tensor, part: slice) -> float | Tensor:
    """The same, if only some of the clients take a step."""
    return value_K[clients][part] if isinstance(value_K, Tensor) else value_K


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
