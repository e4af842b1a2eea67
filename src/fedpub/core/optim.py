"""Adam for stacked clients: every client has a step counter of its own.

`torch.optim.Adam` keeps one counter for a stacked tensor, which is wrong as soon as clients differ in how often
they take part. Its fused kernel does the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedpub.core.recording import recording
from fedpub.core.tree import State, Tree, for_each, tensor, tree, tree_map

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
def adam_step(
    parameters: Tree,
    gradients: Tree,
    state: State,
    lr: Mapping[str, float | Tensor],
    weight_decay: float,
) -> State:
    """One step of Adam with L2 weight decay; writes into `parameters` and the moments, returns the new state.

    The learning rate is one number for all clients or one per client, [K]. The kernel supports only the former: for
    the latter it takes a step at rate one, which is then scaled for each client.
    """
    first, second = tree(state["first"]), tree(state["second"])
    step_K = tensor(state["step"]) + 1
    # Clients with the same number of steps form one tensor, others one each. Only the former case is recorded.
    together = recording(step_K) or bool((step_K == step_K[0]).all())
    steps = list(step_K[:1].float() if together else step_K.float())
    each = {name: rate for name, rate in lr.items() if isinstance(rate, Tensor)}
    before = {name: parameters[name].clone() for name in each}
    rates = {name: 1.0 if isinstance(rate, Tensor) else rate for name, rate in lr.items()}
    for rate in sorted(set(rates.values())):
        names = [name for name in parameters if rates[name] == rate]
        # The kernel reads memory in order, whatever the strides.
        trees = (parameters, tree_map(torch.Tensor.contiguous, gradients), first, second)
        lists = [[leaf for name in names for leaf in ([one[name]] if together else one[name])] for one in trees]
        torch._fused_adam_(
            lists[0],
            lists[1],
            lists[2],
            lists[3],
            [],
            steps * len(names),
            lr=rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
    for name, leaf in before.items():
        torch.lerp(leaf, parameters[name], for_each(each[name], leaf), out=parameters[name])
    return {"first": first, "second": second, "step": step_K}


def soft_threshold(mu: Tensor, amount: float | Tensor) -> Tensor:
    """sign(μ)·max(|μ| − amount, 0): shrinks towards zero and stops there exactly; writes into `mu`.

    The amount is one number for all clients or one per client, [K].
    """
    if isinstance(amount, Tensor):
        amount = for_each(amount, mu)
        return mu.sub_(mu.clamp(-amount, amount))
    torch.ops.aten.softshrink.out(mu, amount, out=mu)
    return mu
