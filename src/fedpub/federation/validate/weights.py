"""Whether weights can come from training as it was agreed on: an average at a site, an upload at the coordinator.

A coordinator may send weights of its own making and read a site's data off the answer: a model that says one class
whatever it sees, a unit that a single node gets through. An average of honest models has marks that such weights lack.
With w the first weights, θ the site's own after round b, and r the round that is asked for:

1. Before anything was averaged, in round 1, it is w to the last bit.
2. No step of Adam moves an entry by more than η (1 − β1) / √(1 − β2). Averages are no farther from w than the farthest
   model is: |θ̄ − w| ≤ 3.17 η E (r − 1) in every entry. The coordinator holds uploads to the same rule, so that a
   hostile site cannot make the others refuse.
3. Sites learn about equally fast: max |θ̄ − θ| ≤ FAR (max |θ − w| + η E (r − b)) in every leaf.
4. Matrices are not mostly zeros and, where there is no weight decay, do not vanish; nor does a row or a column.

In honest runs, watched once (every method on the built-in graph, six on Cora), with pruning,
rounding and absent sites, 1 in place of 3.17 nearly holds (1.11 with
int8), 1.6 in place of FAR, and the least norm of a row or a column is 0.2 of the usual one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context
from fedpub.core.message import Message
from fedpub.core.optim import BETA1, BETA2
from fedpub.core.tree import Tree

STEP = (1 - BETA1) / math.sqrt(1 - BETA2)  # of Adam, in learning rates, at most
ROUNDING = 0.01  # of the largest entry: what int8 and float16 may add to an average
FAR = 4.0
SMALL = 0.02  # of the usual norm of a row, a column or a matrix
LONG = 5  # entries of a row or a column of which not all are small by chance
ZEROS = 0.5  # share of a matrix


def implausible(ctx: Context, message: Message, first: Message, own: Tree, base: int) -> str | None:
    """What shows that a message of round `ctx.round` is no average of honest models; None where nothing does.

    `first` is the message of the first round, and `own` the site's weights after the round `base`.
    """
    for part, content in message.trees.items():
        for name, leaf in content.items():
            wrong = _wrong(ctx, leaf, first.tree(part)[name], own.get(name), base)
            if wrong:
                return f"{name} {wrong}"
    return None


def _wrong(ctx: Context, leaf: Tensor, first: Tensor, own: Tensor | None, base: int) -> str | None:
    if ctx.round == 1:
        return None if torch.equal(leaf, first) else "is not what everybody starts from, although it is the first round"
    if wrong := beyond(ctx, leaf, first, ctx.round - 1):
        return wrong
    if own is not None:
        apart = _furthest(leaf, own)
        most = FAR * (_furthest(own, first) + ctx.lr * ctx.epochs * (ctx.round - base)) + _slack(leaf)
        if not apart <= most:
            return f"is {apart:.3g} from this site's own weights, more than {most:.3g}"
    return _odd_matrix(leaf[0].double(), first[0].double(), ctx.weight_decay) if leaf.dim() == 3 else None


def beyond(ctx: Context, leaf: Tensor, first: Tensor, rounds: int, sent: Tensor | None = None) -> str | None:
    """That an entry has moved farther than so many rounds can move it, in words; of those that were sent."""
    moved = _furthest(leaf, first if sent is None else torch.where(sent, first, leaf))
    most = STEP * ctx.lr * ctx.epochs * rounds + _slack(leaf)
    if moved <= most:
        return None
    return f"is {moved:.3g} from where it started; no training of {rounds} rounds goes beyond {most:.3g}"


def _slack(leaf: Tensor) -> float:
    return ROUNDING * float(leaf.abs().max()) if leaf.numel() else 0.0


def _furthest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.numel() else 0.0


def _odd_matrix(leaf: Tensor, first: Tensor, weight_decay: float) -> str | None:
    if not bool(first.any()):
        return None
    if float(((leaf == 0) & (first != 0)).double().mean()) > ZEROS:
        return "is mostly zeros"
    if weight_decay:  # which makes zeros of rows that nobody uses
        return None
    if float(leaf.norm()) < SMALL * float(first.norm()):
        return "is next to nothing"
    for axis, word in ((0, "column"), (1, "row")):
        usual = first.norm(dim=axis).median()
        if leaf.shape[axis] >= LONG and bool((leaf.norm(dim=axis) < SMALL * usual).any()):
            return f"has a {word} that is next to nothing"
    return None
