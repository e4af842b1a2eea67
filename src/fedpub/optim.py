"""Adam for stacked clients: every client has a step counter of its own.

`torch.optim.Adam` keeps one counter for a stacked tensor, which is wrong as soon as clients take part unequally.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedpub.tree import State, Tree, tensor, tree, tree_map

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def adam_init(parameters: Tree) -> State:
    """Moments of zero and no step taken."""
    first = next(iter(parameters.values()))
    return {
        "first": tree_map(torch.zeros_like, parameters),
        "second": tree_map(torch.zeros_like, parameters),
        "step": torch.zeros(first.shape[0], dtype=torch.int64, device=first.device),
    }


@torch.no_grad()
def adam_step(parameters: Tree, gradients: Tree, state: State, lr: Mapping[str, float], weight_decay: float) -> State:
    """One step of Adam with L2 weight decay; writes into `parameters` and the moments, returns the new state."""
    first, second = tree(state["first"]), tree(state["second"])
    step_K = tensor(state["step"]) + 1
    for name, w in parameters.items():
        g, m, v = gradients[name], first[name], second[name]
        if weight_decay:
            g = g.add(w, alpha=weight_decay)
        m.lerp_(g, 1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        t = step_K.to(w.dtype).view(-1, *[1] * (w.dim() - 1))
        denominator = v.sqrt().div_((1 - BETA2**t).sqrt()).add_(EPSILON)
        w.sub_(m.div(denominator).mul_(lr[name] / (1 - BETA1**t)))
    return {"first": first, "second": second, "step": step_K}


def soft_threshold(mu: Tensor, amount: float) -> Tensor:
    """sign(μ)·max(|μ| − amount, 0): shrinks towards zero and stops there exactly; writes into `mu`."""
    return mu.copy_(torch.nn.functional.softshrink(mu, amount))
